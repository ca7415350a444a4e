/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Points in time and durations as texts. */

#include "vmm-time.h"

typedef struct
{
  gint64 us;
  const char *text;
} Pair;

static const Pair times[] = {
  { 0, "1970-01-01T00:00:00Z" },
  { 1, "1970-01-01T00:00:00.000001Z" },
  { 500000, "1970-01-01T00:00:00.5Z" },
  { -1, "1969-12-31T23:59:59.999999Z" },
  { G_GINT64_CONSTANT (951782400) * G_USEC_PER_SEC, "2000-02-29T00:00:00Z" },
  { G_GINT64_CONSTANT (1789214400123450), "2026-09-12T12:00:00.12345Z" },
  { G_GINT64_CONSTANT (253402300799999999), "9999-12-31T23:59:59.999999Z" },
  { G_GINT64_CONSTANT (-62135596800000000), "0001-01-01T00:00:00Z" },
};

static void
test_times (void)
{
  for (guint i = 0; i < G_N_ELEMENTS (times); i++)
    {
      g_autofree char *text = vmm_time_to_text (times[i].us);
      gint64 us = 42;

      g_assert_cmpstr (text, ==, times[i].text);
      g_assert_true (vmm_time_from_text (text, &us));
      g_assert_cmpint (us, ==, times[i].us);
    }
}

static void
test_time_out_of_range (void)
{
  g_autofree char *last = vmm_time_to_text (G_MAXINT64);
  g_autofree char *first = vmm_time_to_text (G_MININT64);

  g_assert_true (g_str_has_prefix (last, "9999-12-31T23:59:59"));
  g_assert_true (g_str_has_prefix (first, "0001-01-01T00:00:00"));
}

static void
test_times_read (void)
{
  static const Pair good[] = {
    { 0, "1970-01-01t00:00:00z" },         { 0, "1970-01-01T01:00:00+01:00" },
    { 0, "1969-12-31T18:30:00-05:30" },    { 123456, "1970-01-01T00:00:00.123456789Z" },
    { 120000, "1970-01-01T00:00:00.12Z" },
  };
  static const char *const bad[] = {
    "",
    "x",
    "1970-01-01",
    "1970-01-01T00:00:00",
    "1970-01-01 00:00:00Z",
    "1970-1-01T00:00:00Z",
    "1970-13-01T00:00:00Z",
    "1970-00-01T00:00:00Z",
    "1970-02-29T00:00:00Z",
    "1970-01-32T00:00:00Z",
    "1970-01-01T24:00:00Z",
    "1970-01-01T00:60:00Z",
    "1970-01-01T00:00:60Z",
    "0000-01-01T00:00:00Z",
    "1970-01-01T00:00:00.Z",
    "1970-01-01T00:00:00.1234567890Z",
    "1970-01-01T00:00:00Zx",
    "1970-01-01T00:00:00+1:00",
    "1970-01-01T00:00:00+24:00",
    "1970-01-01T00:00:00+01:60",
    "1970-01-01T00:00:00+0100",
    "+970-01-01T00:00:00Z",
    "1970-01-01T00:00:00 Z",
  };

  for (guint i = 0; i < G_N_ELEMENTS (good); i++)
    {
      gint64 us = 42;

      g_assert_true (vmm_time_from_text (good[i].text, &us));
      g_assert_cmpint (us, ==, good[i].us);
    }
  for (guint i = 0; i < G_N_ELEMENTS (bad); i++)
    {
      gint64 us;

      g_test_message ("%s", bad[i]);
      g_assert_false (vmm_time_from_text (bad[i], &us));
    }
}

#define MS G_GINT64_CONSTANT (1000)
#define S (1000 * MS)
#define M (60 * S)
#define H (60 * M)

static const Pair durations[] = {
  { 0, "0s" },
  { 1, "1\xc2\xb5s" },
  { 999, "999\xc2\xb5s" },
  { 1 * MS, "1ms" },
  { 1500, "1.5ms" },
  { 300 * MS, "300ms" },
  { 1 * S, "1s" },
  { 1500 * MS, "1.5s" },
  { 30 * S, "30s" },
  { 5 * M, "5m0s" },
  { 9 * M + 30 * S, "9m30s" },
  { 1 * H, "1h0m0s" },
  { 1 * H + 30 * M, "1h30m0s" },
  { 25 * H + 1, "25h0m0.000001s" },
  { 60 * S + 10 * MS, "1m0.01s" },
};

static void
test_durations (void)
{
  g_autofree char *negative = vmm_duration_to_text (-1500 * MS);
  g_autofree char *lowest = vmm_duration_to_text (G_MININT64);

  for (guint i = 0; i < G_N_ELEMENTS (durations); i++)
    {
      g_autofree char *text = vmm_duration_to_text (durations[i].us);
      gint64 us = 42;

      g_assert_cmpstr (text, ==, durations[i].text);
      g_assert_true (vmm_duration_from_text (text, &us));
      g_assert_cmpint (us, ==, durations[i].us);
    }
  g_assert_cmpstr (negative, ==, "-1.5s");
  g_assert_cmpstr (lowest, ==, "-2562047788h0m54.775808s");
}

static void
test_durations_read (void)
{
  static const Pair good[] = {
    { 0, "0" },
    { 0, "0h" },
    { 5 * M, "5m" },
    { 90 * M, "1h30m" },
    { 90 * M, "1.5h" },
    { 90 * M, "+1.5h" },
    { 500 * MS, ".5s" },
    { 1 * S, "1.s" },
    { 1, "1us" },
    { 1, "1\xce\xbcs" },
    { 1, "1999ns" },
    { 90 * S, "30s1m" },
    { G_GINT64_CONSTANT (2562047) * H, "2562047h" },
  };
  static const char *const bad[] = {
    "",
    "+",
    "1",
    "-1s",
    "s",
    ".",
    ".s",
    "1x",
    "1 s",
    " 1s",
    "1s ",
    "1m30",
    "1e3s",
    "0x1s",
    "1,5s",
    "1..5s",
    "++1s",
    "2562048h",
    "9223372036854775808ns",
    "99999999999999999999s",
    "2562047h2562047h",
    "inf",
    "1d",
  };

  for (guint i = 0; i < G_N_ELEMENTS (good); i++)
    {
      gint64 us = 42;

      g_test_message ("%s", good[i].text);
      g_assert_true (vmm_duration_from_text (good[i].text, &us));
      g_assert_cmpint (us, ==, good[i].us);
    }
  for (guint i = 0; i < G_N_ELEMENTS (bad); i++)
    {
      gint64 us;

      g_test_message ("%s", bad[i]);
      g_assert_false (vmm_duration_from_text (bad[i], &us));
    }
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, G_TEST_OPTION_ISOLATE_DIRS, NULL);
  g_test_add_func ("/time/both-ways", test_times);
  g_test_add_func ("/time/out-of-range", test_time_out_of_range);
  g_test_add_func ("/time/read", test_times_read);
  g_test_add_func ("/duration/both-ways", test_durations);
  g_test_add_func ("/duration/read", test_durations_read);
  return g_test_run ();
}
