/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Reads the file netd.json; what its text says is netd-config.c's affair. It is read before there
 * is a sandbox, and again by the warden, which goes by it in what it connects to: so it has to be
 * this user's or root's, and not too large.
 */
#include "netd-config.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <gio/gio.h>

/* With errno. */
static gboolean
fail (GError **error, const char *path, const char *what)
{
  int code = errno;

  g_set_error (error, G_IO_ERROR, g_io_error_from_errno (code), "%s %s: %s", what, path,
               g_strerror (code));
  return FALSE;
}

static gboolean
refuse (GError **error, const char *path, const char *why)
{
  g_set_error (error, G_IO_ERROR, G_IO_ERROR_INVALID_DATA, "%s: %s", path, why);
  return FALSE;
}

/* Ours, and nobody else may write it: whoever can chooses what the warden connects to. */
static gboolean
check_file (int fd, const char *path, GError **error)
{
  struct stat status;

  if (fstat (fd, &status) < 0)
    return fail (error, path, "look at");
  if (!S_ISREG (status.st_mode) || status.st_size > NETD_CONFIG_MAX)
    return refuse (error, path, "it is no regular file, or too large");
  if ((status.st_uid != geteuid () && status.st_uid != 0) || (status.st_mode & 022) != 0)
    return refuse (error, path,
                   "it must belong to this user or root and be writable by nobody else");
  return TRUE;
}

static char *
read_all (int fd, const char *path, GError **error)
{
  g_autoptr (GString) text = g_string_new (NULL);
  char buffer[16384];
  gssize n;

  while ((n = read (fd, buffer, sizeof buffer)) > 0)
    {
      g_string_append_len (text, buffer, n);
      if (text->len > NETD_CONFIG_MAX)
        {
          refuse (error, path, "it is too large");
          return NULL;
        }
    }
  if (n < 0)
    {
      fail (error, path, "read");
      return NULL;
    }
  if (strlen (text->str) != text->len)
    {
      refuse (error, path, "it has a NUL byte in it");
      return NULL;
    }
  return g_string_free (g_steal_pointer (&text), FALSE);
}

NetdConfig *
netd_config_read (const char *directory, GError **error)
{
  g_autofree char *path = g_build_filename (directory, NETD_CONFIG_FILE, NULL);
  g_autofree char *text = NULL;
  NetdConfig *self = NULL;
  int fd = open (path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);

  if (fd < 0)
    {
      fail (error, path, "open");
      return NULL;
    }
  if (check_file (fd, path, error))
    text = read_all (fd, path, error);
  close (fd);
  if (text == NULL)
    return NULL;
  self = netd_config_parse (text, error);
  if (self == NULL)
    g_prefix_error (error, "%s: ", path);
  return self;
}
