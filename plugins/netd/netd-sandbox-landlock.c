/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Landlock: what the two halves of netd may do with files, whatever their account may. It is a
 * second wall behind the system call filter and the private root, and in the warden, which does
 * open files, the one that keeps it to its few folders.
 *
 * Kernels differ in what they know. All that the running one knows is denied, and then the little
 * that is needed is allowed. Without Landlock the other walls have to do.
 */
#include "netd-sandbox-private.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Rights that came after the first version, and the version that brought them. */
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

/* From version 6 on: what is outside of the domain cannot be reached. */
#define VERSION_WITH_SCOPES 6
#define SCOPE_ABSTRACT_SOCKETS (G_GUINT64_CONSTANT (1) << 0)
#define SCOPE_SIGNALS (G_GUINT64_CONSTANT (1) << 1)

/* The kernel's attributes; older headers end after the first. */
typedef struct
{
  guint64 files;
  guint64 network;
  guint64 scopes;
} Attributes;

static int
get_version (void)
{
  int version
      = (int) syscall (SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);

  if (version <= 0)
    g_message ("this kernel has no Landlock (%s): the sandbox has one wall less",
               g_strerror (errno));
  return version;
}

/* Returns the rule set's descriptor. */
static int
deny_all (int version, guint64 scopes)
{
  Attributes attributes = { .files = FIRST_RIGHTS };
  gsize size = sizeof attributes.files;

  for (guint i = 0; i < G_N_ELEMENTS (later_rights); i++)
    if (version >= later_rights[i].version)
      attributes.files |= later_rights[i].right;
  if (version >= VERSION_WITH_SCOPES)
    {
      attributes.scopes = scopes;
      size = sizeof attributes;
    }
  return (int) syscall (SYS_landlock_create_ruleset, &attributes, size, 0);
}

/* A folder that is not there needs no rule. */
static gboolean
allow_below (int rules, const char *directory, guint64 rights, GError **error)
{
  struct landlock_path_beneath_attr rule = {
    .allowed_access = rights,
    .parent_fd = open (directory, O_PATH | O_DIRECTORY | O_CLOEXEC),
  };
  long result;

  if (rule.parent_fd < 0)
    return errno == ENOENT || errno == EACCES || errno == ENOTDIR
           || netd_sandbox_fail (error, directory);
  result = syscall (SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &rule, 0);
  close (rule.parent_fd);
  return result == 0 || netd_sandbox_fail (error, "add a Landlock rule");
}

static gboolean
confine (const char *const *directories, guint64 rights, guint64 scopes, GError **error)
{
  int version = get_version ();
  gboolean done;
  int rules;

  if (version <= 0)
    return TRUE;
  rules = deny_all (version, scopes);
  if (rules < 0)
    return netd_sandbox_fail (error, "make a Landlock rule set");
  done = TRUE;
  for (guint i = 0; done && directories[i] != NULL; i++)
    done = allow_below (rules, directories[i], rights, error);
  if (done && syscall (SYS_landlock_restrict_self, rules, 0) < 0)
    done = netd_sandbox_fail (error, "enter Landlock");
  close (rules);
  return done;
}

gboolean
netd_landlock_confine_switch (GError **error)
{
  static const char *const root[] = { "/", NULL };

  return confine (root, LANDLOCK_ACCESS_FS_MAKE_SOCK | LANDLOCK_ACCESS_FS_REMOVE_FILE,
                  SCOPE_ABSTRACT_SOCKETS | SCOPE_SIGNALS, error);
}

gboolean
netd_landlock_confine_warden (const char *const *directories, GError **error)
{
  return confine (directories, LANDLOCK_ACCESS_FS_READ_FILE,
                  SCOPE_ABSTRACT_SOCKETS | SCOPE_SIGNALS, error);
}
