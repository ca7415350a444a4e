/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The fake networks. Ports and forwards are entries of tables that live as long as the test
 * program, because a network's own process outlives the daemon. Nothing carries a packet. */

#include "fake-backends-private.h"

#include <sys/socket.h>
#include <unistd.h>

#define TEST_TYPE_FAKE_NETWORK (test_fake_network_get_type ())
G_DECLARE_FINAL_TYPE (TestFakeNetwork, test_fake_network, TEST, FAKE_NETWORK, VmmNetwork)

struct _TestFakeNetwork
{
  VmmNetwork parent_instance;

  char *name;
  guint mtu;
};

G_DEFINE_FINAL_TYPE (TestFakeNetwork, test_fake_network, VMM_TYPE_NETWORK)

struct _TestFakeNetworkBackend
{
  GObject parent_instance;
};

static void network_backend_backend_init (VmmBackendInterface *iface);
static void network_backend_init (VmmNetworkBackendInterface *iface);

G_DEFINE_FINAL_TYPE_WITH_CODE (TestFakeNetworkBackend, test_fake_network_backend, G_TYPE_OBJECT,
                               G_IMPLEMENT_INTERFACE (VMM_TYPE_BACKEND,
                                                      network_backend_backend_init)
                                   G_IMPLEMENT_INTERFACE (VMM_TYPE_NETWORK_BACKEND,
                                                          network_backend_init))

/* Reference counted. */
typedef struct
{
  char *vm_id;
  char *network;
  char *mac;
  char *socket_path;
  char *metadata_path;
} Port;

typedef struct
{
  char *vm_id;
  guint host_port;
} Forward;

/* The task data of detach, dial, forward and unforward. */
typedef struct
{
  char *vm_id;
  char *forward_id;
  guint host_port;
} Call;

/* The task data of open. */
typedef struct
{
  char *name;
  guint mtu;
} Opening;

static GHashTable *ports;    /* vm id → Port */
static GHashTable *forwards; /* id → Forward */
static GHashTable *networks; /* name → TestFakeNetwork, not owned */
static GQueue dialed = G_QUEUE_INIT;

static void
port_clear (gpointer data)
{
  Port *port = data;

  g_free (port->vm_id);
  g_free (port->network);
  g_free (port->mac);
  g_free (port->socket_path);
  g_free (port->metadata_path);
}

static void
port_unref (gpointer data)
{
  g_rc_box_release_full (data, port_clear);
}

static void
forward_free (gpointer data)
{
  Forward *forward = data;

  g_free (forward->vm_id);
  g_free (forward);
}

static void
call_free (gpointer data)
{
  Call *call = data;

  g_free (call->vm_id);
  g_free (call->forward_id);
  g_free (call);
}

static void
ensure (void)
{
  if (ports != NULL)
    return;
  ports = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, port_unref);
  forwards = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, forward_free);
  networks = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL);
}

static gboolean
is_of_vm (gpointer key, gpointer value, gpointer user_data)
{
  return g_str_equal (((Forward *) value)->vm_id, user_data);
}

static gboolean
is_of_network (gpointer key, gpointer value, gpointer user_data)
{
  if (!g_str_equal (((Port *) value)->network, user_data))
    return FALSE;
  g_hash_table_foreach_remove (forwards, is_of_vm, key);
  return TRUE;
}

static gboolean
return_unattached (GTask *task, const char *vm_id)
{
  if (g_hash_table_contains (ports, vm_id))
    return FALSE;
  g_task_return_error (task,
                       vmm_error_new (VMM_ERROR_NOT_FOUND, "vm \"%s\" is not attached", vm_id));
  return TRUE;
}

static GTask *
new_task (VmmNetwork *network, const char *vm_id, const char *forward_id, gpointer tag,
          GCancellable *cancellable, GAsyncReadyCallback callback, gpointer user_data)
{
  GTask *task = g_task_new (network, cancellable, callback, user_data);
  Call *call = g_new0 (Call, 1);

  call->vm_id = g_strdup (vm_id);
  call->forward_id = g_strdup (forward_id);
  g_task_set_source_tag (task, tag);
  g_task_set_task_data (task, call, call_free);
  return task;
}

