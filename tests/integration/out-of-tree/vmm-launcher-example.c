/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A launcher as somebody else would write it, outside this tree: child processes through
 * GSubprocess. Built with nothing but what "pkg-config --cflags --libs vmm-interfaces-1" says. */

#include <interfaces/vmm.h>

#define EXAMPLE_TYPE_PROCESS (example_process_get_type ())
G_DECLARE_FINAL_TYPE (ExampleProcess, example_process, EXAMPLE, PROCESS, VmmProcess)

struct _ExampleProcess
{
  VmmProcess parent_instance;

  GSubprocess *child;
};

G_DEFINE_FINAL_TYPE (ExampleProcess, example_process, VMM_TYPE_PROCESS)

#define EXAMPLE_TYPE_LAUNCHER (example_launcher_get_type ())
G_DECLARE_FINAL_TYPE (ExampleLauncher, example_launcher, EXAMPLE, LAUNCHER, GObject)

struct _ExampleLauncher
{
  GObject parent_instance;
};

static void example_launcher_backend_init (VmmBackendInterface *iface);
static void example_launcher_launcher_init (VmmLauncherInterface *iface);

G_DEFINE_FINAL_TYPE_WITH_CODE (ExampleLauncher, example_launcher, G_TYPE_OBJECT,
                               G_IMPLEMENT_INTERFACE (VMM_TYPE_BACKEND,
                                                      example_launcher_backend_init)
                                   G_IMPLEMENT_INTERFACE (VMM_TYPE_LAUNCHER,
                                                          example_launcher_launcher_init))

static gboolean
example_process_send_signal (VmmProcess *process, int signum, GError **error)
{
  g_subprocess_send_signal (EXAMPLE_PROCESS (process)->child, signum);
  return TRUE;
}

static void
example_process_finalize (GObject *object)
{
  g_clear_object (&EXAMPLE_PROCESS (object)->child);
  G_OBJECT_CLASS (example_process_parent_class)->finalize (object);
}

static void
example_process_class_init (ExampleProcessClass *klass)
{
  G_OBJECT_CLASS (klass)->finalize = example_process_finalize;
  VMM_PROCESS_CLASS (klass)->send_signal = example_process_send_signal;
}

static void
example_process_init (ExampleProcess *self)
{
}

static void
ended_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (ExampleProcess) process = user_data;
  VmmExitStatus status;

  if (!g_subprocess_wait_finish (process->child, result, NULL))
    return;
  vmm_exit_status_from_wait (g_subprocess_get_status (process->child), &status);
  vmm_process_exited (VMM_PROCESS (process), &status, NULL);
}

static void
example_launcher_start_async (VmmLauncher *launcher, VmmProcessSpec *spec,
                              GCancellable *cancellable, GAsyncReadyCallback callback,
                              gpointer user_data)
{
  g_autoptr (GTask) task = g_task_new (launcher, cancellable, callback, user_data);
  g_autoptr (ExampleProcess) process = g_object_new (EXAMPLE_TYPE_PROCESS, NULL);
  g_autoptr (GError) error = NULL;

  g_task_set_source_tag (task, example_launcher_start_async);
  process->child
      = g_subprocess_newv (vmm_process_spec_get_argv (spec), G_SUBPROCESS_FLAGS_NONE, &error);
  if (process->child == NULL)
    {
      vmm_error_normalize (&error);
      g_task_return_error (task, g_steal_pointer (&error));
      return;
    }
  g_subprocess_wait_async (process->child, NULL, ended_cb, g_object_ref (process));
  g_task_return_pointer (task, g_steal_pointer (&process), g_object_unref);
}

static GVariant *
example_launcher_describe_host (VmmBackend *backend)
{
  return g_variant_new_parsed ("{'example': <true>}");
}

static void
example_launcher_backend_init (VmmBackendInterface *iface)
{
  iface->describe_host = example_launcher_describe_host;
}

static void
example_launcher_launcher_init (VmmLauncherInterface *iface)
{
  iface->start_async = example_launcher_start_async;
}

static void
example_launcher_class_init (ExampleLauncherClass *klass)
{
}

static void
example_launcher_init (ExampleLauncher *self)
{
}

VMM_PLUGIN_DEFINE (vmm_launcher_example, VMM_LAUNCHER_EXTENSION_POINT, EXAMPLE_TYPE_LAUNCHER,
                   "example", 1)
