/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What is drawn: names and numbers that nobody can guess.
 *
 * GLib's own generator is for games. The kernel's only waits while a machine boots for the first
 * time, long before a daemon runs, and never gives less than was asked for up to 256 bytes; it is
 * asked again all the same.
 */

#include "config.h"

#include "vmm-random.h"

#include <errno.h>
#include <sys/random.h>
#include <sys/types.h>

#include "interfaces/vmm-error.h"

#define HEX_MAX 16

gboolean
vmm_random_fill (gpointer bytes, gsize length, GError **error)
{
  gsize done = 0;

  while (done < length)
    {
      ssize_t n = getrandom ((guint8 *) bytes + done, length - done, 0);

      if (n < 0 && errno == EINTR)
        continue;
      if (n <= 0)
        {
          vmm_set_error (error, VMM_ERROR_INTERNAL, "getrandom: %s", g_strerror (errno));
          return FALSE;
        }
      done += (gsize) n;
    }
  return TRUE;
}

char *
vmm_random_hex (gsize n_bytes, GError **error)
{
  guint8 bytes[HEX_MAX];
  g_autoptr (GString) text = g_string_sized_new (2 * n_bytes);

  g_return_val_if_fail (n_bytes <= sizeof bytes, NULL);

  if (!vmm_random_fill (bytes, n_bytes, error))
    return NULL;
  for (gsize i = 0; i < n_bytes; i++)
    g_string_append_printf (text, "%02x", bytes[i]);
  return g_string_free (g_steal_pointer (&text), FALSE);
}
