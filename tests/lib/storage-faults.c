/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A disk that fails where it is told, linked into a daemon: what this program defines goes before the C
 * library's, for the daemon, for its plugins and for GLib. Each call that changes something below the state
 * folder is a point: "write vms/VM/.vm.json.*", with "#2" at the second time.
 *
 * VMM_FAULTS_STATE is the folder, VMM_FAULTS a file with one line, read at each call; a new file begins the
 * counting anew. Without the file nothing fails.
 *
 *   list              writes down what was passed, to the same name with .seen
 *   KIND POINT        at that point, and says in .seen that it was passed:
 *     kill-before, kill-after   the daemon is killed
 *     torn              half of what is written lands, then it is killed
 *     power             it is killed, and what was written and not synced since is gone
 *     short             half of what is written lands, and it is told so
 *     ENOSPC, EIO, EROFS        the call fails
 *     ENOSPC-5          it and the next four
 *     ENOSPC-on, EROFS-on       it and all that follow, until the file has gone
 */

#include "config.h"

/* Both names of each call are to be had. */
#undef _FILE_OFFSET_BITS
#define _LARGEFILE64_SOURCE 1

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <glib.h>

#define REAL(type, ...) static type (*real) (__VA_ARGS__)
#define FIND_REAL(name)                                                                            \
  if (real == NULL)                                                                                \
  *(void **) &real = dlsym (RTLD_NEXT, name)

typedef enum
{
  PASS,
  FAIL,
  HALF,
  HALF_AND_DIE,
  DIE_AFTER,
} Outcome;

typedef struct
{
  ino_t inode;
  int fd;
} Unsynced;

static const char *control;
static const char *state;
static pid_t owner;
static GMutex mutex;
static GHashTable *passed; /* how often, by name */
static ino_t inode;        /* of the control file */
static guint failing;      /* so many more calls fail */
static GArray *unsynced;

__attribute__ ((constructor)) static void
install (void)
{
  control = g_getenv ("VMM_FAULTS");
  state = g_getenv ("VMM_FAULTS_STATE");
  owner = getpid ();
  passed = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL);
  unsynced = g_array_new (FALSE, FALSE, sizeof (Unsynced));
}

static gssize
really_write (int fd, const char *data, gsize length)
{
  REAL (ssize_t, int, const void *, size_t);

  FIND_REAL ("write");
  return real (fd, data, length);
}

static int
really_open (const char *path, int flags)
{
  REAL (int, const char *, int, ...);

  FIND_REAL ("open");
  return real (path, flags, 0600);
}

static void
note (const char *name)
{
  g_autofree char *seen = g_strconcat (control, ".seen", NULL);
  g_autofree char *line = g_strconcat (name, "\n", NULL);
  int fd = really_open (seen, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC);

  g_assert_cmpint (really_write (fd, line, strlen (line)), ==, (gssize) strlen (line));
  close (fd);
}

/* What is random in a path is the same in each run: ids of VMs, names of temporary files. */
static void
make_plain (GString *path)
{
  g_autoptr (GRegex) vm = g_regex_new ("(?<=vms/|vm-)[0-9a-f]{8}", 0, 0, NULL);
  g_autoptr (GRegex) temporary = g_regex_new ("(?<=\\.|\\.netd-)[0-9a-f]{8}(?=$|\\.json$)|#[0-9]+.*$", 0, 0, NULL);
  g_autofree char *first = g_regex_replace (temporary, path->str, -1, 0, "*", 0, NULL);
  g_autofree char *second = g_regex_replace (vm, first, -1, 0, "VM", 0, NULL);

  g_string_assign (path, second);
}

/* NULL for what is not below the state folder. */
static char *
dup_point (const char *call, int folder, const char *name)
{
  g_autoptr (GString) path = g_string_new (NULL);
  char buffer[4096] = "";
  gsize length;

  if (control == NULL || state == NULL || getpid () != owner)
    return NULL;
  length = strlen (state);
  if (folder != AT_FDCWD && (name == NULL || name[0] != '/'))
    {
      g_autofree char *link = g_strdup_printf ("/proc/self/fd/%d", folder);

      if (readlink (link, buffer, sizeof buffer - 1) < 0)
        return NULL;
      g_string_assign (path, buffer);
      if (name != NULL)
        g_string_append_c (path, '/');
    }
  g_string_append (path, name != NULL ? name : "");
  if (!g_str_has_prefix (path->str, state) || (path->str[length] != '/' && path->str[length] != 0))
    return NULL;
  g_string_erase (path, 0, (gssize) length);
  make_plain (path);
  return g_strdup_printf ("%s %s", call, path->len > 0 ? path->str + 1 : ".");
}

