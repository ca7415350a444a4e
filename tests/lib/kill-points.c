/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Linked into a daemon of the tests: ends it at a point that is told while it runs.
 *
 * A point is a moment of a step of a sequence, SEQUENCE/STEP/before, after or undo, or one of a call
 * that other operations consist of, call/NAME/before or after; "#2" follows when it is passed for the
 * second time. The file VMM_KILL_POINTS has a command a line: "list" (each point that is passed is
 * added to the file with ".seen" behind its name), "kill POINT", "fail POINT". A new file begins to
 * count anew; without one nothing happens. */

#include "config.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "vmm-coalesced-file.h"
#include "vmm-file.h"
#include "vmm-machine-private.h"
#include "vmm-network-table-private.h"
#include "vmm-qmp.h"
#include "vmm-sequence.h"

static const char *path;
static GHashTable *passed; /* how often, by name */
static struct stat current; /* file of commands */

static void
note (const char *name)
{
  g_autofree char *seen = g_strconcat (path, ".seen", NULL);
  g_autofree char *line = g_strconcat (name, "\n", NULL);
  int fd = open (seen, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);

  g_assert_cmpint (fd, >=, 0);
  g_assert_cmpint (write (fd, line, strlen (line)), ==, (gssize) strlen (line));
  close (fd);
}

/* Whether it is to fail there. */
static gboolean
obey (const char *commands, const char *name)
{
  g_auto (GStrv) lines = g_strsplit (commands, "\n", -1);
  gboolean fails = FALSE;

  for (guint i = 0; lines[i] != NULL; i++)
    {
      if (g_str_equal (lines[i], "list"))
        note (name);
      if (g_str_has_prefix (lines[i], "kill ") && g_str_equal (lines[i] + 5, name))
        kill (getpid (), SIGKILL);
      if (g_str_has_prefix (lines[i], "fail ") && g_str_equal (lines[i] + 5, name))
        fails = TRUE;
    }
  return fails;
}

static gboolean
pass (const char *first, const char *second, const char *moment)
{
  g_autofree char *commands = NULL;
  g_autofree char *plain = g_strdup_printf ("%s/%s/%s", first, second, moment);
  g_autofree char *name = NULL;
  struct stat info;
  guint n;

  if (path == NULL || stat (path, &info) != 0
      || !g_file_get_contents (path, &commands, NULL, NULL))
    return FALSE;
  if (info.st_ino != current.st_ino || info.st_mtim.tv_sec != current.st_mtim.tv_sec
      || info.st_mtim.tv_nsec != current.st_mtim.tv_nsec)
    g_hash_table_remove_all (passed);
  current = info;
  n = GPOINTER_TO_UINT (g_hash_table_lookup (passed, plain)) + 1;
  name = n == 1 ? g_strdup (plain) : g_strdup_printf ("%s#%u", plain, n);
  g_hash_table_insert (passed, g_steal_pointer (&plain), GUINT_TO_POINTER (n));
  return obey (commands, name);
}

static GError *
hook_cb (gpointer subject, const char *sequence, const char *step, VmmSequenceMoment moment,
         gpointer user_data)
{
  static const char *const moments[] = { "before", "after", "undo" };

  if (pass (sequence, step, moments[moment]))
    return vmm_error_new (VMM_ERROR_INTERNAL, "told to fail in %s", step);
  return NULL;
}

__attribute__ ((constructor)) static void
install (void)
{
  path = g_getenv ("VMM_KILL_POINTS");
  passed = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL);
  vmm_sequence_set_hook (hook_cb, NULL);
}

/* The calls. The linker gives us each, and its own name to go on with. */

#define ASYNC(function, name, parameters, arguments)                                               \
  void __real_##function##_async parameters;                                                       \
  void __wrap_##function##_async parameters;                                                       \
  void __wrap_##function##_async parameters                                                        \
  {                                                                                                \
    pass ("call", name, "before");                                                                 \
    __real_##function##_async arguments;                                                           \
  }