static void
attach (GTask *task, gboolean lie)
{
  Port *port = g_task_get_task_data (task);
  g_auto (GStrv) parts = g_strsplit (port->socket_path != NULL ? port->socket_path : "", ",", -1);
  g_autofree char *path = g_strjoinv (",,", parts);
  g_autofree char *netdev
      = g_strdup_printf ("stream,id=net0,server=on,addr.type=unix,addr.path=%s", path);
  g_autofree char *device = g_strdup_printf ("virtio-net-pci,netdev=net0,mac=%s",
                                             lie ? "02:00:00:00:00:00" : port->mac);
  const char *arguments[] = { "-netdev", netdev, "-device", device, NULL };
  VmmAttachment *attachment = vmm_attachment_new (arguments);

  vmm_attachment_add_device (attachment, TEST_FAKE_NETWORK_DEVICE);
  g_hash_table_insert (ports, g_strdup (port->vm_id), g_rc_box_acquire (port));
  g_task_return_pointer (task, attachment, (GDestroyNotify) vmm_attachment_unref);
}

static void
test_fake_network_attach_async (VmmNetwork *network, const VmmNetworkPort *port,
                                GCancellable *cancellable, GAsyncReadyCallback callback,
                                gpointer user_data)
{
  g_autoptr (GTask) task = g_task_new (network, cancellable, callback, user_data);
  Port *copy = g_rc_box_new0 (Port);

  copy->vm_id = g_strdup (port->vm_id);
  copy->network = g_strdup (TEST_FAKE_NETWORK (network)->name);
  copy->mac = g_strdup (port->mac);
  copy->socket_path = g_strdup (port->socket_path);
  copy->metadata_path = g_strdup (port->metadata_path);
  g_task_set_source_tag (task, test_fake_network_attach_async);
  g_task_set_task_data (task, copy, port_unref);
  test_fake_run ("network.attach", port->vm_id, task, attach);
}

static void
detach (GTask *task, gboolean lie)
{
  Call *call = g_task_get_task_data (task);

  if (!lie)
    {
      if (return_unattached (task, call->vm_id))
        return;
      g_hash_table_foreach_remove (forwards, is_of_vm, call->vm_id);
      g_hash_table_remove (ports, call->vm_id);
    }
  g_task_return_boolean (task, TRUE);
}

static void
test_fake_network_detach_async (VmmNetwork *network, const char *vm_id, GCancellable *cancellable,
                                GAsyncReadyCallback callback, gpointer user_data)
{
  g_autoptr (GTask) task = new_task (network, vm_id, NULL, test_fake_network_detach_async,
                                     cancellable, callback, user_data);

  test_fake_run ("network.detach", vm_id, task, detach);
}

static GIOStream *
stream_of_fd (int fd)
{
  g_autoptr (GSocket) socket = g_socket_new_from_fd (fd, NULL);

  return G_IO_STREAM (g_socket_connection_factory_create_connection (socket));
}

static void
dial (GTask *task, gboolean lie)
{
  Call *call = g_task_get_task_data (task);
  int fds[2];

  if (return_unattached (task, call->vm_id))
    return;
  g_assert_cmpint (socketpair (AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), ==, 0);
  if (lie)
    close (fds[1]);
  else
    g_queue_push_tail (&dialed, stream_of_fd (fds[1]));
  g_task_return_pointer (task, stream_of_fd (fds[0]), g_object_unref);
}

static void
test_fake_network_dial_async (VmmNetwork *network, const char *vm_id, const char *ip, guint16 port,
                              GCancellable *cancellable, GAsyncReadyCallback callback,
                              gpointer user_data)
{
  g_autoptr (GTask) task = new_task (network, vm_id, NULL, test_fake_network_dial_async,
                                     cancellable, callback, user_data);

  test_fake_run ("network.dial", vm_id, task, dial);
}

static guint
pick_port (void)
{
  g_autoptr (GSocketListener) listener = NULL;

  if (test_fakes.forward_port != 0)
    return test_fakes.forward_port;
  listener = g_socket_listener_new ();
  return g_socket_listener_add_any_inet_port (listener, NULL, NULL);
}