static gboolean
count (char **point, char **kind)
{
  g_autofree char *content = NULL;
  struct stat info;
  char *wanted;
  guint n;

  if (stat (control, &info) != 0 || !g_file_get_contents (control, &content, NULL, NULL))
    {
      failing = 0;
      return FALSE;
    }
  if (info.st_ino != inode)
    g_hash_table_remove_all (passed);
  inode = info.st_ino;
  n = GPOINTER_TO_UINT (g_hash_table_lookup (passed, *point)) + 1;
  g_hash_table_insert (passed, g_strdup (*point), GUINT_TO_POINTER (n));
  if (n > 1)
    {
      g_autofree char *plain = g_steal_pointer (point);

      *point = g_strdup_printf ("%s#%u", plain, n);
    }
  wanted = strchr (content, ' ');
  if (wanted != NULL)
    *wanted = '\0';
  *kind = g_strdup (content);
  if (g_str_equal (content, "list"))
    note (*point);
  return wanted != NULL && g_str_equal (wanted + 1, *point);
}

static Outcome
fail (const char *kind)
{
  errno = g_str_has_prefix (kind, "ENOSPC") ? ENOSPC : g_str_equal (kind, "EIO") ? EIO : EROFS;
  return FAIL;
}

static void
lose_unsynced (void)
{
  REAL (int, int, off_t);

  FIND_REAL ("ftruncate");
  for (guint i = 0; i < unsynced->len; i++)
    (void) !real (g_array_index (unsynced, Unsynced, i).fd, 0);
}

static void
die (void)
{
  kill (getpid (), SIGKILL);
  pause ();
}

/* Called with the mutex. */
static Outcome
obey (const char *kind, gboolean is_data)
{
  if (g_str_equal (kind, "power"))
    lose_unsynced ();
  if (g_str_equal (kind, "power") || g_str_equal (kind, "kill-before"))
    die ();
  if (g_str_equal (kind, "kill-after"))
    return DIE_AFTER;
  if (g_str_equal (kind, "torn"))
    return is_data ? HALF_AND_DIE : DIE_AFTER;
  if (g_str_equal (kind, "short"))
    return is_data ? HALF : PASS;
  failing = g_str_has_suffix (kind, "-on") ? G_MAXUINT : g_str_has_suffix (kind, "-5") ? 4 : 0;
  return fail (kind);
}

static Outcome
decide (const char *call, int folder, const char *name, gboolean is_data)
{
  int saved = errno;
  g_autofree char *point = dup_point (call, folder, name);
  g_autofree char *kind = NULL;
  Outcome outcome = PASS;

  if (point == NULL)
    {
      errno = saved;
      return PASS;
    }
  g_mutex_lock (&mutex);
  if (count (&point, &kind))
    {
      note (point);
      outcome = obey (kind, is_data);
    }
  else if (failing > 0)
    {
      failing -= failing != G_MAXUINT;
      outcome = fail (kind);
    }
  g_mutex_unlock (&mutex);
  if (outcome != FAIL)
    errno = saved;
  return outcome;
}

/* After the call: what is on disk now, or not. */
static void
settle (Outcome outcome, int fd, gboolean is_sync)
{
  int saved = errno;
  struct stat info;
  gboolean known = FALSE;

  if (outcome == DIE_AFTER || outcome == HALF_AND_DIE)
    die ();
  if (fd < 0 || control == NULL || getpid () != owner || fstat (fd, &info) != 0
      || !S_ISREG (info.st_mode))
    {
      errno = saved;
      return;
    }
  g_mutex_lock (&mutex);
  for (guint i = 0; i < unsynced->len; i++)
    {
      Unsynced *row = &g_array_index (unsynced, Unsynced, i);

      if (row->inode != info.st_ino)
        continue;
      known = TRUE;
      if (is_sync)
        {
          close (row->fd);
          g_array_remove_index_fast (unsynced, i--);
        }
    }
  if (!is_sync && !known)
    {
      Unsynced row = { info.st_ino, fcntl (fd, F_DUPFD_CLOEXEC, 3) };
      g_autofree char *point = dup_point ("", fd, NULL);

      if (point != NULL)
        g_array_append_val (unsynced, row);
      else
        close (row.fd);
    }
  g_mutex_unlock (&mutex);
  errno = saved;
}

/* The calls ------------------------------------------------------------------------------------ */

#define MODE_OF(flags, mode)                                                                       \
  if (((flags) &O_CREAT) != 0 || ((flags) &O_TMPFILE) == O_TMPFILE)                                \
    {                                                                                              \
      va_list more;                                                                                \
                                                                                                   \
      va_start (more, flags);                                                                      \
      mode = va_arg (more, mode_t);                                                                \
      va_end (more);                                                                               \
    }