#define FINISH(type, bad, discard, function, name, parameters, arguments)                          \
  type __real_##function##_finish parameters;                                                      \
  type __wrap_##function##_finish parameters;                                                      \
  type __wrap_##function##_finish parameters                                                       \
  {                                                                                                \
    type answer = __real_##function##_finish arguments;                                            \
                                                                                                   \
    if (pass ("call", name, "after") && answer != bad)                                             \
      {                                                                                            \
        discard (answer);                                                                          \
        answer = bad;                                                                              \
        vmm_set_error (error, VMM_ERROR_INTERNAL, "told to fail in " name);                        \
      }                                                                                            \
    return answer;                                                                                 \
  }

ASYNC (vmm_coalesced_file_save, "save",
       (VmmCoalescedFile * self, GAsyncReadyCallback callback, gpointer user_data),
       (self, callback, user_data))
FINISH (gboolean, FALSE, (void), vmm_coalesced_file_save, "save",
        (VmmCoalescedFile * self, GAsyncResult *result, GError **error), (self, result, error))
ASYNC (vmm_file_remove_tree, "remove-tree",
       (const char *folder, const char *last, GCancellable *cancellable,
        GAsyncReadyCallback callback, gpointer user_data),
       (folder, last, cancellable, callback, user_data))
FINISH (gboolean, FALSE, (void), vmm_file_remove_tree, "remove-tree",
        (GAsyncResult * result, GError **error), (result, error))
ASYNC (vmm_network_table_open, "network-open",
       (VmmNetworkTable * self, VmmNetworkEntry *entry, GCancellable *cancellable,
        GAsyncReadyCallback callback, gpointer user_data),
       (self, entry, cancellable, callback, user_data))
FINISH (gboolean, FALSE, (void), vmm_network_table_open, "network-open",
        (VmmNetworkTable * self, GAsyncResult *result, GError **error), (self, result, error))
ASYNC (vmm_network_close, "network-close",
       (VmmNetwork * self, gboolean keep, GCancellable *cancellable, GAsyncReadyCallback callback,
        gpointer user_data),
       (self, keep, cancellable, callback, user_data))
FINISH (gboolean, FALSE, (void), vmm_network_close, "network-close",
        (VmmNetwork * self, GAsyncResult *result, GError **error), (self, result, error))
ASYNC (vmm_process_stop, "end",
       (VmmProcess * self, guint grace_ms, GCancellable *cancellable, GAsyncReadyCallback callback,
        gpointer user_data),
       (self, grace_ms, cancellable, callback, user_data))
FINISH (gboolean, FALSE, (void), vmm_process_stop, "end",
        (VmmProcess * self, GAsyncResult *result, GError **error), (self, result, error))
ASYNC (vmm_qmp_execute, "qmp",
       (VmmQmp * self, const char *command, JsonObject *more, guint limit_ms,
        GCancellable *cancellable, GAsyncReadyCallback callback, gpointer user_data),
       (self, command, more, limit_ms, cancellable, callback, user_data))
FINISH (JsonNode *, NULL, json_node_unref, vmm_qmp_execute, "qmp",
        (VmmQmp * self, GAsyncResult *result, GError **error), (self, result, error))

gboolean __real_vmm_machine_handle_event (VmmMachine *self, VmmMachineEvent event,
                                          const char *detail, GError **error);
gboolean __wrap_vmm_machine_handle_event (VmmMachine *self, VmmMachineEvent event,
                                          const char *detail, GError **error);
gboolean
__wrap_vmm_machine_handle_event (VmmMachine *self, VmmMachineEvent event, const char *detail,
                                 GError **error)
{
  gboolean handled;

  pass ("call", "event", "before");
  handled = __real_vmm_machine_handle_event (self, event, detail, error);
  pass ("call", "event", "after");
  return handled;
}
