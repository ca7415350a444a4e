/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The Internet checksum (RFC 1071): the largest single cost per byte in netd, so it is written for
 * speed. 32 bytes at a time are taken as numbers of 32 bits and added up in sums of 64, which
 * cannot overflow for anything that fits in memory, and are folded once at the end. The order of
 * bytes does not matter (RFC 1071, 2 B): sums are in the machine's order, and so is the result when
 * it is stored.
 */
#include "netd-packet.h"

#include <string.h>

/* Two sums next to each other: the vector that every 64-bit machine has. */
typedef guint64 Lanes __attribute__ ((vector_size (16)));

#define BLOCK (2 * sizeof (Lanes))

/* Of even and odd numbers, of the halves of a block: chains that do not wait for one another. */
typedef struct
{
  Lanes sums[4];
} Sums;

static inline void
add_block (Sums *self, Lanes first, Lanes second)
{
  self->sums[0] += first & 0xffffffff;
  self->sums[1] += first >> 32;
  self->sums[2] += second & 0xffffffff;
  self->sums[3] += second >> 32;
}

static inline guint64
total (const Sums *self)
{
  Lanes all = self->sums[0] + self->sums[1] + self->sums[2] + self->sums[3];

  return all[0] + all[1];
}

static inline guint32
fold (guint64 sum)
{
  sum = (sum & 0xffffffff) + (sum >> 32);
  sum = (sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32);
  sum = (sum & 0xffff) + (sum >> 16);
  sum = (sum & 0xffff) + (sum >> 16);
  return (guint32) sum;
}

/* Adds what is left behind the last whole block, and copies it when there is a @target. */
static inline guint64
add_tail (guint64 sum, guint8 *target, const guint8 *data, gsize length)
{
  guint64 word;
  guint32 half;

  if (target != NULL && length > 0)
    memcpy (target, data, length);
  for (; length >= 8; data += 8, length -= 8)
    {
      memcpy (&word, data, 8);
      sum += (word & 0xffffffff) + (word >> 32);
    }
  if (length >= 4)
    {
      memcpy (&half, data, 4);
      sum += half;
      data += 4;
      length -= 4;
    }
  if (length > 0)
    {
      half = 0;
      memcpy (&half, data, length);
      sum += half;
    }
  return sum;
}

guint32
netd_checksum_copy (guint32 initial, void *target, const void *data, gsize length)
{
  const guint8 *from = data;
  guint8 *to = target;
  Sums sums = { 0 };

  for (; length >= BLOCK; from += BLOCK, to += BLOCK, length -= BLOCK)
    {
      Lanes first;
      Lanes second;

      memcpy (&first, from, sizeof first);
      memcpy (&second, from + sizeof first, sizeof second);
      memcpy (to, &first, sizeof first);
      memcpy (to + sizeof first, &second, sizeof second);
      add_block (&sums, first, second);
    }
  return fold (add_tail (initial + total (&sums), to, from, length));
}

guint32
netd_checksum_add (guint32 initial, const void *data, gsize length)
{
  const guint8 *from = data;
  Sums sums = { 0 };

  for (; length >= BLOCK; from += BLOCK, length -= BLOCK)
    {
      Lanes first;
      Lanes second;

      memcpy (&first, from, sizeof first);
      memcpy (&second, from + sizeof first, sizeof second);
      add_block (&sums, first, second);
    }
  return fold (add_tail (initial + total (&sums), NULL, from, length));
}

guint16
netd_checksum_finish (guint32 sum)
{
  return (guint16) ~fold (sum);
}

guint32
netd_checksum_pseudo (const guint8 *ip, gsize length)
{
  /* Both addresses lie next to each other. */
  guint32 sum = netd_checksum_add (0, ip + 12, 8);

  return sum + g_htons (ip[9]) + g_htons ((guint16) length);
}
