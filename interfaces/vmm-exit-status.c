/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* How a process ended: a plain value and its text.
 *
 * Clients match the texts, so they are the same for every launcher: "exit status 3",
 * "signal: killed", "signal: aborted (core dumped)", "exit status unknown: why".
 */

#include "vmm-process.h"

#include <string.h>
#include <sys/wait.h>

/* Fixed names: strsignal() depends on the locale and on the C library. */
static const char *const signal_names[] = {
  [1] = "hangup",
  [2] = "interrupt",
  [3] = "quit",
  [4] = "illegal instruction",
  [5] = "trace/breakpoint trap",
  [6] = "aborted",
  [7] = "bus error",
  [8] = "floating point exception",
  [9] = "killed",
  [10] = "user defined signal 1",
  [11] = "segmentation fault",
  [12] = "user defined signal 2",
  [13] = "broken pipe",
  [14] = "alarm clock",
  [15] = "terminated",
};

static VmmExitStatus *
exit_status_copy (VmmExitStatus *self)
{
  VmmExitStatus *copy = g_new (VmmExitStatus, 1);

  *copy = *self;
  return copy;
}

G_DEFINE_BOXED_TYPE (VmmExitStatus, vmm_exit_status, exit_status_copy, g_free)

/**
 * vmm_exit_status_to_text:
 * @status: how a process ended
 * @why_unknown: (nullable): why the status could not be learnt; only read when it is not known
 *
 * The text for people and for `lastError`.
 *
 * Returns: (transfer full): the text
 */
char *
vmm_exit_status_to_text (const VmmExitStatus *status, const char *why_unknown)
{
  const char *dumped;

  g_return_val_if_fail (status != NULL, NULL);

  if (!status->known)
    return g_strdup_printf ("exit status unknown: %s",
                            why_unknown != NULL ? why_unknown : "no reason given");
  if (status->signal == 0)
    return g_strdup_printf ("exit status %d", status->code);

  dumped = status->core_dumped ? " (core dumped)" : "";
  if (status->signal > 0 && status->signal < (int) G_N_ELEMENTS (signal_names))
    return g_strdup_printf ("signal: %s%s", signal_names[status->signal], dumped);
  return g_strdup_printf ("signal: signal %d%s", status->signal, dumped);
}

/**
 * vmm_exit_status_is_success:
 * @status: how a process ended
 *
 * Whether it is known to have exited with code 0.
 *
 * Returns: %TRUE when it has
 */
gboolean
vmm_exit_status_is_success (const VmmExitStatus *status)
{
  g_return_val_if_fail (status != NULL, FALSE);

  return status->known && status->signal == 0 && status->code == 0;
}

/**
 * vmm_exit_status_from_wait:
 * @wait_status: what waitpid() gave
 * @status: (out caller-allocates): the same as a value
 *
 * Takes a wait status apart. One that is neither an exit nor a signal is not known.
 */
void
vmm_exit_status_from_wait (int wait_status, VmmExitStatus *status)
{
  g_return_if_fail (status != NULL);

  memset (status, 0, sizeof *status);
  status->code = -1;
  if (WIFEXITED (wait_status))
    {
      status->known = TRUE;
      status->code = WEXITSTATUS (wait_status);
    }
  else if (WIFSIGNALED (wait_status))
    {
      status->known = TRUE;
      status->signal = WTERMSIG (wait_status);
      status->core_dumped = WCOREDUMP (wait_status) != 0;
    }
}
