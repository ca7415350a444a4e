/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The control socket against a daemon that says anything. Input: bits, then what is written.
 * Whatever comes back is one JSON object a line, an answer or an event, no longer than a line may
 * be; and the network is whole afterwards: a client that knows the protocol is answered.
 */
#include "netd-control.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <json-glib/json-glib.h>

#include "frame-lab.h"
#include "fuzz.h"
#include "private-net.h"
#include "test-clock.h"

#define WITH_FD 0x01   /* a descriptor goes with the first byte */
#define WITH_FDS 0x02  /* so do some more */
#define IN_PIECES 0x04 /* of 7 bytes */
#define HANG_UP 0x08   /* without reading anything */
#define SHUT 0x10      /* its end of writing */
#define WAIT 0x20      /* until what has a time limit has reached it */
#define FDS 4
#define TURNS 4
#define PIECE 7
#define WAIT_MS 40000
#define INPUTS_PER_LAB 2000

static FrameLab *lab;
static NetdForwards *forwards;
static NetdControl *control;
static NetdCounters *counters;
static int counters_fd = -1;
static char *directory, *path;
static guint inputs;

static void
open_control (void)
{
  struct sockaddr_un address = { .sun_family = AF_UNIX };
  int listener = socket (AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

  g_strlcpy (address.sun_path, path, sizeof address.sun_path);
  unlink (path);
  g_assert_cmpint (bind (listener, (struct sockaddr *) &address, sizeof address), ==, 0);
  g_assert_cmpint (listen (listener, 16), ==, 0);
  lab = frame_lab_new (NETD_MTU_MIN);
  forwards = netd_forwards_new (lab->network);
  control = netd_control_new (lab->network, forwards, listener, counters_fd);
}

static void
close_control (void)
{
  netd_control_free (control);
  netd_forwards_free (forwards);
  frame_lab_free (lab);
  lab = NULL;
}

static int
connect_client (void)
{
  struct sockaddr_un address = { .sun_family = AF_UNIX };
  int fd = socket (AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

  g_strlcpy (address.sun_path, path, sizeof address.sun_path);
  g_assert_cmpint (connect (fd, (struct sockaddr *) &address, sizeof address), ==, 0);
  frame_lab_turn (lab, TURNS);
  return fd;
}

/* --- Writing --- */

static gssize
write_with_fds (int fd, const guint8 *data, gsize length, guint n_fds)
{
  struct iovec part = { (void *) data, length };
  union
  {
    struct cmsghdr head;
    char space[CMSG_SPACE (FDS * sizeof (int))];
  } space = { 0 };
  struct msghdr head = { .msg_iov = &part, .msg_iovlen = 1 };
  int fds[FDS];
  gssize n;

  for (guint i = 0; i < n_fds; i++)
    fds[i] = memfd_create ("fuzz", MFD_CLOEXEC);
  if (n_fds > 0)
    {
      head.msg_control = &space;
      head.msg_controllen = CMSG_SPACE (n_fds * sizeof (int));
      space.head.cmsg_level = SOL_SOCKET;
      space.head.cmsg_type = SCM_RIGHTS;
      space.head.cmsg_len = CMSG_LEN (n_fds * sizeof (int));
      memcpy (CMSG_DATA (&space.head), fds, n_fds * sizeof (int));
    }
  n = sendmsg (fd, &head, MSG_NOSIGNAL);
  for (guint i = 0; i < n_fds; i++)
    close (fds[i]);
  return n;
}

static void
write_input (int fd, guint bits, const guint8 *data, gsize length)
{
  guint n_fds = (bits & WITH_FDS) != 0 ? FDS : (bits & WITH_FD) != 0 ? 1 : 0;
  gsize at = 0;

  while (at < length)
    {
      gsize piece = (bits & IN_PIECES) != 0 ? MIN (PIECE, length - at) : length - at;
      gssize n = write_with_fds (fd, data + at, piece, at == 0 ? n_fds : 0);

      if (n < 0 && errno != EAGAIN)
        return;
      at += n > 0 ? (gsize) n : 0;
      frame_lab_turn (lab, 1);
    }
}

/* --- Reading --- */

static void
close_received (struct msghdr *head)
{
  for (struct cmsghdr *part = CMSG_FIRSTHDR (head); part != NULL; part = CMSG_NXTHDR (head, part))
    {
      int fds[16];
      gsize n = (part->cmsg_len - CMSG_LEN (0)) / sizeof (int);

      g_assert_cmpint (part->cmsg_type, ==, SCM_RIGHTS);
      memcpy (fds, CMSG_DATA (part), n * sizeof (int));
      for (gsize i = 0; i < n; i++)
        close (fds[i]);
    }
}

static GString *
read_output (int fd)
{
  GString *text = g_string_new (NULL);
  char buffer[16384], space[256];

  for (;;)
    {
      struct iovec part = { buffer, sizeof buffer };
      struct msghdr head = {
        .msg_iov = &part,
        .msg_iovlen = 1,
        .msg_control = space,
        .msg_controllen = sizeof space,
      };
      gssize n = recvmsg (fd, &head, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

      if (n <= 0)
        return text;
      close_received (&head);
      g_string_append_len (text, buffer, n);
      frame_lab_turn (lab, 1);
    }
}

/* Returns how many lines there were. */
static guint
check_output (const GString *text)
{
  g_auto (GStrv) lines = g_strsplit (text->str, "\n", -1);
  guint n = g_strv_length (lines);

  g_assert_cmpuint (strlen (text->str), ==, text->len);
  for (guint i = 0; i + 1 < n; i++)
    {
      g_autoptr (GError) error = NULL;
      g_autoptr (JsonNode) node = json_from_string (lines[i], &error);
      JsonObject *object;

      g_assert_no_error (error);
      g_assert_true (JSON_NODE_HOLDS_OBJECT (node));
      g_assert_cmpuint (strlen (lines[i]), <, NETD_CONTROL_LINE_MAX);
      object = json_node_get_object (node);
      g_assert_true (json_object_has_member (object, i == 0 ? "hello" : "id")
                     || json_object_has_member (object, "event"));
      if (json_object_has_member (object, "id"))
        g_assert_true (json_object_has_member (object, "result")
                       != json_object_has_member (object, "error"));
    }
  return n - 1;
}

/* --- The run --- */

static void
check_whole (void)
{
  static const char request[] = "{\"id\":1,\"method\":\"status\",\"params\":{}}\n";
  g_autoptr (GString) output = NULL;
  int fd = connect_client ();

  g_assert_cmpint (send (fd, request, strlen (request), MSG_NOSIGNAL), ==, strlen (request));
  frame_lab_turn (lab, TURNS);
  output = read_output (fd);
  g_assert_cmpuint (check_output (output), >=, 2);
  g_assert_nonnull (strstr (output->str, "\"result\""));
  close (fd);
  frame_lab_turn (lab, TURNS);
}

int
LLVMFuzzerInitialize (int *argc, char ***argv)
{
  g_autofree char *reason = NULL;
  g_autoptr (GError) error = NULL;

  if (!private_net_enter (&reason))
    {
      g_print ("skipped: %s\n", reason);
      exit (77);
    }
  directory = g_dir_make_tmp ("vmm-fuzz-XXXXXX", &error);
  g_assert_no_error (error);
  path = g_build_filename (directory, "control.sock", NULL);
  counters = netd_counters_new_shared (&counters_fd, &error);
  g_assert_no_error (error);
  return 0;
}

int
LLVMFuzzerTestOneInput (const uint8_t *data, size_t size)
{
  guint bits;
  int fd;

  if (size < 1)
    return 0;
  if (lab == NULL)
    open_control ();
  bits = data[0];
  fd = connect_client ();
  write_input (fd, bits, data + 1, size - 1);
  if ((bits & SHUT) != 0)
    shutdown (fd, SHUT_WR);
  frame_lab_turn (lab, TURNS);
  if ((bits & WAIT) != 0)
    test_clock_advance (WAIT_MS);
  if ((bits & HANG_UP) == 0)
    {
      g_autoptr (GString) output = NULL;

      frame_lab_turn (lab, TURNS);
      output = read_output (fd);
      check_output (output);
    }
  close (fd);
  frame_lab_turn (lab, TURNS);
  check_whole ();
  if (++inputs % INPUTS_PER_LAB == 0)
    close_control ();
  return 0;
}

void
fuzz_finish (void)
{
  if (lab != NULL)
    close_control ();
  munmap (counters, sizeof *counters);
  close (counters_fd);
  unlink (path);
  g_assert_cmpint (rmdir (directory), ==, 0);
  g_free (path);
  g_free (directory);
}
