/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The queue in front of a port's stream. Frames are copied in behind each other, each with its
 * length before it, so that all that gathered in a turn leaves in one call.
 *
 * The memory is mapped with the first frame and given back with the connection; pages that were
 * never reached cost nothing. Whenever the queue runs empty it begins at the front again, so that a
 * port with little traffic lives on its first pages.
 */
#include "netd-ring.h"

#include <string.h>
#include <sys/mman.h>

#define LENGTH_SIZE 4

void
netd_ring_init (NetdRing *self, gsize size)
{
  *self = (NetdRing){ .size = size };
}

void
netd_ring_clear (NetdRing *self)
{
  netd_ring_reset (self);
  self->size = 0;
}

static gboolean
ensure_mapped (NetdRing *self)
{
  void *data;

  if (self->data != NULL)
    return TRUE;
  data = mmap (NULL, self->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED)
    return FALSE;
  self->data = data;
  return TRUE;
}

/* There is room for it. */
static void
append (NetdRing *self, const void *bytes, gsize length)
{
  gsize tail = self->head + self->used;
  gsize first;

  if (tail >= self->size)
    tail -= self->size;
  first = MIN (length, self->size - tail);
  memcpy (self->data + tail, bytes, first);
  if (first < length)
    memcpy (self->data, (const guint8 *) bytes + first, length - first);
  self->used += length;
}

gboolean
netd_ring_push (NetdRing *self, const struct iovec *parts, guint n_parts)
{
  gsize length = 0;
  guint32 prefix;

  for (guint i = 0; i < n_parts; i++)
    length += parts[i].iov_len;
  if (length > G_MAXUINT32 || length + LENGTH_SIZE > netd_ring_get_room (self)
      || !ensure_mapped (self))
    return FALSE;
  prefix = GUINT32_TO_BE ((guint32) length);
  append (self, &prefix, LENGTH_SIZE);
  for (guint i = 0; i < n_parts; i++)
    {
      if (parts[i].iov_len > 0)
        append (self, parts[i].iov_base, parts[i].iov_len);
    }
  return TRUE;
}

gboolean
netd_ring_push_rest (NetdRing *self, const struct iovec *parts, guint n_parts, gsize skip)
{
  gsize length = 0;

  for (guint i = 0; i < n_parts; i++)
    length += parts[i].iov_len;
  if (length <= skip)
    return TRUE;
  if (length - skip > netd_ring_get_room (self) || !ensure_mapped (self))
    return FALSE;
  for (guint i = 0; i < n_parts; i++)
    {
      gsize skipped = MIN (skip, parts[i].iov_len);

      skip -= skipped;
      if (skipped < parts[i].iov_len)
        append (self, (const guint8 *) parts[i].iov_base + skipped, parts[i].iov_len - skipped);
    }
  return TRUE;
}

gsize
netd_ring_get_used (const NetdRing *self)
{
  return self->used;
}

gsize
netd_ring_get_room (const NetdRing *self)
{
  return self->size - self->used;
}

guint
netd_ring_peek (NetdRing *self, struct iovec pieces[2])
{
  gsize first = MIN (self->used, self->size - self->head);

  if (self->used == 0)
    return 0;
  pieces[0] = (struct iovec){ self->data + self->head, first };
  if (first == self->used)
    return 1;
  pieces[1] = (struct iovec){ self->data, self->used - first };
  return 2;
}

void
netd_ring_consume (NetdRing *self, gsize length)
{
  g_return_if_fail (length <= self->used);
  self->used -= length;
  self->head += length;
  if (self->head >= self->size)
    self->head -= self->size;
  if (self->used == 0)
    self->head = 0;
}

void
netd_ring_reset (NetdRing *self)
{
  if (self->data != NULL)
    munmap (self->data, self->size);
  self->data = NULL;
  self->head = 0;
  self->used = 0;
}
