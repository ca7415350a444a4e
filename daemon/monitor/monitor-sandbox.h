/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <glib.h>

/* What the process gives up once it has its sockets. In this order; what the kernel does not know
 * is logged and passed over, FALSE with an error when it fails. */

/* Limits, and no privileges by programs that it would start. */
gboolean monitor_sandbox_begin (GError **error);
/* Files: those of the current directory alone. */
gboolean monitor_sandbox_restrict_files (GError **error);
/* System calls, of all threads. */
gboolean monitor_sandbox_restrict_calls (GError **error);

/* Always FALSE; @what names the step that errno is about. */
gboolean monitor_sandbox_fail (GError **error, const char *what);

/* Builds for tests need a few calls more. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MONITOR_WITH_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define MONITOR_WITH_SANITIZER 1
#endif
#endif
