/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Takes the place of the C library's function, for the program and its libraries alike. */
#include "test-clock.h"

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define NANOSECONDS 1000000000

static gint64 ahead; /* in nanoseconds */

void
test_clock_advance (gint64 milliseconds)
{
  ahead += milliseconds * 1000000;
}

int
clock_gettime (clockid_t clock, struct timespec *now)
{
  long result = syscall (SYS_clock_gettime, clock, now);
  gint64 nanoseconds;

  if (result != 0 || clock != CLOCK_MONOTONIC)
    return (int) result;
  nanoseconds = now->tv_nsec + ahead;
  now->tv_sec += (time_t) (nanoseconds / NANOSECONDS);
  now->tv_nsec = (long) (nanoseconds % NANOSECONDS);
  return 0;
}