static int
open_any (int folder, const char *path, int flags, mode_t mode)
{
  REAL (int, int, const char *, int, ...);
  gboolean creates = (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
  Outcome outcome = creates ? decide ("open", folder, path, FALSE) : PASS;
  int fd;

  FIND_REAL ("openat");
  if (outcome == FAIL)
    return -1;
  fd = real (folder, path, flags, mode);
  settle (outcome, -1, FALSE);
  return fd;
}

#define OPEN(name)                                                                                 \
  int name (const char *path, int flags, ...)                                                      \
  {                                                                                                \
    mode_t mode = 0;                                                                               \
                                                                                                   \
    MODE_OF (flags, mode)                                                                          \
    return open_any (AT_FDCWD, path, flags, mode);                                          \
  }

#define OPENAT(name)                                                                               \
  int name (int folder, const char *path, int flags, ...)                                          \
  {                                                                                                \
    mode_t mode = 0;                                                                               \
                                                                                                   \
    MODE_OF (flags, mode)                                                                          \
    return open_any (folder, path, flags, mode);                                            \
  }

OPEN (open)
OPEN (open64)
OPENAT (openat)
OPENAT (openat64)

/* Of data: half of it is less than all only from two bytes on. */
#define DATA(name, call, parameters, arguments_of, fd, length)                                     \
  ssize_t name parameters                                                                          \
  {                                                                                                \
    REAL (ssize_t, TYPES_##call);                                                                  \
    Outcome outcome = decide (#call, fd, NULL, length > 1);                                        \
    ssize_t done;                                                                                  \
                                                                                                   \
    FIND_REAL (#name);                                                                             \
    if (outcome == FAIL)                                                                           \
      return -1;                                                                                   \
    if (outcome == HALF || outcome == HALF_AND_DIE)                                                \
      length /= 2;                                                                                 \
    done = real arguments_of;                                                                      \
    settle (outcome, fd, FALSE);                                                                   \
    return done;                                                                                   \
  }

#define TYPES_write int, const void *, size_t
#define TYPES_pwrite int, const void *, size_t, off64_t
#define TYPES_copy int, off64_t *, int, off64_t *, size_t, unsigned

DATA (write, write, (int fd, const void *data, size_t length), (fd, data, length), fd, length)
DATA (pwrite, pwrite, (int fd, const void *data, size_t length, off_t at), (fd, data, length, at),
      fd, length)
DATA (pwrite64, pwrite, (int fd, const void *data, size_t length, off64_t at),
      (fd, data, length, at), fd, length)
DATA (copy_file_range, copy,
      (int from, off64_t *from_at, int to, off64_t *to_at, size_t length, unsigned flags),
      (from, from_at, to, to_at, length, flags), to, length)

#define OTHER(name, call, parameters, types, arguments, folder, path, fd, is_sync)                 \
  int name parameters                                                                              \
  {                                                                                                \
    REAL (int, types);                                                                             \
    Outcome outcome = decide (#call, folder, path, FALSE);                                         \
    int result;                                                                                    \
                                                                                                   \
    FIND_REAL (#name);                                                                             \
    if (outcome == FAIL)                                                                           \
      return -1;                                                                                   \
    result = real arguments;                                                                       \
    settle (outcome, fd, is_sync);                                                                 \
    return result;                                                                                 \
  }
#define T(...) __VA_ARGS__

OTHER (fsync, fsync, (int fd), T (int), (fd), fd, NULL, fd, TRUE)
OTHER (fdatasync, fsync, (int fd), T (int), (fd), fd, NULL, fd, TRUE)
OTHER (ftruncate, ftruncate, (int fd, off_t size), T (int, off_t), (fd, size), fd, NULL, fd, FALSE)
OTHER (ftruncate64, ftruncate, (int fd, off64_t size), T (int, off64_t), (fd, size), fd, NULL, fd,
       FALSE)
OTHER (fallocate, fallocate, (int fd, int mode, off_t at, off_t size), T (int, int, off_t, off_t),
       (fd, mode, at, size), fd, NULL, fd, FALSE)
OTHER (fallocate64, fallocate, (int fd, int mode, off64_t at, off64_t size),
       T (int, int, off64_t, off64_t), (fd, mode, at, size), fd, NULL, fd, FALSE)
OTHER (rename, rename, (const char *from, const char *to), T (const char *, const char *),
       (from, to), AT_FDCWD, to, -1, FALSE)
OTHER (renameat, rename, (int from, const char *name, int to, const char *path),
       T (int, const char *, int, const char *), (from, name, to, path), to, path, -1, FALSE)
OTHER (renameat2, rename, (int from, const char *name, int to, const char *path, unsigned flags),
       T (int, const char *, int, const char *, unsigned), (from, name, to, path, flags), to, path,
       -1, FALSE)
OTHER (link, link, (const char *from, const char *to), T (const char *, const char *), (from, to),
       AT_FDCWD, to, -1, FALSE)
OTHER (linkat, link, (int from, const char *name, int to, const char *path, int flags),
       T (int, const char *, int, const char *, int), (from, name, to, path, flags), to, path, -1,
       FALSE)
OTHER (mkdir, mkdir, (const char *path, mode_t mode), T (const char *, mode_t), (path, mode),
       AT_FDCWD, path, -1, FALSE)
OTHER (mkdirat, mkdir, (int folder, const char *path, mode_t mode), T (int, const char *, mode_t),
       (folder, path, mode), folder, path, -1, FALSE)
OTHER (rmdir, unlink, (const char *path), T (const char *), (path), AT_FDCWD, path, -1, FALSE)
OTHER (unlink, unlink, (const char *path), T (const char *), (path), AT_FDCWD, path, -1, FALSE)
OTHER (unlinkat, unlink, (int folder, const char *path, int flags), T (int, const char *, int),
       (folder, path, flags), folder, path, -1, FALSE)
