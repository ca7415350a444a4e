/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * One VM's plug: the stream to its QEMU, what is queued for it, and what it may cost.
 *
 * Frames are read many at a time into a buffer that all ports of the network share; only a frame
 * that is not complete yet is kept by the port. What goes to the guest gathers in the ring and
 * leaves with one call at the end of the turn. Nothing waits for a peer: a stream that takes no
 * more keeps its queue, and when that is full frames are dropped there and nowhere else.
 *
 * A guest cannot keep netd from the others. The amount read in one turn adapts to the work that was
 * in the last one; and what no window bounds, such as frames that come to nothing, connections to
 * be opened, datagrams that nobody answers, is paid for from an allowance that refills with time:
 * who has spent it is not read until it has refilled, and fills only its own socket. Work is
 * reckoned, not measured: a busy host or a debugger must not make a guest slower than it is.
 */
#include "netd-port.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "netd-gateway.h"
#include "netd-network.h"
#include "netd-offload.h"

#define LENGTH_SIZE 4
#define VLAN_TAG 4

/* Room for some full-sized packets of the engine beside what other guests may send. */
#define RING_SIZE (256 * 1024)
#define RING_SIZE_JUMBO (1024 * 1024)
#define JUMBO_MTU 9000

/* Of the queue's size, in sixteenths. Other guests stop below the point from which on the engine
 * may run again, so that they cannot keep it from running. */
#define GUEST_LIMIT 8
#define RESUME_BELOW 9
#define PAUSE_ABOVE 10

/* So much is written out before the turn ends: a stream that takes it shall not lose a frame
 * because much came at once. */
#define WRITE_ABOVE (64 * 1024)

/* A frame of this size is worth a call of its own, which saves copying it into the queue. */
#define DIRECT_ABOVE (16 * 1024)

/* Bytes of one read. It shrinks when there was much work in them: frames, each at about a
 * microsecond, and what they were charged for. */
#define QUANTUM_MIN (2 * 1024)
#define QUANTUM_FIRST (64 * 1024)
#define WORK_LITTLE 128
#define WORK_MUCH 384

/* Microseconds: some at once, and so many of each millisecond. */
#define ALLOWANCE_MAX 5000
#define ALLOWANCE_PER_MS 75
#define PAUSE_MIN_MS 10
#define PAUSE_MAX_MS 1000
#define DEBT_MAX (ALLOWANCE_PER_MS * PAUSE_MAX_MS)

/* Between a connection and the next one. */
#define DIAL_PAUSE_MS 1000

struct _NetdPort
{
  NetdNetwork *network;
  guint index;
  char *vm_id;
  NetdMac mac;
  guint32 ip;
  gsize frame_max;
  gsize packet_max; /* frame of an IP packet of the MTU */
  NetdCounters counters;
  NetdGateway *gateway;

  NetdOpening *opening; /* while dialling */
  NetdTimer *timer;     /* connected: to read again; else: to dial again */
  int fd;               /* -1: not connected */
  NetdWatch *watch;
  gint64 connected_at;
  gboolean is_resting; /* spent its allowance: not read */
  gboolean is_blocked; /* the stream takes no more: waits to be writable */

  guint8 *rest; /* of an incomplete frame, with its length; NULL when there is none */
  gsize rest_length;
  gsize quantum;
  gint64 allowance;
  gint64 allowance_at;
  guint64 charged; /* ever */

  NetdRing ring;
  gboolean is_dirty;
  gboolean gateway_is_paused;
};

/* --- Counting --- */

void
netd_port_charge (NetdPort *self, guint microseconds)
{
  gint64 now = netd_loop_now (netd_network_get_loop (self->network));

  self->allowance
      = MIN (ALLOWANCE_MAX, self->allowance + (now - self->allowance_at) * ALLOWANCE_PER_MS);
  self->allowance_at = now;
  self->allowance = MAX (self->allowance - microseconds, -DEBT_MAX);
  self->charged += microseconds;
}

void
netd_port_count (NetdPort *self, NetdCount count, guint64 n)
{
  self->counters.counts[count] += n;
  netd_network_get_counters (self->network)->counts[count] += n;
  if (netd_count_is_waste (count))
    netd_port_charge (self, (guint) n * NETD_CHARGE_FRAME);
}

/* --- The stream --- */

static void
update_watch (NetdPort *self)
{
  netd_watch_set_events (self->watch,
                         (self->is_resting ? 0 : EPOLLIN) | (self->is_blocked ? EPOLLOUT : 0));
}

