/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What was carried and what was refused, by kind. Ports count in ordinary memory. The network's
 * sums are in a page that others map: sealed, so that its size holds and nobody but netd, which
 * mapped it before, can write to it.
 */
#include "netd-counters.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <gio/gio.h>

/* From Linux 5.1 on; some C libraries do not name it yet. */
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

static const char *const names[NETD_N_COUNTS] = {
  [NETD_COUNT_BYTES_SENT] = "bytes-sent",
  [NETD_COUNT_BYTES_RECEIVED] = "bytes-received",
  [NETD_COUNT_FRAMES_SENT] = "frames-sent",
  [NETD_COUNT_FRAMES_RECEIVED] = "frames-received",
  [NETD_COUNT_QUEUE_FULL] = "queue-full",
  [NETD_COUNT_SPOOFED_MAC] = "spoofed-mac",
  [NETD_COUNT_SPOOFED_IP] = "spoofed-ip",
  [NETD_COUNT_SPOOFED_ARP] = "spoofed-arp",
  [NETD_COUNT_SPOOFED_DHCP] = "spoofed-dhcp",
  [NETD_COUNT_MALFORMED] = "malformed",
  [NETD_COUNT_UNSUPPORTED] = "unsupported",
  [NETD_COUNT_NO_RECEIVER] = "no-receiver",
  [NETD_COUNT_FORBIDDEN] = "forbidden",
  [NETD_COUNT_FLOW_LIMIT] = "flow-limit",
  [NETD_COUNT_BAD_LENGTH] = "bad-length",
};

const char *
netd_count_to_text (NetdCount count)
{
  g_return_val_if_fail ((guint) count < NETD_N_COUNTS, NULL);
  return names[count];
}

/* Asked for every frame: the kinds stand in an order that makes it two comparisons. */
gboolean
netd_count_is_waste (NetdCount count)
{
  return count >= NETD_COUNT_SPOOFED_MAC && count <= NETD_COUNT_FLOW_LIMIT;
}

void
netd_counters_init (NetdCounters *self)
{
  *self = (NetdCounters){
    .magic = NETD_COUNTERS_MAGIC,
    .version = NETD_COUNTERS_VERSION,
    .n_counts = NETD_N_COUNTS,
  };
}

/* Kernels without the write seal keep the page writable for those who get the descriptor: they
 * could then mislead themselves only, as netd reads nothing back from it but its own sums. */
static gboolean
seal (int fd)
{
  int seals = F_SEAL_GROW | F_SEAL_SHRINK;

  if (fcntl (fd, F_ADD_SEALS, seals | F_SEAL_FUTURE_WRITE) < 0
      && (errno != EINVAL || fcntl (fd, F_ADD_SEALS, seals) < 0))
    return FALSE;
  return fcntl (fd, F_ADD_SEALS, F_SEAL_SEAL) == 0;
}

NetdCounters *
netd_counters_new_shared (int *fd, GError **error)
{
  int memory = memfd_create ("vmm-netd-counters", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  NetdCounters *self = MAP_FAILED;
  int saved_errno;

  if (memory >= 0 && ftruncate (memory, sizeof *self) == 0)
    self = mmap (NULL, sizeof *self, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
  if (self != MAP_FAILED && seal (memory))
    {
      netd_counters_init (self);
      *fd = memory;
      return self;
    }
  saved_errno = errno;
  if (self != MAP_FAILED)
    munmap (self, sizeof *self);
  if (memory >= 0)
    close (memory);
  g_set_error (error, G_IO_ERROR, g_io_error_from_errno (saved_errno),
               "cannot make the page of counters: %s", g_strerror (saved_errno));
  return NULL;
}
