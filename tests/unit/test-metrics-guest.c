/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The series of the guests: limits, one family over several VMs, and what a hostile one cannot do.
 * */
#include <string.h>

#include "interfaces/vmm-error.h"
#include "vmm-metrics-guest.h"

typedef struct
{
  VmmGuestMetrics *metrics;
} Fixture;

static void
set_up (Fixture *fixture, gconstpointer data)
{
  fixture->metrics = vmm_guest_metrics_new (data != NULL ? GPOINTER_TO_UINT (data) : 1000);
}

static void
tear_down (Fixture *fixture, gconstpointer data)
{
  vmm_guest_metrics_free (fixture->metrics);
}

/* entries is what stands between the brackets. */
static void
take (Fixture *fixture, const char *vm, const char *entries)
{
  g_autofree char *text = g_strdup_printf ("{\"metrics\": [%s]}", entries);
  g_autoptr (GBytes) bytes = g_bytes_new (text, strlen (text));
  g_autoptr (GError) error = NULL;
  g_autoptr (VmmGuestIntake) intake
      = vmm_guest_intake_new (bytes, vmm_guest_metrics_get_limit (fixture->metrics), &error);

  g_assert_no_error (error);
  vmm_guest_metrics_take (fixture->metrics, vm, intake);
}

static int
compare_lines (gconstpointer a, gconstpointer b)
{
  return strcmp (*(const char *const *) a, *(const char *const *) b);
}

/* Sorted, without help, ages and what begins with "vm_guest_report". */
static char *
expose (Fixture *fixture)
{
  g_autoptr (GString) text = g_string_new (NULL);
  g_auto (GStrv) lines = NULL;
  g_autoptr (GPtrArray) kept = g_ptr_array_new ();

  vmm_guest_metrics_add_to (fixture->metrics, text);
  lines = g_strsplit (text->str, "\n", -1);
  for (guint i = 0; lines[i] != NULL; i++)
    if (*lines[i] != '\0' && !g_str_has_prefix (lines[i], "# HELP")
        && strstr (lines[i], "vm_guest_report") == NULL)
      g_ptr_array_add (kept, lines[i]);
  g_ptr_array_sort (kept, compare_lines);
  g_ptr_array_add (kept, NULL);
  return g_strjoinv ("\n", (char **) kept->pdata);
}

static void
assert_exposed (Fixture *fixture, const char *expected)
{
  g_autofree char *text = expose (fixture);

  g_assert_cmpstr (text, ==, expected);
}

static void
assert_line (Fixture *fixture, const char *line)
{
  g_autoptr (GString) text = g_string_new (NULL);
  g_auto (GStrv) lines = NULL;

  vmm_guest_metrics_add_to (fixture->metrics, text);
  lines = g_strsplit (text->str, "\n", -1);
  if (!g_strv_contains ((const char *const *) lines, line))
    {
      g_test_message ("no line %s in\n%s", line, text->str);
      g_test_fail ();
    }
}

static void
test_nothing (Fixture *fixture, gconstpointer data)
{
  g_autoptr (GString) text = g_string_new (NULL);

  vmm_guest_metrics_add_to (fixture->metrics, text);
  g_assert_cmpstr (text->str, ==, "");
  g_assert_null (vmm_guest_metrics_describe (fixture->metrics, "a"));
  vmm_guest_metrics_forget (fixture->metrics, "a");
}

static void
test_union (Fixture *fixture, gconstpointer data)
{
  take (fixture, "a", "{\"name\": \"x\", \"object\": \"o\", \"value\": 1},"
                      "{\"name\": \"x\", \"object\": \"p\", \"value\": 2, \"fields\": {\"f\": \"1\"}}");
  take (fixture, "b", "{\"name\": \"x\", \"value\": 3, \"fields\": {\"g\": \"2\"}}");
  assert_exposed (fixture, "# TYPE vm_guest_x gauge\n"
                           "vm_guest_x{vm=\"a\",f=\"1\",object=\"p\",g=\"\"} 2\n"
                           "vm_guest_x{vm=\"a\",object=\"o\",f=\"\",g=\"\"} 1\n"
                           "vm_guest_x{vm=\"b\",g=\"2\",f=\"\",object=\"\"} 3");
  /* A label that nobody has any more goes. */
  take (fixture, "b", "{\"name\": \"x\", \"value\": 4}");
  assert_exposed (fixture, "# TYPE vm_guest_x gauge\n"
                           "vm_guest_x{vm=\"a\",f=\"1\",object=\"p\"} 2\n"
                           "vm_guest_x{vm=\"a\",object=\"o\",f=\"\"} 1\n"
                           "vm_guest_x{vm=\"b\",f=\"\",object=\"\"} 4");
}

