/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A network of three guests whose other ends are held by a test. The warden is played here as well:
 * it gives out one end of a socket pair for whatever netd wants opened, and remembers whose it was.
 */
#include "frame-lab.h"

#include <errno.h>
#include <malloc.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "test-clock.h"

#define AWAIT_SECONDS 60
#define AWAIT_STEP_MS 5
#define READ_SIZE 65536

/* Of the address sanitizer, when it is there: it has its own heap, which mallinfo() does not see.
 */
size_t __sanitizer_get_current_allocated_bytes (void) __attribute__ ((weak));

gsize
frame_lab_get_allocated (void)
{
  struct mallinfo2 info;

  if (__sanitizer_get_current_allocated_bytes != NULL)
    return __sanitizer_get_current_allocated_bytes ();
  info = mallinfo2 ();
  return info.uordblks + info.hblkhd;
}

static void
make_pair (int fds[2], int type)
{
  g_assert_cmpint (socketpair (AF_UNIX, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), ==, 0);
}

static void
answer_opening (FrameLab *lab, guint32 token, int fd)
{
  NetdOpenMessage message = { .type = NETD_MESSAGE_OPENED, .token = token };
  struct iovec part = { &message, sizeof message };
  union
  {
    struct cmsghdr head;
    char space[CMSG_SPACE (sizeof (int))];
  } control = { 0 };
  struct msghdr head = {
    .msg_iov = &part,
    .msg_iovlen = 1,
    .msg_control = &control,
    .msg_controllen = sizeof control,
  };

  control.head.cmsg_level = SOL_SOCKET;
  control.head.cmsg_type = SCM_RIGHTS;
  control.head.cmsg_len = CMSG_LEN (sizeof (int));
  memcpy (CMSG_DATA (&control.head), &fd, sizeof fd);
  g_assert_cmpint (sendmsg (lab->warden, &head, 0), ==, sizeof message);
  close (fd);
}

static guint
find_guest (FrameLab *lab, const char *vm_id)
{
  guint i = 0;

  while (i < LAB_GUESTS && strncmp (lab->guests[i].vm_id, vm_id, NETD_VM_ID_MAX) != 0)
    i++;
  return i;
}

static void
serve_opening (FrameLab *lab, const NetdOpenMessage *message)
{
  guint guest = find_guest (lab, message->vm);
  int fds[2];

  /* Of a VM that somebody else has attached: nobody listens there. */
  if (guest == LAB_GUESTS)
    return;
  make_pair (fds, SOCK_STREAM);
  answer_opening (lab, message->token, fds[0]);
  if (message->kind == NETD_OPEN_PORT)
    {
      if (lab->guests[guest].fd >= 0)
        close (lab->guests[guest].fd);
      lab->guests[guest].fd = fds[1];
      g_byte_array_set_size (lab->guests[guest].inbox, 0);
      return;
    }
  g_assert_cmpuint (message->kind, ==, NETD_OPEN_METADATA);
  lab->guests[guest].n_metadata++;
  if (lab->metadata_func != NULL)
    lab->metadata_func (lab, guest, fds[1], lab->user_data);
  else
    close (fds[1]);
}

static void
serve_warden (FrameLab *lab)
{
  NetdOpenMessage message;

  while (recv (lab->warden, &message, sizeof message, 0) > 0)
    {
      if (message.type == NETD_MESSAGE_OPEN)
        serve_opening (lab, &message);
    }
}

static void
note_sequence (LabGuest *guest, const guint8 *frame, gsize length)
{
  if (length >= NETD_ETHERNET_HEADER + 40 && kit_get16 (frame + 12) == NETD_ETHERTYPE_IPV4
      && frame[NETD_ETHERNET_HEADER + 9] == KIT_PROTOCOL_TCP)
    guest->last_tcp_sequence = kit_get32 (frame + NETD_ETHERNET_HEADER + 20 + 4);
}

/* Every frame that netd sends must be one, framed as it should be. */
static void
take_frames (FrameLab *lab, guint index)
{
  LabGuest *guest = &lab->guests[index];
  gsize at = 0;

  while (guest->inbox->len - at >= 4)
    {
      gsize length = kit_get32 (guest->inbox->data + at);

      g_assert_cmpuint (length, >=, NETD_FRAME_MIN);
      g_assert_cmpuint (length, <=, lab->plan.mtu + NETD_ETHERNET_HEADER);
      if (guest->inbox->len - at < 4 + length)
        break;
      guest->n_received++;
      note_sequence (guest, guest->inbox->data + at + 4, length);
      if (lab->frame_func != NULL)
        lab->frame_func (lab, index, guest->inbox->data + at + 4, length, lab->user_data);
      at += 4 + length;
    }
  if (at > 0)
    g_byte_array_remove_range (guest->inbox, 0, (guint) at);
}

static void
read_guest (FrameLab *lab, guint index)
{
  LabGuest *guest = &lab->guests[index];
  guint8 buffer[READ_SIZE];
  gssize n;

  while (guest->fd >= 0 && !guest->is_stuck && (n = read (guest->fd, buffer, sizeof buffer)) > 0)
    {
      g_byte_array_append (guest->inbox, buffer, (guint) n);
      take_frames (lab, index);
    }
}

void
frame_lab_turn (FrameLab *lab, guint turns)
{
  for (guint i = 0; i < turns; i++)
    {
      netd_loop_turn (lab->loop, 0);
      serve_warden (lab);
      for (guint j = 0; j < LAB_GUESTS; j++)
        read_guest (lab, j);
    }
}