static void
forget_stream (NetdPort *self)
{
  g_clear_pointer (&self->watch, netd_watch_free);
  close (self->fd);
  self->fd = -1;
  netd_timer_stop (self->timer);
  netd_ring_reset (&self->ring);
  g_clear_pointer (&self->rest, g_free);
  self->rest_length = 0;
  self->is_resting = FALSE;
  self->is_blocked = FALSE;
}

static void
resume_gateway (NetdPort *self)
{
  if (!self->gateway_is_paused
      || netd_ring_get_used (&self->ring) > self->ring.size / 16 * RESUME_BELOW)
    return;
  self->gateway_is_paused = FALSE;
  netd_gateway_set_paused (self->gateway, FALSE);
}

/* The stream is over. A new one is dialled, but not in a loop with a peer that keeps ending it. */
static void
end_stream (NetdPort *self, gboolean is_faulty)
{
  gint64 lasted = netd_loop_now (netd_network_get_loop (self->network)) - self->connected_at;

  forget_stream (self);
  netd_gateway_reset (self->gateway);
  self->gateway_is_paused = FALSE;
  netd_timer_start (self->timer, is_faulty ? DIAL_PAUSE_MS : MAX (DIAL_PAUSE_MS - lasted, 0));
  netd_network_port_changed (self->network, self);
}

/* --- From QEMU --- */

/* Hands over the whole frames that begin at @data. Returns how many bytes they were, or -1 when a
 * length cannot be right. */
static gssize
take_frames (NetdPort *self, guint8 *data, gsize length, guint *n_frames)
{
  gsize at = 0;
  guint32 prefix;

  *n_frames = 0;
  while (length - at >= LENGTH_SIZE)
    {
      gsize frame_length;

      memcpy (&prefix, data + at, LENGTH_SIZE);
      frame_length = GUINT32_FROM_BE (prefix);
      if (frame_length < NETD_FRAME_MIN || frame_length > self->frame_max)
        return -1;
      if (frame_length > length - at - LENGTH_SIZE)
        break;
      netd_network_receive (self->network, self, data + at + LENGTH_SIZE, frame_length);
      at += LENGTH_SIZE + frame_length;
      ++*n_frames;
    }
  return at;
}

static void
keep_rest (NetdPort *self, const guint8 *data, gsize length)
{
  if (length == 0)
    {
      g_clear_pointer (&self->rest, g_free);
    }
  else
    {
      if (self->rest == NULL)
        self->rest = g_malloc (LENGTH_SIZE + self->frame_max);
      memcpy (self->rest, data, length);
    }
  self->rest_length = length;
}

static void
adapt_quantum (NetdPort *self, guint64 work, gboolean was_filled, gsize size)
{
  if (work > WORK_MUCH)
    self->quantum = MAX (self->quantum / 2, QUANTUM_MIN);
  else if (work < WORK_LITTLE && was_filled)
    self->quantum = MIN (self->quantum * 2, size);
}

static void
rest_if_spent (NetdPort *self)
{
  gint64 pause;

  if (self->allowance >= 0)
    return;
  netd_port_charge (self, 0); /* time has paid some of it back */
  if (self->allowance >= 0)
    return;
  pause = -self->allowance / ALLOWANCE_PER_MS;
  self->is_resting = TRUE;
  netd_timer_start (self->timer, MAX (pause, PAUSE_MIN_MS));
  update_watch (self);
}

static void
read_stream (NetdPort *self)
{
  gsize size;
  guint8 *buffer = netd_network_get_buffer (self->network, &size);
  gsize wanted = MIN (self->quantum, size - self->rest_length);
  guint64 charged = self->charged;
  gssize n = recv (self->fd, buffer + self->rest_length, wanted, MSG_DONTWAIT);
  gssize taken;
  guint n_frames;

  if (n < 0 && (errno == EAGAIN || errno == EINTR))
    return;
  if (n <= 0)
    {
      end_stream (self, FALSE);
      return;
    }
  if (self->rest_length > 0)
    memcpy (buffer, self->rest, self->rest_length);
  taken = take_frames (self, buffer, self->rest_length + n, &n_frames);
  netd_network_batch_done (self->network, self);
  netd_port_count (self, NETD_COUNT_BYTES_RECEIVED, n);
  netd_port_count (self, NETD_COUNT_FRAMES_RECEIVED, n_frames);
  if (taken < 0)
    {
      netd_port_count (self, NETD_COUNT_BAD_LENGTH, 1);
      end_stream (self, TRUE);
      return;
    }
  keep_rest (self, buffer + taken, self->rest_length + n - taken);
  adapt_quantum (self, n_frames + self->charged - charged, (gsize) n == wanted, size);
  rest_if_spent (self);
}

/* --- To QEMU --- */