static gboolean
has_host_port (gpointer key, gpointer value, gpointer user_data)
{
  return ((Forward *) value)->host_port == GPOINTER_TO_UINT (user_data);
}

static void
forward (GTask *task, gboolean lie)
{
  Call *call = g_task_get_task_data (task);
  Forward *made;

  if (return_unattached (task, call->vm_id))
    return;
  if (call->host_port == 0)
    call->host_port = pick_port ();
  if (g_hash_table_find (forwards, has_host_port, GUINT_TO_POINTER (call->host_port)) != NULL)
    {
      g_task_return_error (
          task, vmm_error_new (VMM_ERROR_CONFLICT, "host port %u is in use", call->host_port));
      return;
    }

  made = g_new0 (Forward, 1);
  made->vm_id = g_strdup (call->vm_id);
  made->host_port = call->host_port;
  g_hash_table_insert (forwards, g_strdup (call->forward_id), made);
  g_task_return_int (task, lie ? 1 : (gssize) call->host_port);
}

static void
test_fake_network_forward_async (VmmNetwork *network, const VmmForwardSpec *spec,
                                 GCancellable *cancellable, GAsyncReadyCallback callback,
                                 gpointer user_data)
{
  g_autoptr (GTask) task
      = new_task (network, spec->vm_id, spec->id, test_fake_network_forward_async, cancellable,
                  callback, user_data);
  Call *call = g_task_get_task_data (task);

  call->host_port = spec->host_port;
  test_fake_run ("network.forward", spec->vm_id, task, forward);
}

static void
unforward (GTask *task, gboolean lie)
{
  Call *call = g_task_get_task_data (task);

  if (!lie && !g_hash_table_remove (forwards, call->forward_id))
    {
      g_task_return_error (task,
                           vmm_error_new (VMM_ERROR_NOT_FOUND, "forward \"%s\"", call->forward_id));
      return;
    }
  g_task_return_boolean (task, TRUE);
}

static void
test_fake_network_unforward_async (VmmNetwork *network, const char *forward_id,
                                   GCancellable *cancellable, GAsyncReadyCallback callback,
                                   gpointer user_data)
{
  g_autoptr (GTask) task = new_task (network, NULL, forward_id, test_fake_network_unforward_async,
                                     cancellable, callback, user_data);

  test_fake_run ("network.unforward", forward_id, task, unforward);
}

static gboolean
test_fake_network_get_counters (VmmNetwork *network, VmmNetworkCounters *counters)
{
  *counters = test_fakes.counters;
  return TRUE;
}

static void
test_fake_network_keep_only (VmmNetwork *network, const char *const *vm_ids,
                             const char *const *forward_ids)
{
  g_autofree char *vms = g_strjoinv (",", (char **) vm_ids);
  g_autofree char *forward_list = g_strjoinv (",", (char **) forward_ids);
  g_autofree char *subject = g_strdup_printf ("%s/%s", vms, forward_list);

  test_fake_log ("network.keep-only", subject);
}

static void
close_network (GTask *task, gboolean lie)
{
  TestFakeNetwork *self = g_task_get_source_object (task);
  gboolean keep_running = GPOINTER_TO_INT (g_task_get_task_data (task));

  if (!lie && g_hash_table_lookup (networks, self->name) == self)
    {
      g_hash_table_remove (networks, self->name);
      if (!keep_running)
        g_hash_table_foreach_remove (ports, is_of_network, self->name);
    }
  g_task_return_boolean (task, TRUE);
}

static void
test_fake_network_close_async (VmmNetwork *network, gboolean keep_running,
                               GCancellable *cancellable, GAsyncReadyCallback callback,
                               gpointer user_data)
{
  TestFakeNetwork *self = TEST_FAKE_NETWORK (network);
  g_autoptr (GTask) task = g_task_new (self, cancellable, callback, user_data);

  g_task_set_source_tag (task, test_fake_network_close_async);
  g_task_set_task_data (task, GINT_TO_POINTER (keep_running), NULL);
  test_fake_run ("network.close", self->name, task, close_network);
}

