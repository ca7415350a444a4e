/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Counters: their names and kinds, and the page that the daemon reads but cannot change. */

#include "netd-counters.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static void
test_names (void)
{
  g_autoptr (GHashTable) seen = g_hash_table_new (g_str_hash, g_str_equal);

  for (guint i = 0; i < NETD_N_COUNTS; i++)
    {
      g_assert_nonnull (netd_count_to_text (i));
      g_assert_true (g_hash_table_add (seen, (char *) netd_count_to_text (i)));
    }
  g_assert_cmpstr (netd_count_to_text (NETD_COUNT_BYTES_SENT), ==, "bytes-sent");
  g_assert_cmpstr (netd_count_to_text (NETD_COUNT_SPOOFED_DHCP), ==, "spoofed-dhcp");
  g_assert_cmpstr (netd_count_to_text (NETD_COUNT_BAD_LENGTH), ==, "bad-length");
}

static void
test_kinds (void)
{
  for (guint i = 0; i < NETD_N_COUNTS; i++)
    {
      gboolean is_waste = g_str_has_prefix (netd_count_to_text (i), "spoofed-")
                          || i == NETD_COUNT_MALFORMED || i == NETD_COUNT_UNSUPPORTED
                          || i == NETD_COUNT_NO_RECEIVER || i == NETD_COUNT_FORBIDDEN
                          || i == NETD_COUNT_FLOW_LIMIT;

      g_assert_cmpint (netd_count_is_waste (i), ==, is_waste);
    }
}

static void
test_shared_page (void)
{
  g_autoptr (GError) error = NULL;
  const NetdCounters *seen;
  NetdCounters *counters;
  struct stat info;
  int fd = -1;

  counters = netd_counters_new_shared (&fd, &error);
  g_assert_no_error (error);
  g_assert_nonnull (counters);
  g_assert_cmpint (fstat (fd, &info), ==, 0);
  g_assert_cmpint (info.st_size, ==, sizeof *counters);
  g_assert_cmpint (info.st_size, ==, 16 + 8 * NETD_N_COUNTS);
  seen = mmap (NULL, sizeof *seen, PROT_READ, MAP_SHARED, fd, 0);
  g_assert_true (seen != MAP_FAILED);
  g_assert_cmpmem (&seen->magic, 8, counters, 8);
  g_assert_cmphex (seen->magic, ==, NETD_COUNTERS_MAGIC);
  g_assert_cmpuint (seen->version, ==, 1);
  g_assert_cmpuint (seen->n_counts, ==, NETD_N_COUNTS);
  counters->counts[NETD_COUNT_FORBIDDEN] += G_GUINT64_CONSTANT (5000000000);
  g_assert_cmpuint (seen->counts[NETD_COUNT_FORBIDDEN], ==, G_GUINT64_CONSTANT (5000000000));

  /* Its holder can neither pull it away nor change what is in it. */
  g_assert_cmpint (ftruncate (fd, 0), ==, -1);
  g_assert_cmpint (ftruncate (fd, 65536), ==, -1);
  g_assert_cmpint (fcntl (fd, F_ADD_SEALS, F_SEAL_WRITE), ==, -1);
  g_assert_cmpint (errno, ==, EPERM);
  if ((fcntl (fd, F_GET_SEALS) & 0x0010) != 0)
    {
      g_assert_cmpint (write (fd, "x", 1), ==, -1);
      g_assert_true (mmap (NULL, sizeof *seen, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                     == MAP_FAILED);
    }
  munmap ((void *) seen, sizeof *seen);
  munmap (counters, sizeof *counters);
  close (fd);
}

int
main (int argc, char *argv[])
{
  g_test_init (&argc, &argv, NULL);
  g_test_add_func ("/netd/counters/names", test_names);
  g_test_add_func ("/netd/counters/kinds", test_kinds);
  g_test_add_func ("/netd/counters/shared-page", test_shared_page);
  return g_test_run ();
}
