/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* One daemon for one state directory.
 *
 * Taken before anything below the directory is read. The kernel drops the lock with the descriptor,
 * so a crash leaves nothing stale; the process id in the file is only there to be told to people.
 */

#include "config.h"

#include "vmm-state-lock.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "interfaces/vmm-error.h"

/* The digits at the start of the file, or NULL. */
static char *
read_holder (int fd)
{
  char text[24] = "";
  ssize_t length = pread (fd, text, sizeof text - 1, 0);
  gsize digits;

  if (length <= 0)
    return NULL;
  digits = strspn (text, "0123456789");
  return digits > 0 ? g_strndup (text, digits) : NULL;
}

static gboolean
write_holder (int fd)
{
  g_autofree char *text = g_strdup_printf ("%ld\n", (long) getpid ());
  size_t length = strlen (text);

  return ftruncate (fd, 0) == 0 && pwrite (fd, text, length, 0) == (ssize_t) length;
}

int
vmm_state_lock_take (const char *state_dir, GError **error)
{
  g_autofree char *path = g_build_filename (state_dir, "lock", NULL);
  g_autofree char *holder = NULL;
  struct stat status;
  int saved;
  int fd;

  fd = open (path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0600);
  if (fd >= 0 && fstat (fd, &status) == 0 && !S_ISREG (status.st_mode))
    {
      g_set_error (error, VMM_ERROR, VMM_ERROR_INTERNAL, "state dir lock %s: not a regular file",
                   path);
      close (fd);
      return -1;
    }
  if (fd >= 0 && flock (fd, LOCK_EX | LOCK_NB) == 0 && fchmod (fd, 0600) == 0 && write_holder (fd))
    return fd;

  saved = errno;
  if (fd >= 0 && saved == EWOULDBLOCK)
    {
      holder = read_holder (fd);
      g_set_error (error, VMM_ERROR, VMM_ERROR_CONFLICT,
                   "state dir is in use by another vm-manager: %s is held by pid %s", path,
                   holder != NULL ? holder : "unknown");
    }
  else
    g_set_error (error, VMM_ERROR, VMM_ERROR_INTERNAL, "state dir lock %s: %s", path,
                 g_strerror (saved));
  if (fd >= 0)
    close (fd);
  return -1;
}

void
vmm_state_lock_release (int fd)
{
  if (fd >= 0)
    close (fd);
}
