/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <glib.h>

G_BEGIN_DECLS

/* What a command may write, stdout and stderr together. */
#define VMM_SSH_OUTPUT_MAX (8 * 1024 * 1024)
/* Linux takes no longer argument than this, and the guest's shell gets the command as one. */
#define VMM_SSH_COMMAND_MAX (128 * 1024 - 1)

/* How far a connection has come. */
typedef enum
{
  VMM_SSH_GREETING,
  VMM_SSH_AUTHENTICATION,
  VMM_SSH_SESSION,
  VMM_SSH_COMMAND,
  VMM_SSH_RUNNING, /* the guest's sshd has taken the command: from here on it may last */
} VmmSshStage;

/* Plain data, so that a thread can have it for itself. */
typedef struct
{
  char *vm_id;
  char *host; /* the guest's address, for messages */
  guint16 port;
  char *key_path;
  char *pin_path;
  char *command;  /* for the guest's shell */
  guint setup_ms; /* from the connection to a command that runs: for who calls */
  guint chatter_max;
  guint64 received_max;
  int fd;        /* a connected stream socket; vmm_ssh_session_run() takes it */
  int stage;     /* VmmSshStage; atomic, for others to read */
} VmmSshJob;

/* Texts are valid UTF-8: what is not, and NUL, is U+FFFD. */
typedef struct
{
  char *stdout_text;
  char *stderr_text;
  gint64 exit_code; /* 128 and the signal's number if one ended the command */
} VmmSshResult;

/* With the limits that are right for a guest. */
VmmSshJob *vmm_ssh_job_new (void);
void vmm_ssh_job_free (VmmSshJob *job);
void vmm_ssh_result_free (VmmSshResult *result);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (VmmSshResult, vmm_ssh_result_free)

/* Runs the command as root over ssh. Blocks for as long as the guest likes: who wants to end it
 * shuts the socket down. Touches nothing but its job and the files named there. */
VmmSshResult *vmm_ssh_session_run (VmmSshJob *job, GError **error);
/* "ssh 10.0.0.2:22: " and the like: what a failure at this stage begins with. */
char *vmm_ssh_job_describe_stage (const VmmSshJob *job, VmmSshStage stage);

G_END_DECLS
