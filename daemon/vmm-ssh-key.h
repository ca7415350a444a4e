/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <gio/gio.h>

G_BEGIN_DECLS

/* A new ed25519 key pair: the private key in OpenSSH PEM, the public one as one line
 * "ssh-ed25519 <base64> <comment>". */
gboolean vmm_ssh_key_generate (const char *comment, char **private_pem, char **public_line,
                               GError **error);

G_END_DECLS