static void
test_replaced (Fixture *fixture, gconstpointer data)
{
  take (fixture, "a", "{\"name\": \"x\", \"value\": 1}, {\"name\": \"y\", \"value\": 1}");
  take (fixture, "a", "{\"name\": \"y\", \"value\": 2}");
  assert_exposed (fixture, "# TYPE vm_guest_y gauge\nvm_guest_y{vm=\"a\",object=\"\"} 2");
  assert_line (fixture, "vm_guest_reports_total{vm=\"a\"} 2");
  assert_line (fixture, "vm_guest_report_series{vm=\"a\"} 1");
  take (fixture, "a", "");
  assert_exposed (fixture, "");
  assert_line (fixture, "vm_guest_report_series{vm=\"a\"} 0");
}

static void
test_refused (Fixture *fixture, gconstpointer data)
{
  g_autoptr (GBytes) bytes = g_bytes_new ("[]", 2);
  g_autoptr (GError) error = NULL;

  g_assert_null (vmm_guest_intake_new (bytes, 1000, &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_INVALID_REQUEST);
  g_assert_null (vmm_guest_metrics_describe (fixture->metrics, "b"));
}

static void
test_forget (Fixture *fixture, gconstpointer data)
{
  take (fixture, "a", "{\"name\": \"x\", \"value\": 1}");
  take (fixture, "b", "{\"name\": \"x\", \"value\": 2}, {\"name\": \"y\", \"value\": 2}");
  vmm_guest_metrics_forget (fixture->metrics, "b");
  assert_exposed (fixture, "# TYPE vm_guest_x gauge\nvm_guest_x{vm=\"a\",object=\"\"} 1");
  vmm_guest_metrics_forget (fixture->metrics, "a");
  test_nothing (fixture, data);
}

/* The limit is two series. */
static void
test_dropped (Fixture *fixture, gconstpointer data)
{
  take (fixture, "a",
        "{\"name\": \"\", \"value\": 1}, {\"name\": \"x\", \"value\": 1},"
        "{\"name\": \"x\", \"value\": 2}, {\"name\": \"x\", \"value\": 3, \"fields\": {\"f\": \"\"}},"
        "{\"name\": \"y\", \"value\": 1}, {\"name\": \"z\", \"value\": 1}, {\"name\": \"x\", "
        "\"value\": 1}, 7");
  assert_exposed (fixture, "# TYPE vm_guest_x gauge\n# TYPE vm_guest_y gauge\n"
                           "vm_guest_x{vm=\"a\",object=\"\"} 1\n"
                           "vm_guest_y{vm=\"a\",object=\"\"} 1");
  assert_line (fixture, "vm_guest_report_series_dropped_total{vm=\"a\",reason=\"unsupported\"} 2");
  assert_line (fixture, "vm_guest_report_series_dropped_total{vm=\"a\",reason=\"duplicate\"} 2");
  assert_line (fixture, "vm_guest_report_series_dropped_total{vm=\"a\",reason=\"limit\"} 2");
  take (fixture, "a", "7");
  assert_line (fixture, "vm_guest_report_series_dropped_total{vm=\"a\",reason=\"unsupported\"} 3");
  assert_line (fixture, "vm_guest_report_series_dropped_total{vm=\"a\",reason=\"duplicate\"} 2");
}

/* One series of many bytes is as much as many series. */
static void
test_bytes (Fixture *fixture, gconstpointer data)
{
  g_autofree char *value = g_strnfill (2048, 'v');
  g_autofree char *entries
    = g_strdup_printf ("{\"name\": \"x\", \"value\": \"%s\"}, {\"name\": \"y\", \"value\": 1}", value);

  take (fixture, "a", entries);
  assert_line (fixture, "vm_guest_report_series{vm=\"a\"} 1");
  assert_line (fixture, "vm_guest_report_series_dropped_total{vm=\"a\",reason=\"limit\"} 1");
}

/* A guest that uses a name as another type does not take it from the others. */
static void
test_types (Fixture *fixture, gconstpointer data)
{
  take (fixture, "evil", "{\"name\": \"xTotal\", \"value\": 1}");
  take (fixture, "good", "{\"name\": \"x\", \"type\": \"counter\", \"value\": 2}");
  assert_exposed (fixture, "# TYPE vm_guest_x_total untyped\n"
                           "vm_guest_x_total{vm=\"evil\",object=\"\"} 1\n"
                           "vm_guest_x_total{vm=\"good\",object=\"\"} 2");
  vmm_guest_metrics_forget (fixture->metrics, "evil");
  assert_exposed (fixture, "# TYPE vm_guest_x_total counter\n"
                           "vm_guest_x_total{vm=\"good\",object=\"\"} 2");
}

static void
test_bookkeeping_names (Fixture *fixture, gconstpointer data)
{
  take (fixture, "a", "{\"name\": \"report.age.seconds\", \"value\": 1},"
                      "{\"name\": \"reportSeries\", \"value\": 1},"
                      "{\"name\": \"reports\", \"value\": 1, \"type\": \"counter\"},"
                      "{\"name\": \"report.series.dropped\", \"value\": 1, \"type\": \"counter\"}");
  assert_line (fixture, "vm_guest_report_series{vm=\"a\"} 0");
  assert_line (fixture, "vm_guest_report_series_dropped_total{vm=\"a\",reason=\"unsupported\"} 4");
}

/* Hundreds of label names in a family that others use: nothing is added to theirs. */
static void
test_colourful (Fixture *fixture, gconstpointer data)
{
  g_autoptr (GString) entries = g_string_new (NULL);
  g_autofree char *text = NULL;

  for (guint i = 0; i < 300; i++)
    g_string_append_printf (entries, "%s{\"name\": \"x\", \"value\": 1, \"fields\": {\"f%u\": \"1\"}}",
                            i > 0 ? "," : "", i);
  take (fixture, "evil", entries->str);
  take (fixture, "good", "{\"name\": \"x\", \"object\": \"o\", \"value\": 2}");
  text = expose (fixture);
  g_assert_nonnull (strstr (text, "\nvm_guest_x{vm=\"good\",object=\"o\"} 2"));
}

static void
test_describe (Fixture *fixture, gconstpointer data)
{
  g_autoptr (JsonObject) guest = NULL;

  take (fixture, "a", "{\"name\": \"x\", \"value\": 1}, {\"name\": \"x\", \"value\": 1}, {}");
  guest = vmm_guest_metrics_describe (fixture->metrics, "a");
  g_assert_cmpint (json_object_get_int_member (guest, "families"), ==, 1);
  g_assert_cmpint (json_object_get_int_member (guest, "series"), ==, 3);
  g_assert_cmpint (json_object_get_int_member (guest, "series_exported"), ==, 1);
  g_assert_cmpint (json_object_get_int_member (guest, "series_dropped"), ==, 2);
  g_assert_cmpuint (json_array_get_length (json_object_get_array_member (guest, "sample")), ==, 3);
  g_assert_true (g_str_has_suffix (json_object_get_string_member (guest, "received_at"), "Z"));
  g_assert_false (json_object_has_member (guest, "generated_at"));
  g_assert_cmpfloat (json_object_get_double_member (guest, "report_age_seconds"), >=, 0);
}

/* What a scrape copies is made once: many guests, one family with a hundred series. */
static void
test_many (Fixture *fixture, gconstpointer data)
{
  g_autoptr (GString) entries = g_string_new (NULL);
  g_autoptr (GString) text = g_string_new (NULL);
  guint lines = 0;

  for (guint i = 0; i < 100; i++)
    g_string_append_printf (entries, "%s{\"name\": \"io.systemd.Unit.State\", \"object\": \"%u\", "
                                     "\"value\": %u}",
                            i > 0 ? "," : "", i, i);
  for (guint i = 0; i < 30; i++)
    {
      g_autofree char *id = g_strdup_printf ("%08x", i);

      take (fixture, id, entries->str);
    }
  vmm_guest_metrics_add_to (fixture->metrics, text);
  for (const char *c = text->str; *c != '\0'; c++)
    lines += *c == '\n';
  g_assert_cmpuint (lines, ==, 30 * (100 + 3 + 3) + 4 * 2 + 2);
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, G_TEST_OPTION_ISOLATE_DIRS, NULL);
#define ADD(name, limit, function)                                                                 \
  g_test_add ("/metrics-guest/" name, Fixture, GUINT_TO_POINTER (limit), set_up, function, tear_down)
  ADD ("nothing", 0, test_nothing);
  ADD ("union", 0, test_union);
  ADD ("replaced", 0, test_replaced);
  ADD ("refused", 0, test_refused);
  ADD ("forget", 0, test_forget);
  ADD ("dropped", 2, test_dropped);
  ADD ("bytes", 2, test_bytes);
  ADD ("types", 0, test_types);
  ADD ("bookkeeping-names", 0, test_bookkeeping_names);
  ADD ("colourful", 0, test_colourful);
  ADD ("describe", 0, test_describe);
  ADD ("many", 0, test_many);
  return g_test_run ();
}