static void
test_fake_network_finalize (GObject *object)
{
  TestFakeNetwork *self = TEST_FAKE_NETWORK (object);

  if (g_hash_table_lookup (networks, self->name) == self)
    g_hash_table_remove (networks, self->name);
  g_free (self->name);
  G_OBJECT_CLASS (test_fake_network_parent_class)->finalize (object);
}

static void
test_fake_network_class_init (TestFakeNetworkClass *klass)
{
  VmmNetworkClass *network_class = VMM_NETWORK_CLASS (klass);

  G_OBJECT_CLASS (klass)->finalize = test_fake_network_finalize;
  network_class->attach_async = test_fake_network_attach_async;
  network_class->detach_async = test_fake_network_detach_async;
  network_class->dial_async = test_fake_network_dial_async;
  network_class->forward_async = test_fake_network_forward_async;
  network_class->unforward_async = test_fake_network_unforward_async;
  network_class->get_counters = test_fake_network_get_counters;
  network_class->close_async = test_fake_network_close_async;
  network_class->keep_only = test_fake_network_keep_only;
}

static void
test_fake_network_init (TestFakeNetwork *self)
{
}

static void
opening_free (gpointer data)
{
  Opening *opening = data;

  g_free (opening->name);
  g_free (opening);
}

static void
open_network (GTask *task, gboolean lie)
{
  const Opening *opening = g_task_get_task_data (task);
  TestFakeNetwork *network = g_object_new (TEST_TYPE_FAKE_NETWORK, NULL);

  network->name = g_strdup (opening->name);
  network->mtu = opening->mtu;
  g_hash_table_insert (networks, g_strdup (opening->name), network);
  g_task_return_pointer (task, network, g_object_unref);
}

static void
test_fake_network_backend_open_async (VmmNetworkBackend *backend, const VmmNetworkSpec *spec,
                                      VmmLauncher *launcher, GCancellable *cancellable,
                                      GAsyncReadyCallback callback, gpointer user_data)
{
  g_autoptr (GTask) task = g_task_new (backend, cancellable, callback, user_data);
  Opening *opening = g_new0 (Opening, 1);

  ensure ();
  opening->name = g_strdup (spec->name);
  opening->mtu = spec->mtu;
  g_task_set_source_tag (task, test_fake_network_backend_open_async);
  g_task_set_task_data (task, opening, opening_free);
  test_fake_run ("network.open", spec->name, task, open_network);
}

static gboolean
test_fake_network_backend_is_available (VmmBackend *backend, char **reason)
{
  return test_fake_is_available (1, reason);
}

static void
network_backend_backend_init (VmmBackendInterface *iface)
{
  iface->is_available = test_fake_network_backend_is_available;
}

static void
network_backend_init (VmmNetworkBackendInterface *iface)
{
  iface->open_async = test_fake_network_backend_open_async;
}

static void
test_fake_network_backend_class_init (TestFakeNetworkBackendClass *klass)
{
}

static void
test_fake_network_backend_init (TestFakeNetworkBackend *self)
{
}

void
test_fake_network_reset (void)
{
  ensure ();
  g_hash_table_remove_all (ports);
  g_hash_table_remove_all (forwards);
  g_queue_clear_full (&dialed, g_object_unref);
}

VmmNetwork *
test_fakes_get_network (const char *name)
{
  ensure ();
  return g_hash_table_lookup (networks, name);
}

guint
test_fakes_get_network_mtu (const char *name)
{
  TestFakeNetwork *network = TEST_FAKE_NETWORK (test_fakes_get_network (name));

  return network != NULL ? network->mtu : 0;
}

gboolean
test_fakes_is_attached (const char *vm_id)
{
  ensure ();
  return g_hash_table_contains (ports, vm_id);
}

guint
test_fakes_get_n_ports (void)
{
  ensure ();
  return g_hash_table_size (ports);
}

guint
test_fakes_get_n_forwards (void)
{
  ensure ();
  return g_hash_table_size (forwards);
}

const char *
test_fakes_get_metadata_path (const char *vm_id)
{
  Port *port;

  ensure ();
  port = g_hash_table_lookup (ports, vm_id);
  return port != NULL ? port->metadata_path : NULL;
}

GIOStream *
test_fakes_take_dialed (void)
{
  return g_queue_pop_head (&dialed);
}
