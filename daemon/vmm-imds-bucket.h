/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <glib.h>

G_BEGIN_DECLS

/* How much a guest may ask for: so many in one go, so many a second after that. Pure; times are
 * monotonic microseconds. */
typedef struct
{
  double level;
  double burst;
  double per_second;
  gint64 filled_at;
} VmmImdsBucket;

void vmm_imds_bucket_init (VmmImdsBucket *self, guint burst, double per_second, gint64 now);
/* FALSE takes nothing. What costs more than is there is let through and paid back before the next. */
gboolean vmm_imds_bucket_take (VmmImdsBucket *self, double cost, gint64 now);
/* Until the next may be taken, in milliseconds; 0 for now. */
guint vmm_imds_bucket_get_wait_ms (VmmImdsBucket *self, gint64 now);

G_END_DECLS
