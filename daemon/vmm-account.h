/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <gio/gio.h>

G_BEGIN_DECLS

/* The account that the children of a root daemon run as: QEMU, swtpm, the programs of networks. What
 * they need of the state directory is let to them here, and no more. Without such an account, and
 * for a daemon that is not root, all of this does nothing. */

/* Looks the account up, VMM_ACCOUNT_NAME but in tests; once, before the state directory is used. */
void vmm_account_init (const char *name);
/* Lets the account pass through a folder to what it knows the name of. A folder that it cannot come
 * to at all is a warning. */
gboolean vmm_account_let_through (const char *folder, GError **error);
/* Lets the account make files in a folder. It can neither remove nor replace those of others. */
gboolean vmm_account_let_in (const char *folder, GError **error);
/* Lets the account read a file; one that an administrator has given to somebody else stays. */
gboolean vmm_account_let_read (const char *path, GError **error);
/* Lets the account connect to a socket of ours. */
gboolean vmm_account_let_connect (const char *path, GError **error);
/* Makes the account the owner of a regular file, or of all that are directly in a folder. */
gboolean vmm_account_give (const char *path, GError **error);
gboolean vmm_account_give_contents (const char *folder, GError **error);

G_END_DECLS
