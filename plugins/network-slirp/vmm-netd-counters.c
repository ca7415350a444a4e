/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Reads the counters of vmm-netd from memory that it shares.
 *
 * The descriptor comes from a program that faces guests. A file that could shrink would kill the
 * daemon with SIGBUS at the next look, so only a sealed memfd will do; its size is checked against
 * what it is said to hold, and its content is only ever numbers. */

#include "vmm-netd-counters.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "interfaces/vmm-error.h"

#define MAGIC G_GUINT64_CONSTANT (0x766d6d2d6e657464) /* "vmm-netd" */
#define LAYOUT_VERSION 1
#define SIZE_MAX_BYTES (1024 * 1024)
#define N_MAX 256

typedef struct
{
  guint64 magic;
  guint32 version;
  guint32 n_counts;
  guint64 counts[];
} Page;

/* What a counter is added to. */
typedef enum
{
  SUM_NONE,
  SUM_SENT,
  SUM_RECEIVED,
  SUM_DROPPED,
  SUM_SPOOFED,
} Sum;

struct _VmmNetdCounters
{
  const Page *page;
  gsize size;
  dev_t device;
  ino_t inode;
  guint n;
  Sum sums[N_MAX];
};

static Sum
sum_of (const char *name)
{
  if (g_str_equal (name, "bytes-sent"))
    return SUM_SENT;
  if (g_str_equal (name, "bytes-received"))
    return SUM_RECEIVED;
  if (g_str_equal (name, "queue-full"))
    return SUM_DROPPED;
  return g_str_has_prefix (name, "spoofed-") ? SUM_SPOOFED : SUM_NONE;
}

static gboolean
check_file (int fd, guint n, struct stat *info, GError **error)
{
  int seals = fcntl (fd, F_GET_SEALS);

  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0)
    {
      vmm_set_error (error, VMM_ERROR_INTERNAL, "its counters are not a sealed memfd");
      return FALSE;
    }
  if (fstat (fd, info) != 0 || info->st_size < (off_t) (sizeof (Page) + n * sizeof (guint64))
      || info->st_size > SIZE_MAX_BYTES)
    {
      vmm_set_error (error, VMM_ERROR_INTERNAL, "its counters have a wrong size");
      return FALSE;
    }
  return TRUE;
}

VmmNetdCounters *
vmm_netd_counters_new (int fd, const char *const *names, GError **error)
{
  guint n = MIN (g_strv_length ((GStrv) names), N_MAX);
  VmmNetdCounters *self;
  struct stat info;
  const Page *page;

  if (!check_file (fd, n, &info, error))
    return NULL;
  page = mmap (NULL, (gsize) info.st_size, PROT_READ, MAP_SHARED, fd, 0);
  if (page == MAP_FAILED)
    {
      vmm_set_error (error, VMM_ERROR_INTERNAL, "its counters cannot be mapped");
      return NULL;
    }
  if (page->magic != MAGIC || page->version != LAYOUT_VERSION || page->n_counts != n)
    {
      munmap ((gpointer) page, (gsize) info.st_size);
      vmm_set_error (error, VMM_ERROR_INTERNAL, "its counters are of an unknown kind");
      return NULL;
    }

  self = g_new0 (VmmNetdCounters, 1);
  self->page = page;
  self->size = (gsize) info.st_size;
  self->device = info.st_dev;
  self->inode = info.st_ino;
  self->n = n;
  for (guint i = 0; i < n; i++)
    self->sums[i] = sum_of (names[i]);
  return self;
}

void
vmm_netd_counters_free (VmmNetdCounters *self)
{
  munmap ((gpointer) self->page, self->size);
  g_free (self);
}

gboolean
vmm_netd_counters_are_same (const VmmNetdCounters *a, const VmmNetdCounters *b)
{
  return a->device == b->device && a->inode == b->inode;
}

void
vmm_netd_counters_add_to (const VmmNetdCounters *self, VmmNetworkCounters *sums)
{
  for (guint i = 0; i < self->n; i++)
    {
      guint64 count = __atomic_load_n (&self->page->counts[i], __ATOMIC_RELAXED);

      switch (self->sums[i])
        {
        case SUM_SENT:
          sums->bytes_sent += count;
          break;
        case SUM_RECEIVED:
          sums->bytes_received += count;
          break;
        case SUM_DROPPED:
          sums->dropped += count;
          break;
        case SUM_SPOOFED:
          sums->spoofed += count;
          break;
        case SUM_NONE:
          break;
        }
    }
}
