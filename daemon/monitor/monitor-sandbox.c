/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The monitor reads what a guest writes. Should a guest ever break it, what it gets is the folder
 * of its own VM and nothing to start programs or reach others with.
 */
#include "monitor-sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <linux/landlock.h>

#include "monitor-log.h"

#define DESCRIPTORS_MAX 128
#define FILE_SIZE_MAX (64 * 1024 * 1024)

/* Rights that came after the first version of Landlock, and the version that brought them. */
static const struct
{
  int version;
  guint64 right;
} later_rights[] = {
  { 2, G_GUINT64_CONSTANT (1) << 13 }, /* linking and renaming across folders */
  { 3, G_GUINT64_CONSTANT (1) << 14 }, /* truncating */
  { 5, G_GUINT64_CONSTANT (1) << 15 }, /* ioctl on devices */
};
#define FIRST_RIGHTS ((LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1)
#define TRUNCATE (G_GUINT64_CONSTANT (1) << 14)

#define VERSION_WITH_NETWORK 4
#define NETWORK_RIGHTS (G_GUINT64_CONSTANT (3)) /* TCP: to bind and to connect */
#define VERSION_WITH_SCOPES 6
#define SCOPES (G_GUINT64_CONSTANT (3)) /* abstract sockets and signals */

/* The kernel's attributes; older headers end after the first. */
typedef struct
{
  guint64 files;
  guint64 network;
  guint64 scopes;
} Attributes;

gboolean
monitor_sandbox_fail (GError **error, const char *what)
{
  int code = errno;

  g_set_error (error, G_FILE_ERROR, (int) g_file_error_from_errno (code), "sandbox: %s: %s", what,
               g_strerror (code));
  return FALSE;
}

gboolean
monitor_sandbox_begin (GError **error)
{
  static const struct
  {
    int resource;
    rlim_t limit;
  } limits[] = {
    { RLIMIT_CORE, 0 }, /* it would have the console in it */
    { RLIMIT_NOFILE, DESCRIPTORS_MAX },
    { RLIMIT_FSIZE, FILE_SIZE_MAX },
    { RLIMIT_MEMLOCK, 0 },
    { RLIMIT_MSGQUEUE, 0 },
  };

  for (guint i = 0; i < G_N_ELEMENTS (limits); i++)
    {
      struct rlimit limit;

      if (getrlimit (limits[i].resource, &limit) < 0)
        return monitor_sandbox_fail (error, "read a limit");
      limit.rlim_cur = limit.rlim_max = MIN (limit.rlim_max, limits[i].limit);
      if (setrlimit (limits[i].resource, &limit) < 0)
        return monitor_sandbox_fail (error, "set a limit");
    }
  if (prctl (PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
    return monitor_sandbox_fail (error, "give up new privileges");
  return TRUE;
}

static int
make_rules (int version)
{
  Attributes attributes = { .files = FIRST_RIGHTS };
  gsize size = sizeof attributes.files;

  for (guint i = 0; i < G_N_ELEMENTS (later_rights); i++)
    if (version >= later_rights[i].version)
      attributes.files |= later_rights[i].right;
  if (version >= VERSION_WITH_NETWORK)
    {
      attributes.network = NETWORK_RIGHTS;
      size = G_STRUCT_OFFSET (Attributes, scopes);
    }
  if (version >= VERSION_WITH_SCOPES)
    {
      attributes.scopes = SCOPES;
      size = sizeof attributes;
    }
  return (int) syscall (SYS_landlock_create_ruleset, &attributes, size, 0);
}

static gboolean
allow_directory (int rules, int version)
{
  struct landlock_path_beneath_attr rule = {
    .allowed_access = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE
                      | LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_REMOVE_FILE
                      | LANDLOCK_ACCESS_FS_READ_DIR,
    .parent_fd = open (".", O_PATH | O_DIRECTORY | O_CLOEXEC),
  };
  gboolean done;

  if (version >= 3)
    rule.allowed_access |= TRUNCATE;
  done = rule.parent_fd >= 0
         && syscall (SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) == 0;
  if (rule.parent_fd >= 0)
    close (rule.parent_fd);
  return done;
}

gboolean
monitor_sandbox_restrict_files (GError **error)
{
  int version
      = (int) syscall (SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
  gboolean done;
  int rules;

  if (version <= 0)
    {
      monitor_log ("this kernel has no Landlock (%s): the sandbox has one wall less",
                   g_strerror (errno));
      return TRUE;
    }
  rules = make_rules (version);
  if (rules < 0)
    return monitor_sandbox_fail (error, "make Landlock rules");
  done = allow_directory (rules, version) && syscall (SYS_landlock_restrict_self, rules, 0) == 0;
  if (!done)
    monitor_sandbox_fail (error, "enter Landlock");
  close (rules);
  return done;
}
