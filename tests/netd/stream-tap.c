/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Joins a TAP device of the current network namespace to a stream socket that carries frames the
 * way QEMU's "-netdev stream" does (4-byte big-endian length, frame): the kernel's own TCP/IP in a
 * namespace then stands in for a guest, without emulating a processor.
 *
 * As a server it behaves as QEMU does: one peer at a time, and the next one when that is gone. As a
 * client it ends with its peer. One thread for each direction; what the device has ready is sent
 * with one call, because the tests also measure. Prints "ready" once the device and the socket are
 * there. */

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define FRAME_MAX 131072
#define BUFFER_SIZE (4 * FRAME_MAX)

typedef struct
{
  int tap;
  int batch; /* frames in one write, at most */
  pthread_mutex_t lock;
  int connection; /* -1 while nobody is there; guarded by the lock */
} Bridge;

static void
die (const char *what)
{
  fprintf (stderr, "stream-tap: %s: %s\n", what, strerror (errno));
  exit (1);
}

static int
open_tap (const char *name)
{
  struct ifreq request = { .ifr_flags = IFF_TAP | IFF_NO_PI };
  int fd = open ("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK);

  if (fd < 0)
    die ("/dev/net/tun");
  snprintf (request.ifr_name, sizeof request.ifr_name, "%s", name);
  if (ioctl (fd, TUNSETIFF, &request) < 0)
    die (name);
  return fd;
}

static int
open_socket (const char *path, bool listening)
{
  struct sockaddr_un address = { .sun_family = AF_UNIX };
  int fd = socket (AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

  if (fd < 0)
    die ("socket");
  if (strlen (path) >= sizeof address.sun_path)
    {
      errno = ENAMETOOLONG;
      die (path);
    }
  memcpy (address.sun_path, path, strlen (path));
  if (listening)
    {
      unlink (path);
      if (bind (fd, (struct sockaddr *) &address, sizeof address) < 0 || listen (fd, 1) < 0)
        die (path);
    }
  else if (connect (fd, (struct sockaddr *) &address, sizeof address) < 0)
    die (path);
  return fd;
}

static bool
send_all (int fd, const uint8_t *data, size_t length)
{
  while (length > 0)
    {
      ssize_t n = send (fd, data, length, MSG_NOSIGNAL);

      if (n < 0 && errno == EINTR)
        continue;
      if (n < 0)
        return false;
      data += n;
      length -= (size_t) n;
    }
  return true;
}

/* Fills @buffer with frames behind their lengths: all that are ready, within the batch. */
static size_t
gather (Bridge *bridge, uint8_t *buffer)
{
  size_t used = 0;

  for (int frames = 0; frames < bridge->batch && BUFFER_SIZE - used > FRAME_MAX + 4; frames++)
    {
      ssize_t n = read (bridge->tap, buffer + used + 4, FRAME_MAX);
      uint32_t prefix;

      if (n < 0 && errno != EAGAIN && errno != EINTR && errno != EIO) /* EIO: the device is down */
        die ("read from the device");
      if (n <= 0)
        break;
      prefix = htonl ((uint32_t) n);
      memcpy (buffer + used, &prefix, sizeof prefix);
      used += (size_t) n + 4;
    }
  return used;
}

static void *
device_to_stream (void *data)
{
  Bridge *bridge = data;
  uint8_t *buffer = malloc (BUFFER_SIZE);

  if (buffer == NULL)
    die ("memory");
  for (;;)
    {
      struct pollfd ready = { .fd = bridge->tap, .events = POLLIN };
      size_t used;

      if (poll (&ready, 1, -1) < 0 && errno != EINTR)
        die ("poll");
      used = gather (bridge, buffer);
      if (used == 0)
        continue;
      pthread_mutex_lock (&bridge->lock);
      /* A peer that goes is noticed, and taken away, by the other thread. */
      if (bridge->connection >= 0)
        (void) !send_all (bridge->connection, buffer, used);
      pthread_mutex_unlock (&bridge->lock);
    }
  return NULL;
}

/* Hands the whole frames in @buffer to the device; returns how much of it that was. */
static ssize_t
deliver (Bridge *bridge, const uint8_t *buffer, size_t have)
{
  size_t at = 0;

  while (have - at >= 4)
    {
      uint32_t length;

      memcpy (&length, buffer + at, sizeof length);
      length = ntohl (length);
      if (length > FRAME_MAX)
        return -1;
      if (have - at - 4 < length)
        break;
      if (write (bridge->tap, buffer + at + 4, length) < 0 && errno == EBADFD)
        die ("write to the device");
      at += length + 4;
    }
  return (ssize_t) at;
}

/* Waits in poll(), as QEMU does: a read that sleeps would also be woken each time that the peer has
 * taken something, which that has to pay for. */
static ssize_t
read_some (int connection, uint8_t *buffer, size_t size)
{
  struct pollfd ready = { .fd = connection, .events = POLLIN };

  if (poll (&ready, 1, -1) < 0)
    return -1;
  return recv (connection, buffer, size, MSG_DONTWAIT);
}

/* Until the peer is gone, or sends what is no frame. */
static void
stream_to_device (Bridge *bridge, int connection, uint8_t *buffer)
{
  size_t have = 0;

  for (;;)
    {
      ssize_t n = read_some (connection, buffer + have, BUFFER_SIZE - have);
      ssize_t used;

      if (n < 0 && (errno == EINTR || errno == EAGAIN))
        continue;
      if (n <= 0)
        return;
      have += (size_t) n;
      used = deliver (bridge, buffer, have);
      if (used < 0)
        {
          fprintf (stderr, "stream-tap: a frame is too long\n");
          return;
        }
      have -= (size_t) used;
      memmove (buffer, buffer + used, have);
    }
}

static void
serve (Bridge *bridge, int connection, uint8_t *buffer)
{
  pthread_mutex_lock (&bridge->lock);
  bridge->connection = connection;
  pthread_mutex_unlock (&bridge->lock);

  stream_to_device (bridge, connection, buffer);

  shutdown (connection, SHUT_RDWR); /* wakes the other thread */
  pthread_mutex_lock (&bridge->lock);
  bridge->connection = -1;
  pthread_mutex_unlock (&bridge->lock);
  close (connection);
}

int
main (int argc, char **argv)
{
  static const struct option options[] = { { "connect", no_argument, NULL, 'c' },
                                           { "batch", required_argument, NULL, 'b' },
                                           { NULL, 0, NULL, 0 } };
  Bridge bridge = { .batch = 64, .lock = PTHREAD_MUTEX_INITIALIZER, .connection = -1 };
  bool listening = true;
  uint8_t *buffer = malloc (BUFFER_SIZE);
  pthread_t thread;
  int option, fd;

  while ((option = getopt_long (argc, argv, "", options, NULL)) != -1)
    {
      if (option == 'c')
        listening = false;
      else if (option == 'b')
        bridge.batch = atoi (optarg);
      else
        return 2;
    }
  if (argc - optind != 2 || bridge.batch < 1 || buffer == NULL)
    {
      fprintf (stderr, "usage: stream-tap [--connect] [--batch=FRAMES] TAP SOCKET\n");
      return 2;
    }

  bridge.tap = open_tap (argv[optind]);
  fd = open_socket (argv[optind + 1], listening);
  if (pthread_create (&thread, NULL, device_to_stream, &bridge) != 0)
    die ("thread");
  printf ("ready\n");
  fflush (stdout);
  if (!listening)
    serve (&bridge, fd, buffer);
  while (listening)
    {
      int connection = accept4 (fd, NULL, NULL, SOCK_CLOEXEC);

      if (connection >= 0)
        serve (&bridge, connection, buffer);
      else if (errno != EINTR && errno != ECONNABORTED)
        die ("accept");
    }
  return 0;
}
