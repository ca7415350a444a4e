/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A token bucket. */

#include "config.h"

#include "vmm-imds-bucket.h"

void
vmm_imds_bucket_init (VmmImdsBucket *self, guint burst, double per_second, gint64 now)
{
  self->level = burst;
  self->burst = burst;
  self->per_second = per_second;
  self->filled_at = now;
}

static void
fill (VmmImdsBucket *self, gint64 now)
{
  double seconds = (double) MAX (now - self->filled_at, 0) / G_USEC_PER_SEC;

  self->level = MIN (self->level + seconds * self->per_second, self->burst);
  self->filled_at = now;
}

gboolean
vmm_imds_bucket_take (VmmImdsBucket *self, double cost, gint64 now)
{
  fill (self, now);
  if (self->level < 1)
    return FALSE;
  self->level -= cost;
  return TRUE;
}

guint
vmm_imds_bucket_get_wait_ms (VmmImdsBucket *self, gint64 now)
{
  fill (self, now);
  if (self->level >= 1)
    return 0;
  return (guint) MIN ((1 - self->level) / self->per_second * 1000, G_MAXINT - 1) + 1;
}