static void
count_sent (NetdPort *self, gsize length)
{
  netd_port_count (self, NETD_COUNT_BYTES_SENT, LENGTH_SIZE + length);
  netd_port_count (self, NETD_COUNT_FRAMES_SENT, 1);
}

static gboolean
push (NetdPort *self, const struct iovec *parts, guint n_parts)
{
  gsize length = 0;

  if (!netd_ring_push (&self->ring, parts, n_parts))
    return FALSE;
  for (guint i = 0; i < n_parts; i++)
    length += parts[i].iov_len;
  count_sent (self, length);
  return TRUE;
}

typedef struct
{
  NetdPort *port;
  gboolean is_whole;
} Cutting;

static gboolean
push_segment (const struct iovec *parts, guint n_parts, gpointer user_data)
{
  Cutting *cutting = user_data;

  cutting->is_whole = push (cutting->port, parts, n_parts);
  return cutting->is_whole;
}

/* Writes out what is queued and the frame behind it; what the stream does not take is queued.
 * FALSE: the frame is as if nothing had been tried. */
static gboolean
send_directly (NetdPort *self, const guint8 *frame, gsize length)
{
  guint32 prefix = GUINT32_TO_BE ((guint32) length);
  gsize queued = netd_ring_get_used (&self->ring);
  struct iovec pieces[4];
  guint n_queued = netd_ring_peek (&self->ring, pieces);
  struct msghdr message = { .msg_iov = pieces, .msg_iovlen = n_queued + 2 };
  gssize n;

  pieces[n_queued] = (struct iovec){ &prefix, LENGTH_SIZE };
  pieces[n_queued + 1] = (struct iovec){ (guint8 *) frame, length };
  n = sendmsg (self->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (n <= 0)
    return FALSE;
  netd_ring_consume (&self->ring, MIN ((gsize) n, queued));
  if ((gsize) n <= queued)
    return FALSE;
  /* Without memory for the rest of a frame nothing that makes sense can follow it: the stream is
   * over, which its reader will see. */
  if (!netd_ring_push_rest (&self->ring, pieces + n_queued, 2, (gsize) n - queued))
    shutdown (self->fd, SHUT_RDWR);
  count_sent (self, length);
  return TRUE;
}

static gboolean
push_frame (NetdPort *self, const guint8 *frame, gsize length)
{
  struct iovec part = { (void *) frame, length };
  Cutting cutting = { .port = self };
  guint mtu = netd_network_get_plan (self->network)->mtu;

  if (length > self->packet_max)
    return netd_segment (frame, length, mtu, push_segment, &cutting) > 0 && cutting.is_whole;
  if (length > DIRECT_ABOVE && !self->is_blocked && send_directly (self, frame, length))
    return TRUE;
  return push (self, &part, 1);
}

/* FALSE: the stream is broken. */
static gboolean
write_queue (NetdPort *self)
{
  struct iovec pieces[2];
  struct msghdr message = { .msg_iov = pieces };
  gssize n;

  message.msg_iovlen = netd_ring_peek (&self->ring, pieces);
  if (message.msg_iovlen == 0)
    return TRUE;
  n = sendmsg (self->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (n < 0 && errno != EAGAIN && errno != EINTR && errno != ENOBUFS && errno != ENOMEM)
    return FALSE;
  if (n > 0)
    netd_ring_consume (&self->ring, n);
  self->is_blocked = netd_ring_get_used (&self->ring) > 0;
  update_watch (self);
  return TRUE;
}

static void
write_stream (NetdPort *self)
{
  if (write_queue (self))
    resume_gateway (self);
  else
    end_stream (self, FALSE);
}

void
netd_port_flush (NetdPort *self)
{
  if (self->fd >= 0 && !self->is_blocked)
    write_stream (self);
}

gboolean
netd_port_send (NetdPort *self, const guint8 *frame, gsize length, NetdOrigin origin)
{
  NetdCapture *capture = netd_network_get_capture (self->network);
  gsize sixteenth = self->ring.size / 16;
  gboolean fits;

  /* Nobody is there: that is no loss worth counting. */
  if (self->fd < 0)
    return FALSE;
  /* What comes from a guest was captured when it came in. */
  if (capture != NULL && origin == NETD_ORIGIN_GATEWAY)
    netd_capture_frame (capture, frame, length);
  netd_network_mark_dirty (self->network, self);
  /* A broken stream is seen to at the end of the turn: much else may be at work on this frame. */
  if (netd_ring_get_used (&self->ring) > WRITE_ABOVE && !self->is_blocked)
    write_queue (self);
  fits = (origin == NETD_ORIGIN_GATEWAY
          || netd_ring_get_used (&self->ring) <= sixteenth * GUEST_LIMIT)
         && push_frame (self, frame, length);
  if (!fits)
    netd_port_count (self, NETD_COUNT_QUEUE_FULL, 1);
  if (!self->gateway_is_paused && netd_ring_get_used (&self->ring) > sixteenth * PAUSE_ABOVE)
    {
      self->gateway_is_paused = TRUE;
      netd_gateway_set_paused (self->gateway, TRUE);
    }
  return fits;
}

static void
stream_cb (guint32 events, gpointer user_data)
{
  NetdPort *self = user_data;

  if (self->is_blocked && (events & (EPOLLOUT | EPOLLERR | EPOLLHUP)) != 0)
    write_stream (self);
  if (self->fd >= 0 && !self->is_resting && (events & (EPOLLIN | EPOLLERR | EPOLLHUP)) != 0)
    read_stream (self);
}

/* --- Connecting --- */

static void
opened_cb (int fd, gpointer user_data)
{
  NetdPort *self = user_data;

  self->opening = NULL;
  netd_port_set_stream (self, fd);
}

void
netd_port_dial (NetdPort *self)
{
  NetdOpener *opener = netd_network_get_opener (self->network);

  if (opener != NULL && self->opening == NULL && self->fd < 0)
    self->opening = netd_opener_open (opener, NETD_OPEN_PORT, self->vm_id, opened_cb, self);
}

void
netd_port_set_stream (NetdPort *self, int fd)
{
  NetdLoop *loop = netd_network_get_loop (self->network);

  g_clear_pointer (&self->opening, netd_opening_cancel);
  if (self->fd >= 0)
    forget_stream (self);
  netd_timer_stop (self->timer);
  self->fd = fd;
  self->quantum = QUANTUM_FIRST;
  self->connected_at = netd_loop_now (loop);
  self->watch = netd_watch_new (loop, fd, EPOLLIN, stream_cb, self);
  resume_gateway (self);
  netd_network_port_changed (self->network, self);
}

static void
timer_cb (gpointer user_data)
{
  NetdPort *self = user_data;

  if (self->fd < 0)
    {
      netd_port_dial (self);
      return;
    }
  self->is_resting = FALSE;
  update_watch (self);
}

/* --- The port --- */

NetdPort *
netd_port_new (NetdNetwork *network, guint index, const char *vm_id, const NetdMac *mac,
               guint32 ip)
{
  NetdLoop *loop = netd_network_get_loop (network);
  guint mtu = netd_network_get_plan (network)->mtu;
  NetdPort *self = g_new0 (NetdPort, 1);

  self->network = network;
  self->index = index;
  self->vm_id = g_strdup (vm_id);
  self->mac = *mac;
  self->ip = ip;
  self->packet_max = mtu + NETD_ETHERNET_HEADER;
  self->frame_max = MIN (self->packet_max + VLAN_TAG, NETD_FRAME_MAX);
  self->fd = -1;
  self->timer = netd_timer_new (loop, timer_cb, self);
  self->allowance = ALLOWANCE_MAX;
  self->allowance_at = netd_loop_now (loop);
  netd_counters_init (&self->counters);
  netd_ring_init (&self->ring, mtu > JUMBO_MTU ? RING_SIZE_JUMBO : RING_SIZE);
  self->gateway = netd_gateway_new (network, self);
  return self;
}

/* Whoever hears of the lost stream still finds a whole port. */
void
netd_port_free (NetdPort *self)
{
  g_clear_pointer (&self->opening, netd_opening_cancel);
  if (self->fd >= 0)
    {
      forget_stream (self);
      netd_network_port_changed (self->network, self);
    }
  g_clear_pointer (&self->gateway, netd_gateway_free);
  netd_timer_free (self->timer);
  netd_ring_clear (&self->ring);
  g_free (self->vm_id);
  g_free (self);
}

const char *
netd_port_get_vm_id (NetdPort *self)
{
  return self->vm_id;
}

const NetdMac *
netd_port_get_mac (NetdPort *self)
{
  return &self->mac;
}

guint32
netd_port_get_ip (NetdPort *self)
{
  return self->ip;
}

guint
netd_port_get_index (NetdPort *self)
{
  return self->index;
}

gboolean
netd_port_is_connected (NetdPort *self)
{
  return self->fd >= 0;
}

NetdCounters *
netd_port_get_counters (NetdPort *self)
{
  return &self->counters;
}

NetdGateway *
netd_port_get_gateway (NetdPort *self)
{
  return self->gateway;
}

gboolean
netd_port_set_dirty (NetdPort *self, gboolean is_dirty)
{
  gboolean was_dirty = self->is_dirty;

  self->is_dirty = is_dirty;
  return was_dirty;
}
