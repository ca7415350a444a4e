/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Trust on first use, in a file of the VM's folder.
 *
 * Connections run side by side, so two first ones may meet here. The file appears with all it
 * holds, by a link that fails when it is there already: the first one pins, and every other one is
 * told what it has to find.
 */
#include "config.h"

#include "vmm-ssh-pin.h"

#include <errno.h>
#include <fcntl.h>
#include <glib/gstdio.h>
#include <string.h>
#include <unistd.h>

#include "interfaces/vmm-error.h"
#include "vmm-file.h"

/* The longest key of the types that we take, RSA with 16384 bits, has 2.8 KB. */
#define PIN_LIMIT (16 * 1024)

static gboolean
is_line (const char *text)
{
  const char *blank = strchr (text, ' ');
  g_autofree guchar *blob = NULL;
  gsize size = 0;

  if (blank == NULL || blank == text || blank[1] == '\0')
    return FALSE;
  for (const char *at = text; *at != '\0'; at++)
    if (at != blank && !g_ascii_isgraph (*at))
      return FALSE;
  blob = g_base64_decode (blank + 1, &size);
  return size > 0;
}

gboolean
vmm_ssh_pin_load (const char *path, char **line, GError **error)
{
  g_autoptr (GBytes) content = NULL;
  g_autoptr (GError) local = NULL;
  g_autofree char *text = NULL;

  *line = NULL;
  content = vmm_file_read (path, PIN_LIMIT, &local);
  if (g_error_matches (local, G_IO_ERROR, G_IO_ERROR_NOT_FOUND))
    return TRUE;
  if (content == NULL)
    {
      g_propagate_error (error, g_steal_pointer (&local));
      return FALSE;
    }

  text = g_strndup (g_bytes_get_data (content, NULL), g_bytes_get_size (content));
  g_strchomp (text);
  if (!is_line (text))
    {
      vmm_set_error (error, VMM_ERROR_INTERNAL,
                     "%s holds no host key: remove it, and the next exec_vm pins the guest's",
                     path);
      return FALSE;
    }
  *line = g_steal_pointer (&text);
  return TRUE;
}

static gboolean
fail (GError **error, const char *path, int number)
{
  vmm_set_error (error, VMM_ERROR_INTERNAL, "write %s: %s", path, g_strerror (number));
  return FALSE;
}

/* The name is to be there after a power failure, too. */
static gboolean
sync_folder_of (const char *path, GError **error)
{
  g_autofree char *folder = g_path_get_dirname (path);
  int fd = open (folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  int number = fd < 0 || fsync (fd) < 0 ? errno : 0;

  if (fd >= 0)
    close (fd);
  return number == 0 || fail (error, path, number);
}

gboolean
vmm_ssh_pin_store (const char *path, const char *line, char **winner, GError **error)
{
  g_autofree char *folder = g_path_get_dirname (path);
  g_autofree char *name = g_path_get_basename (path);
  g_autofree char *temporary_name = g_strdup_printf (".%s.%08x", name, g_random_int ());
  g_autofree char *temporary = g_build_filename (folder, temporary_name, NULL);
  g_autofree char *text = g_strconcat (line, "\n", NULL);
  int number = 0;

  *winner = NULL;
  if (!vmm_file_replace (temporary, text, strlen (text), 0600, error))
    return FALSE;
  if (link (temporary, path) < 0)
    number = errno;
  g_unlink (temporary);
  if (number != 0 && number != EEXIST)
    return fail (error, path, number);
  if (!sync_folder_of (path, error) || !vmm_ssh_pin_load (path, winner, error))
    return FALSE;
  /* It was there a moment ago. */
  return *winner != NULL || fail (error, path, ENOENT);
}

char *
vmm_ssh_pin_fingerprint (const char *line)
{
  const char *blank = strchr (line, ' ');
  g_autofree guchar *blob = NULL;
  g_autoptr (GChecksum) checksum = g_checksum_new (G_CHECKSUM_SHA256);
  g_autofree char *base64 = NULL;
  guint8 digest[32];
  gsize size = 0;
  gsize length = sizeof digest;

  blob = g_base64_decode (blank != NULL ? blank + 1 : line, &size);
  g_checksum_update (checksum, blob, (gssize) size);
  g_checksum_get_digest (checksum, digest, &length);
  base64 = g_base64_encode (digest, length);
  base64[strcspn (base64, "=")] = '\0';
  return g_strconcat ("SHA256:", base64, NULL);
}
