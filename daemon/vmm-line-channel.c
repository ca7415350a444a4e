/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Lines over a socket, for the protocols that the daemon speaks with the programs beside a VM.
 *
 * The socket is watched directly, without a stream object and its buffers: there are two of these
 * for each VM, and a thousand VMs' idle ones should cost next to nothing. Bytes are kept only
 * while a line is not complete. One turn of the main loop reads a bounded amount, so that a peer
 * that never stops talking does not keep the others waiting.
 *
 * A peer that has closed its end may have said something before: a failed write therefore closes
 * nothing by itself, the reading side finds the end after the last line.
 */
#include "config.h"

#include "vmm-line-channel.h"

#include <string.h>

#include "vmm-socket-watch.h"

#define READ_SIZE (16 * 1024)
#define READS_PER_TURN 4
#define UNSENT_MAX (1024 * 1024)

struct _VmmLineChannel
{
  GObject parent_instance;

  GSocket *socket;
  gsize line_max;
  GByteArray *partial; /* the beginning of a line */
  GByteArray *unsent;
  VmmSocketWatch *watch;
  gboolean open;
  gboolean broken; /* nothing can be sent any more */
};

enum
{
  SIGNAL_LINE,
  SIGNAL_CLOSED,
  N_SIGNALS
};

static guint signals[N_SIGNALS];

G_DEFINE_FINAL_TYPE (VmmLineChannel, vmm_line_channel, G_TYPE_OBJECT)

void
vmm_line_channel_close (VmmLineChannel *self)
{
  g_return_if_fail (VMM_IS_LINE_CHANNEL (self));

  self->open = FALSE;
  g_clear_pointer (&self->watch, vmm_socket_watch_free);
  g_clear_pointer (&self->partial, g_byte_array_unref);
  g_clear_pointer (&self->unsent, g_byte_array_unref);
  if (self->socket != NULL)
    g_socket_close (self->socket, NULL); /* nothing can be done about a failure */
  g_clear_object (&self->socket);
}

void
vmm_line_channel_fail (VmmLineChannel *self, const char *reason)
{
  g_return_if_fail (VMM_IS_LINE_CHANNEL (self));

  if (!self->open)
    return;
  vmm_line_channel_close (self);
  g_signal_emit (self, signals[SIGNAL_CLOSED], 0, reason);
}

static void
fail_too_long (VmmLineChannel *self)
{
  g_autofree char *reason
      = g_strdup_printf ("a line exceeds %" G_GSIZE_FORMAT " bytes", self->line_max);

  vmm_line_channel_fail (self, reason);
}

static void
deliver (VmmLineChannel *self, char *line, gsize length)
{
  if (length > 0 && line[length - 1] == '\r')
    line[--length] = '\0';
  if (length > 0)
    g_signal_emit (self, signals[SIGNAL_LINE], 0, line, (guint64) length);
}

/* The line that ends at the first byte of the new data's line end. */
static void
complete_line (VmmLineChannel *self, const char *data, gsize length)
{
  g_autoptr (GByteArray) whole = NULL;

  if (self->partial == NULL)
    {
      g_autofree char *line = g_strndup (data, length);

      deliver (self, line, length);
      return;
    }
  /* What the receiver of the line does may close the channel and so drop the buffer. */
  whole = g_steal_pointer (&self->partial);
  g_byte_array_append (whole, (const guint8 *) data, length);
  g_byte_array_append (whole, (const guint8 *) "", 1);
  deliver (self, (char *) whole->data, whole->len - 1);
}

static void
take (VmmLineChannel *self, const char *data, gsize length)
{
  while (self->open && length > 0)
    {
      const char *end = memchr (data, '\n', length);
      gsize size = end != NULL ? (gsize) (end - data) : length;
      gsize held = self->partial != NULL ? self->partial->len : 0;

      if (held + size > self->line_max)
        {
          fail_too_long (self);
          return;
        }
      if (end == NULL)
        {
          if (self->partial == NULL)
            self->partial = g_byte_array_new ();
          g_byte_array_append (self->partial, (const guint8 *) data, size);
          return;
        }
      complete_line (self, data, size);
      data += size + 1;
      length -= size + 1;
    }
}