void
frame_lab_await (FrameLab *lab, gboolean (*done) (FrameLab *lab, gpointer data), gpointer data)
{
  gint64 deadline = g_get_real_time () + AWAIT_SECONDS * G_USEC_PER_SEC;

  while (!done (lab, data) && g_get_real_time () < deadline)
    {
      test_clock_advance (AWAIT_STEP_MS);
      frame_lab_turn (lab, 1);
    }
  g_assert_true (done (lab, data));
}

static gboolean
is_connected (FrameLab *lab, gpointer data)
{
  guint guest = GPOINTER_TO_UINT (data);

  return lab->guests[guest].fd >= 0 && netd_port_is_connected (lab->guests[guest].port);
}

void
frame_lab_reconnect (FrameLab *lab, guint guest)
{
  int fds[2];

  if (netd_port_is_connected (lab->guests[guest].port))
    return;
  if (lab->guests[guest].fd >= 0)
    close (lab->guests[guest].fd);
  make_pair (fds, SOCK_STREAM);
  lab->guests[guest].fd = fds[1];
  g_byte_array_set_size (lab->guests[guest].inbox, 0);
  netd_port_set_stream (lab->guests[guest].port, fds[0]);
}

static void
make_plan (NetdPlan *plan, guint mtu)
{
  plan->name = g_strdup ("lab");
  plan->network = LAB_NETWORK;
  plan->netmask = NETD_IP (255, 255, 255, 0);
  plan->gateway = LAB_GATEWAY;
  plan->broadcast = LAB_BROADCAST;
  plan->host_alias = LAB_ALIAS;
  plan->gateway_mac = KIT_MAC (0x02, 0xf4, 10, 77, 0, 1);
  plan->search_domain = g_strdup ("lab.example");
  plan->mtu = mtu;
  plan->enable_imds = TRUE;
}

static void
add_guest (FrameLab *lab, guint index)
{
  g_autoptr (GError) error = NULL;
  LabGuest *guest = &lab->guests[index];

  guest->vm_id = g_strdup_printf ("vm-%u", index);
  guest->self.ip = LAB_GATEWAY + 1 + index;
  guest->self.mac = KIT_MAC (0x02, 0xf4, 10, 77, 0, (guint8) (2 + index));
  guest->fd = -1;
  guest->inbox = g_byte_array_new ();
  guest->port
      = netd_network_attach (lab->network, guest->vm_id, &guest->self.mac, guest->self.ip, &error);
  g_assert_no_error (error);
  frame_lab_await (lab, is_connected, GUINT_TO_POINTER (index));
}

FrameLab *
frame_lab_new (guint mtu)
{
  FrameLab *lab = g_new0 (FrameLab, 1);
  int fds[2];

  make_plan (&lab->plan, mtu);
  make_pair (fds, SOCK_SEQPACKET);
  lab->gateway.mac = lab->plan.gateway_mac;
  lab->gateway.ip = lab->plan.gateway;
  for (guint i = 0; i < LAB_GUESTS; i++)
    lab->guests[i].fd = -1;
  netd_counters_init (&lab->counters);
  lab->loop = netd_loop_new ();
  lab->network = netd_network_new (lab->loop, &lab->plan, &lab->counters);
  lab->opener = netd_opener_new (lab->loop, fds[0], NULL, NULL);
  lab->warden = fds[1];
  lab->directory = g_dir_make_tmp ("vmm-lab-XXXXXX", NULL);
  g_assert_nonnull (lab->directory);
  netd_network_set_socket_directory (lab->network, lab->directory);
  netd_network_set_opener (lab->network, lab->opener);
  netd_network_set_resolvers (lab->network, "nameserver 198.51.100.1\n");
  for (guint i = 0; i < LAB_GUESTS; i++)
    add_guest (lab, i);
  return lab;
}

void
frame_lab_free (FrameLab *lab)
{
  netd_network_free (lab->network);
  netd_opener_free (lab->opener);
  netd_loop_free (lab->loop);
  close (lab->warden);
  for (guint i = 0; i < LAB_GUESTS; i++)
    {
      if (lab->guests[i].fd >= 0)
        close (lab->guests[i].fd);
      g_byte_array_unref (lab->guests[i].inbox);
      g_free (lab->guests[i].vm_id);
    }
  /* Nothing is left in it. */
  g_assert_cmpint (rmdir (lab->directory), ==, 0);
  g_free (lab->directory);
  netd_plan_clear (&lab->plan);
  g_free (lab);
}

void
frame_lab_send (FrameLab *lab, guint guest, const KitFrame *frame)
{
  gint64 deadline = g_get_real_time () + AWAIT_SECONDS * G_USEC_PER_SEC;
  guint8 message[4 + KIT_FRAME_MAX];
  gsize length = 4 + frame->length, sent = 0;

  kit_set32 (message, (guint32) frame->length);
  memcpy (message + 4, frame->data, frame->length);
  while (sent < length)
    {
      gssize n = send (lab->guests[guest].fd, message + sent, length - sent, MSG_NOSIGNAL);

      g_assert_true (n > 0 || errno == EAGAIN);
      g_assert_cmpint (g_get_real_time (), <, deadline);
      sent += n > 0 ? (gsize) n : 0;
      if (sent == length)
        break;
      test_clock_advance (AWAIT_STEP_MS);
      frame_lab_turn (lab, 1);
    }
}

void
frame_lab_inject (FrameLab *lab, guint guest, const guint8 *frame, gsize length)
{
  g_autofree guint8 *copy = g_memdup2 (frame, length);

  netd_network_receive (lab->network, lab->guests[guest].port, copy, length);
}

guint64
frame_lab_count (FrameLab *lab, guint guest, NetdCount count)
{
  return netd_port_get_counters (lab->guests[guest].port)->counts[count];
}
