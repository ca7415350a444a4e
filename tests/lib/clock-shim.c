/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* For LD_PRELOAD: moves the wall clock of a program, and no other clock, by the seconds that the file named by
 * VMM_CLOCK_OFFSET_FILE holds, read anew each time. The machine's own clock stays as it is.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long
get_offset (void)
{
  const char *path = getenv ("VMM_CLOCK_OFFSET_FILE");
  char text[32] = { 0 };
  int fd = path != NULL ? open (path, O_RDONLY | O_CLOEXEC) : -1;

  if (fd < 0)
    return 0;
  if (read (fd, text, sizeof text - 1) < 0)
    text[0] = '\0';
  close (fd);
  return strtol (text, NULL, 10);
}

int
clock_gettime (clockid_t id, struct timespec *now)
{
  int result = (int) syscall (SYS_clock_gettime, id, now);

  if (result == 0 && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE))
    now->tv_sec += get_offset ();
  return result;
}

int
gettimeofday (struct timeval *restrict now, void *restrict zone)
{
  struct timespec precise;

  (void) zone;
  if (clock_gettime (CLOCK_REALTIME, &precise) != 0)
    return -1;
  now->tv_sec = precise.tv_sec;
  now->tv_usec = precise.tv_nsec / 1000;
  return 0;
}

time_t
time (time_t *result)
{
  struct timespec now = { 0 };

  clock_gettime (CLOCK_REALTIME, &now);
  if (result != NULL)
    *result = now.tv_sec;
  return now.tv_sec;
}
