/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "netd-path-watch.h"

/* Follows the host's resolv.conf(5): by whatever links it is reached and however it is replaced. */
typedef struct _NetdWardenResolver NetdWardenResolver;

/* @text: shorter than NETD_RESOLVER_MAX, whole lines; "" when there is no such file */
typedef void (*NetdWardenResolverFunc) (const char *text, gpointer user_data);

/* @func is called with the first text before this returns, and later with each that differs. */
NetdWardenResolver *netd_warden_resolver_new (NetdLoop *loop, NetdPathWatcher *watcher,
                                              const char *path, NetdWardenResolverFunc func,
                                              gpointer user_data);
void netd_warden_resolver_free (NetdWardenResolver *self);
