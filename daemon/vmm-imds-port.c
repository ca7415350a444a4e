/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The metadata service of one VM.
 *
 * Limits are per VM, so that a guest that wants more than its share has less for itself and takes
 * nothing from others. Past a limit nothing is accepted: what connects waits in the kernel, at no
 * cost, until there is room again. What is read of a request, and how long that may take, is
 * bounded in vmm-http-connection.c. */

#include "config.h"

#include "vmm-imds-port.h"

#include "vmm-account.h"
#include "vmm-http-listener.h"
#include "vmm-imds-bucket.h"
#include "vmm-imds-keys.h"
#include "vmm-imds-routes.h"

#define SOCKET_NAME "metadata.sock"

struct _VmmImdsPort
{
  GObject parent_instance;

  VmmImdsShared *shared;
  VmmMachine *machine;
  gulong transition_id;
  guint boot;
  VmmHttpListener *listener;
  GHashTable *connections; /* set of VmmHttpConnection */
  VmmImdsBucket bucket;
  guint rest_id;
  gsize held;
  guint works[VMM_IMDS_N_WORKS];
};

enum
{
  IDLE,
  N_SIGNALS
};
static guint signals[N_SIGNALS];

G_DEFINE_FINAL_TYPE (VmmImdsPort, vmm_imds_port, G_TYPE_OBJECT)

VmmImdsShared *
vmm_imds_shared_ref (VmmImdsShared *self)
{
  return g_rc_box_acquire (self);
}

static void
shared_clear (gpointer data)
{
  VmmImdsShared *self = data;

  vmm_imds_disk_unref (self->disk);
  g_object_unref (self->service);
}

void
vmm_imds_shared_unref (VmmImdsShared *self)
{
  g_rc_box_release_full (self, shared_clear);
}

VmmMachine *
vmm_imds_port_get_machine (VmmImdsPort *self)
{
  return self->machine;
}

VmmImdsShared *
vmm_imds_port_get_shared (VmmImdsPort *self)
{
  return self->shared;
}

gboolean
vmm_imds_port_is_served (VmmImdsPort *self)
{
  VmmMachineState state = vmm_machine_get_state (self->machine);

  return state != VMM_MACHINE_DELETING && state != VMM_MACHINE_GONE;
}

guint
vmm_imds_port_get_boot (VmmImdsPort *self)
{
  return self->boot;
}

gboolean
vmm_imds_port_begin (VmmImdsPort *self, VmmImdsWork work)
{
  static const guint limits[VMM_IMDS_N_WORKS] = {
    [VMM_IMDS_TRANSFER] = VMM_IMDS_MAX_TRANSFERS,
    [VMM_IMDS_JUDGEMENT] = VMM_IMDS_MAX_JUDGEMENTS,
    [VMM_IMDS_UPLOAD] = VMM_IMDS_MAX_UPLOADS,
  };

  if (self->works[work] >= limits[work])
    return FALSE;
  self->works[work]++;
  return TRUE;
}

void
vmm_imds_port_end (VmmImdsPort *self, VmmImdsWork work)
{
  g_return_if_fail (self->works[work] > 0);

  self->works[work]--;
}

gboolean
vmm_imds_port_is_idle (VmmImdsPort *self)
{
  return g_hash_table_size (self->connections) == 0;
}

/* Accepting ----------------------------------------------------------------------------------- */

static void pace (VmmImdsPort *self);

static gboolean
rested_cb (gpointer user_data)
{
  VmmImdsPort *self = user_data;

  self->rest_id = 0;
  pace (self);
  return G_SOURCE_REMOVE;
}

/* Whether the next connection may come now. */
static void
pace (VmmImdsPort *self)
{
  guint wait = vmm_imds_bucket_get_wait_ms (&self->bucket, g_get_monotonic_time ());

  if (self->listener == NULL)
    return;
  if (wait > 0 && self->rest_id == 0)
    self->rest_id = g_timeout_add (wait, rested_cb, self);
  vmm_http_listener_set_resting (self->listener,
                                 wait > 0
                                     || g_hash_table_size (self->connections)
                                            >= VMM_IMDS_MAX_CONNECTIONS);
}

static GError *
check_head (VmmHttpConnection *connection, const VmmHttpHead *head, gpointer user_data)
{
  VmmImdsPort *self = user_data;
  g_auto (GStrv) chosen = NULL;
  const VmmImdsRow *row = vmm_imds_keys_match (head->path, &chosen);
  gboolean is_upload = row != NULL && g_str_equal (row->method, head->method);

  vmm_http_connection_set_max_body (
      connection, is_upload && vmm_imds_port_is_served (self) ? row->max_body : 0);
  return NULL;
}

static void
take_request (VmmHttpConnection *connection, VmmHttpExchange *stream, gpointer user_data)
{
  VmmImdsPort *self = user_data;
  g_autoptr (VmmImdsExchange) exchange
      = vmm_imds_exchange_new (connection, stream, self->shared->disk);
  double cost
      = 1 + (double) g_bytes_get_size (vmm_imds_exchange_get_body (exchange)) / VMM_IMDS_BODY_PIECE;

  vmm_imds_serve (self, exchange,
                  vmm_imds_bucket_take (&self->bucket, cost, g_get_monotonic_time ()));
}

static void
release_request (VmmHttpConnection *connection, gpointer user_data)
{
}

static gboolean
hold_bytes (VmmHttpConnection *connection, gssize change, gpointer user_data)
{
  VmmImdsPort *self = user_data;

  if (change > 0
      && (self->held + (gsize) change > VMM_IMDS_MAX_HELD
          || self->shared->held + (gsize) change > VMM_IMDS_MAX_HELD_BY_ALL))
    return FALSE;
  self->held += (gsize) change;
  self->shared->held += (gsize) change;
  return TRUE;
}

