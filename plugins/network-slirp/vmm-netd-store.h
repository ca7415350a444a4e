/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <gio/gio.h>

G_BEGIN_DECLS

/* What is done on the disk in the folder of a network, in a worker thread. */
#define VMM_NETD_STORE_FILE "netd.json"
#define VMM_NETD_STORE_SOCKET "control.sock"
#define VMM_NETD_STORE_LOG "netd.log"

/* As whom a root daemon's vmm-netd runs, if not as root. Once, before anything else here. */
void vmm_netd_store_set_account (gboolean exists, guint uid, guint gid);
/* The text of netd.json; NULL without an error when there is none. Before anything is written. */
void vmm_netd_store_read_async (const char *directory, GAsyncReadyCallback callback,
                                gpointer user_data);
char *vmm_netd_store_read_finish (GAsyncResult *result, GError **error);
/* Replaces netd.json atomically: private but for the account, lasting when it answers. Takes the
 * text. */
void vmm_netd_store_write_async (const char *directory, char *text, GAsyncReadyCallback callback,
                                 gpointer user_data);
/* Before a start: removes the control socket of an earlier run, puts its log aside, and lets the
 * account work here. */
void vmm_netd_store_prepare_async (const char *directory, GAsyncReadyCallback callback,
                                   gpointer user_data);
/* Removes all that is here of vmm-netd. */
void vmm_netd_store_remove_async (const char *directory, GAsyncReadyCallback callback,
                                  gpointer user_data);
gboolean vmm_netd_store_finish (GAsyncResult *result, GError **error);
/* The last line of the log, tidied; NULL when there is none. */
void vmm_netd_store_read_log_async (const char *directory, GAsyncReadyCallback callback,
                                    gpointer user_data);
char *vmm_netd_store_read_log_finish (GAsyncResult *result);

G_END_DECLS
