/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <glib.h>

/* What netd-sandbox.c puts together. */

/* Builds for tests need a few calls more and maps of address space without end. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define NETD_WITH_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define NETD_WITH_SANITIZER 1
#endif
#endif

/* Files: the switch may make and remove sockets below its root, the warden read below @directories.
 * TRUE without a word on kernels that have no Landlock, but for a line in the log. */
gboolean netd_landlock_confine_switch (GError **error);
gboolean netd_landlock_confine_warden (const char *const *directories, GError **error);

/* System calls. That of the switch is netd_sandbox_filter_system_calls(). */
gboolean netd_filter_confine_warden (GError **error);

/* Always FALSE; @what names the step that errno is about. */
gboolean netd_sandbox_fail (GError **error, const char *what);