static const VmmHttpConnectionFuncs connection_funcs = {
  check_head,
  take_request,
  release_request,
  hold_bytes,
};

static void
closed_cb (VmmHttpConnection *connection, gpointer user_data)
{
  g_autoptr (VmmImdsPort) self = g_object_ref (VMM_IMDS_PORT (user_data));

  g_hash_table_remove (self->connections, connection);
  pace (self);
  if (vmm_imds_port_is_idle (self))
    g_signal_emit (self, signals[IDLE], 0);
}

static void
accepted_cb (GSocket *socket, gpointer user_data)
{
  VmmImdsPort *self = user_data;
  VmmHttpPeer *peer = g_new0 (VmmHttpPeer, 1);
  g_autoptr (VmmHttpConnection) connection = NULL;

  peer->permitted = TRUE;
  peer->subject = g_strconcat ("vm:", vmm_machine_get_id (self->machine), NULL);
  g_socket_set_blocking (socket, FALSE);
  connection = vmm_http_connection_new (socket, peer, &self->shared->times, 0, &connection_funcs,
                                        self);
  g_hash_table_add (self->connections, g_object_ref (connection));
  g_signal_connect_object (connection, "closed", G_CALLBACK (closed_cb), self, 0);
  vmm_imds_bucket_take (&self->bucket, 1, g_get_monotonic_time ());
  pace (self);
  vmm_http_connection_start (connection);
}

gboolean
vmm_imds_port_listen (VmmImdsPort *self, GError **error)
{
  g_autofree char *path = vmm_machine_dup_path (self->machine, SOCKET_NAME);

  if (self->listener != NULL)
    return TRUE;
  self->listener = vmm_http_listener_new_unix_owned (path, error);
  if (self->listener == NULL)
    return FALSE;
  /* The program of the network connects. */
  if (!vmm_account_let_connect (path, error))
    {
      g_clear_object (&self->listener);
      return FALSE;
    }
  vmm_http_listener_start (self->listener, accepted_cb, self);
  return TRUE;
}

/* Ending -------------------------------------------------------------------------------------- */

static void
stop_listening (VmmImdsPort *self)
{
  g_clear_handle_id (&self->rest_id, g_source_remove);
  if (self->listener != NULL)
    vmm_http_listener_close (self->listener);
  g_clear_object (&self->listener);
}

static GPtrArray *
list_connections (VmmImdsPort *self)
{
  GPtrArray *list = g_ptr_array_new_with_free_func (g_object_unref);
  GHashTableIter iter;
  gpointer connection;

  g_hash_table_iter_init (&iter, self->connections);
  while (g_hash_table_iter_next (&iter, &connection, NULL))
    g_ptr_array_add (list, g_object_ref (connection));
  return list;
}

void
vmm_imds_port_finish (VmmImdsPort *self)
{
  g_autoptr (GPtrArray) connections = list_connections (self);

  stop_listening (self);
  for (guint i = 0; i < connections->len; i++)
    vmm_http_connection_finish (g_ptr_array_index (connections, i));
}

void
vmm_imds_port_abort (VmmImdsPort *self)
{
  g_autoptr (GPtrArray) connections = list_connections (self);

  stop_listening (self);
  for (guint i = 0; i < connections->len; i++)
    vmm_http_connection_abort (g_ptr_array_index (connections, i));
}

static void
transition_cb (VmmMachine *machine, guint event, guint from, guint to, gpointer user_data)
{
  VmmImdsPort *self = user_data;

  if (event == VMM_MACHINE_EVENT_GUEST_RESET || event == VMM_MACHINE_EVENT_BOOT_STARTED
      || event == VMM_MACHINE_EVENT_START_REQUESTED)
    self->boot++;
}

VmmImdsPort *
vmm_imds_port_new (VmmImdsShared *shared, VmmMachine *machine)
{
  VmmImdsPort *self = g_object_new (VMM_TYPE_IMDS_PORT, NULL);

  self->shared = vmm_imds_shared_ref (shared);
  self->machine = g_object_ref (machine);
  vmm_imds_bucket_init (&self->bucket, shared->burst, shared->per_second,
                        g_get_monotonic_time ());
  self->transition_id
      = g_signal_connect (machine, "transition", G_CALLBACK (transition_cb), self);
  return self;
}

static void
vmm_imds_port_dispose (GObject *object)
{
  VmmImdsPort *self = VMM_IMDS_PORT (object);

  vmm_imds_port_abort (self);
  if (self->machine != NULL)
    g_clear_signal_handler (&self->transition_id, self->machine);
  G_OBJECT_CLASS (vmm_imds_port_parent_class)->dispose (object);
}

static void
vmm_imds_port_finalize (GObject *object)
{
  VmmImdsPort *self = VMM_IMDS_PORT (object);

  g_hash_table_unref (self->connections);
  g_object_unref (self->machine);
  vmm_imds_shared_unref (self->shared);
  G_OBJECT_CLASS (vmm_imds_port_parent_class)->finalize (object);
}

static void
vmm_imds_port_class_init (VmmImdsPortClass *klass)
{
  GObjectClass *object_class = G_OBJECT_CLASS (klass);

  object_class->dispose = vmm_imds_port_dispose;
  object_class->finalize = vmm_imds_port_finalize;
  signals[IDLE] = g_signal_new ("idle", VMM_TYPE_IMDS_PORT, G_SIGNAL_RUN_LAST, 0, NULL, NULL, NULL,
                                G_TYPE_NONE, 0);
}

static void
vmm_imds_port_init (VmmImdsPort *self)
{
  self->connections = g_hash_table_new_full (NULL, NULL, g_object_unref, NULL);
}
