/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <sys/types.h>

#include <glib.h>

/* What the two halves of netd give up. Each is one way. */

/* For the clone: new user (unless root may do without), mount, IPC, UTS and PID namespaces. Returns
 * as fork() does. */
pid_t netd_sandbox_fork (GError **error);
/* The process that forked, by the id that the outside knows it by; this process when none has. */
pid_t netd_sandbox_get_warden (void);
/* In the child: an empty private root for its own sockets, no capability, bounded memory and
 * descriptors, Landlock, the system call filter. */
gboolean netd_sandbox_enter (GError **error);
/* The same filter alone, for tests of it. */
gboolean netd_sandbox_filter_system_calls (GError **error);
/* In the warden: reads what is below @directories, writes nothing, starts nothing. */
gboolean netd_sandbox_confine_warden (const char *const *directories, GError **error);
