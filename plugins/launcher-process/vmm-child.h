/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <sys/types.h>

#include <glib.h>

G_BEGIN_DECLS

/* Whom a child becomes. */
typedef struct
{
  uid_t uid;
  gid_t gid;
  gid_t *groups;
  gsize n_groups;
} VmmChildIdentity;

/* Everything a child needs between fork and exec, laid out before the fork, because nothing may be
 * allocated after it. The descriptors stay the caller's. */
typedef struct
{
  const char *path; /* of the program */
  char **argv;
  char **environment;    /* NAME=value */
  char *listen_pid;      /* room for VMM_CHILD_PID_DIGITS inside environment, or NULL */
  const char *directory; /* NULL for the daemon's own */
  int null_fd;           /* stdin */
  int log_fd;            /* stdout and stderr */
  int *fds;              /* put at 3, 4, ... */
  guint n_fds;
  guint64 soft_nofile; /* soft limit of open files; 0 to leave it */
  gboolean deny_io_uring;
  const VmmChildIdentity *identity; /* NULL to stay who we are */
} VmmChildPlan;

#define VMM_CHILD_PID_DIGITS 20

typedef struct
{
  pid_t pid;
  int pidfd;
  int report_fd; /* ends when the program runs; says why when it could not be started */
} VmmChild;

gboolean vmm_child_fork (VmmChildPlan *plan, VmmChild *child, GError **error);
/* Reads a report: TRUE with *reason NULL when the program runs, with *reason set when it could not
 * be started; FALSE when there is nothing to read yet. */
gboolean vmm_child_read_report (int report_fd, char **reason);
char *vmm_child_error_text (int number);

G_END_DECLS