/* FALSE when there is nothing more to read now. */
static gboolean
read_some (VmmLineChannel *self)
{
  char buffer[READ_SIZE];
  g_autoptr (GError) error = NULL;
  gssize size
      = g_socket_receive_with_blocking (self->socket, buffer, sizeof buffer, FALSE, NULL, &error);

  if (size > 0)
    take (self, buffer, size);
  else if (size == 0)
    vmm_line_channel_fail (self,
                           self->partial != NULL ? "end of file within a line" : "end of file");
  else if (!g_error_matches (error, G_IO_ERROR, G_IO_ERROR_WOULD_BLOCK))
    vmm_line_channel_fail (self, error->message);
  return size == sizeof buffer;
}

/* How much the socket takes now. */
static gsize
send_some (VmmLineChannel *self, const char *data, gsize length)
{
  g_autoptr (GError) error = NULL;
  gssize size = g_socket_send_with_blocking (self->socket, data, length, FALSE, NULL, &error);

  if (size >= 0)
    return size;
  self->broken = !g_error_matches (error, G_IO_ERROR, G_IO_ERROR_WOULD_BLOCK);
  return 0;
}

static void
send_unsent (VmmLineChannel *self)
{
  gsize sent = send_some (self, (const char *) self->unsent->data, self->unsent->len);

  g_byte_array_remove_range (self->unsent, 0, sent);
  if (self->unsent->len > 0 && !self->broken)
    return;
  g_clear_pointer (&self->unsent, g_byte_array_unref);
  vmm_socket_watch_set_writable (self->watch, FALSE);
}

static void
ready_cb (gpointer user_data)
{
  g_autoptr (VmmLineChannel) self = g_object_ref (user_data);

  if (self->unsent != NULL)
    send_unsent (self);
  for (guint i = 0; i < READS_PER_TURN && self->open; i++)
    if (!read_some (self))
      break;
}

static void
keep_unsent (VmmLineChannel *self, const char *data, gsize length)
{
  if (length == 0 || self->broken)
    return;
  if (self->unsent == NULL)
    {
      self->unsent = g_byte_array_new ();
      vmm_socket_watch_set_writable (self->watch, TRUE);
    }
  g_byte_array_append (self->unsent, (const guint8 *) data, length);
}

gboolean
vmm_line_channel_send (VmmLineChannel *self, const char *text, gsize length)
{
  g_autofree char *line = NULL;
  gsize sent = 0;

  g_return_val_if_fail (VMM_IS_LINE_CHANNEL (self), FALSE);

  if (!self->open)
    return FALSE;
  if (self->unsent != NULL && self->unsent->len + length + 1 > UNSENT_MAX)
    {
      vmm_line_channel_fail (self, "the peer does not read");
      return FALSE;
    }
  line = g_malloc (length + 1);
  memcpy (line, text, length);
  line[length] = '\n';
  if (self->unsent == NULL && !self->broken)
    sent = send_some (self, line, length + 1);
  keep_unsent (self, line + sent, length + 1 - sent);
  return TRUE;
}

gboolean
vmm_line_channel_is_open (VmmLineChannel *self)
{
  g_return_val_if_fail (VMM_IS_LINE_CHANNEL (self), FALSE);

  return self->open;
}

static void
vmm_line_channel_dispose (GObject *object)
{
  vmm_line_channel_close (VMM_LINE_CHANNEL (object));
  G_OBJECT_CLASS (vmm_line_channel_parent_class)->dispose (object);
}

static void
vmm_line_channel_class_init (VmmLineChannelClass *class)
{
  G_OBJECT_CLASS (class)->dispose = vmm_line_channel_dispose;

  signals[SIGNAL_LINE]
      = g_signal_new ("line", VMM_TYPE_LINE_CHANNEL, G_SIGNAL_RUN_LAST, 0, NULL, NULL, NULL,
                      G_TYPE_NONE, 2, G_TYPE_STRING | G_SIGNAL_TYPE_STATIC_SCOPE, G_TYPE_UINT64);
  signals[SIGNAL_CLOSED] = g_signal_new ("closed", VMM_TYPE_LINE_CHANNEL, G_SIGNAL_RUN_LAST, 0,
                                         NULL, NULL, NULL, G_TYPE_NONE, 1, G_TYPE_STRING);
}

static void
vmm_line_channel_init (VmmLineChannel *self)
{
}

VmmLineChannel *
vmm_line_channel_new (GSocket *socket, gsize line_max)
{
  VmmLineChannel *self;

  g_return_val_if_fail (G_IS_SOCKET (socket), NULL);

  self = g_object_new (VMM_TYPE_LINE_CHANNEL, NULL);
  self->socket = g_object_ref (socket);
  self->line_max = line_max;
  self->open = TRUE;
  self->watch = vmm_socket_watch_new (g_socket_get_fd (socket), ready_cb, self);
  return self;
}
