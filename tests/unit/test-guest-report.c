/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* How entries of a guest's report become series, and what is no report. */
#include <string.h>

#include "interfaces/vmm-error.h"
#include "vmm-guest-report.h"
#include "vmm-json.h"

static void
test_metric_names (void)
{
  static const char *const rows[][2] = {
    { "io.systemd.Network.IPv4AddressState", "vm_guest_io_systemd_network_ipv4_address_state" },
    { "io.systemd.Manager.NRestarts", "vm_guest_io_systemd_manager_nrestarts" },
    { "org.example.HTTP2Server.requests-ok!", "vm_guest_org_example_http2_server_requests_ok" },
    { "..weird..", "vm_guest_weird" },
    { "a__b", "vm_guest_a_b" },
    { "a. -b", "vm_guest_a_b" },
    { "B\xc3\xa4r", "vm_guest_b_r" },
    { "x9Y", "vm_guest_x9_y" },
    { "!", "vm_guest_" },
  };

  for (guint i = 0; i < G_N_ELEMENTS (rows); i++)
    {
      g_autofree char *name = vmm_guest_metric_name (rows[i][0]);

      g_assert_cmpstr (name, ==, rows[i][1]);
    }
}

static void
test_label_names (void)
{
  static const char *const rows[][2] = {
    { "event", "event" },     { "a-b.c", "a_b_c" },   { "__x", "x" },
    { "9lives", "field_9lives" }, { "vm", "field_vm" }, { "object", "field_object" },
    { "_value", "field_value" }, { "", "field_" },     { "___", "field_" },
    { "\xc3\xa4x", "x" },     { "x\xc3\xa4", "x_" },  { "Le", "Le" },
  };

  for (guint i = 0; i < G_N_ELEMENTS (rows); i++)
    {
      g_autofree char *name = vmm_guest_label_name (rows[i][0]);

      g_assert_cmpstr (name, ==, rows[i][1]);
    }
}

static VmmGuestSeries *
map (const char *text)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (JsonNode) node = vmm_json_parse (text, strlen (text), &error);

  g_assert_no_error (error);
  return vmm_guest_series_new (node);
}

typedef struct
{
  const char *entry;
  const char *series; /* name{labels} value */
  VmmGuestKind kind;
} Row;

static void
test_series (void)
{
  static const Row rows[] = {
    { "{\"name\": \"a\", \"value\": 7}", "vm_guest_a{} 7", VMM_GUEST_GAUGE },
    { "{\"name\": \"a\", \"value\": 1789199899473434}", "vm_guest_a{} 1789199899473434",
      VMM_GUEST_GAUGE },
    { "{\"name\": \"a\", \"value\": 0.25}", "vm_guest_a{} 0.25", VMM_GUEST_GAUGE },
    { "{\"name\": \"a\", \"value\": true}", "vm_guest_a{} 1", VMM_GUEST_GAUGE },
    { "{\"name\": \"a\", \"value\": false, \"type\": \"counter\"}", "vm_guest_a_total{} 0",
      VMM_GUEST_COUNTER },
    { "{\"name\": \"aTotal\", \"value\": 3, \"type\": \"counter\"}", "vm_guest_a_total{} 3",
      VMM_GUEST_COUNTER },
    { "{\"name\": \"aTotal\", \"value\": 3}", "vm_guest_a_total{} 3", VMM_GUEST_GAUGE },
    { "{\"name\": \"io.systemd.Manager.NRestarts\", \"object\": \"x.service\", \"value\": 2}",
      "vm_guest_io_systemd_manager_nrestarts_total{object=\"x.service\"} 2", VMM_GUEST_COUNTER },
    { "{\"name\": \"io.systemd.Manager.ReloadCount\", \"value\": 2}",
      "vm_guest_io_systemd_manager_reload_count_total{} 2", VMM_GUEST_COUNTER },
    { "{\"name\": \"io.systemd.Manager.ReloadCount\", \"value\": 2, \"type\": \"gauge\"}",
      "vm_guest_io_systemd_manager_reload_count{} 2", VMM_GUEST_GAUGE },
    { "{\"name\": \"a\", \"value\": \"on\\\"\\n\"}", "vm_guest_a_info{value=\"on\\\"\\n\"} 1",
      VMM_GUEST_INFO },
    { "{\"name\": \"a\", \"value\": \"\"}", "vm_guest_a_info{} 1", VMM_GUEST_INFO },
    { "{\"name\": \"a\", \"value\": 1.50, \"type\": \"string\"}",
      "vm_guest_a_info{value=\"1.5\"} 1", VMM_GUEST_INFO },
    { "{\"name\": \"a\", \"value\": [1, {}], \"type\": \"string\"}",
      "vm_guest_a_info{value=\"[1,{}]\"} 1", VMM_GUEST_INFO },
    { "{\"name\": \"a\", \"value\": \"12.50\", \"type\": \"gauge\"}", "vm_guest_a{} 12.5",
      VMM_GUEST_GAUGE },
    { "{\"name\": \"a\", \"value\": 1, \"type\": \"histogram\"}", "vm_guest_a{} 1",
      VMM_GUEST_GAUGE },
    { "{\"name\": \"a\", \"value\": 1, \"type\": 7}", "vm_guest_a{} 1", VMM_GUEST_GAUGE },
    { "{\"name\": \"a\", \"value\": 1, \"object\": null, \"fields\": null}", "vm_guest_a{} 1",
      VMM_GUEST_GAUGE },
    { "{\"name\": \"a\", \"value\": 1, \"object\": \"o\", \"more\": {}, \"fields\": {\"z\": true, "
      "\"n\": null, \"big\": 1e21, \"i\": -5, \"l\": [1], \"vm\": \"x\", \"s\": \"t\"}}",
      "vm_guest_a{big=\"1000000000000000000000\",field_vm=\"x\",i=\"-5\",l=\"[1]\",object=\"o\","
      "s=\"t\",z=\"true\"} 1",
      VMM_GUEST_GAUGE },
    { "{\"name\": \"a\", \"value\": 1, \"fields\": {\"x-y\": \"first\", \"x.y\": \"second\"}}",
      "vm_guest_a{x_y=\"first\"} 1", VMM_GUEST_GAUGE },
  };

  for (guint i = 0; i < G_N_ELEMENTS (rows); i++)
    {
      g_autoptr (VmmGuestSeries) series = map (rows[i].entry);
      g_autofree char *text = NULL;

      g_assert_nonnull (series);
      text = g_strdup_printf ("%s{%s} %s", series->name, series->labels, series->value);
      g_assert_cmpstr (text, ==, rows[i].series);
      g_assert_cmpint (series->kind, ==, rows[i].kind);
    }
}

static void
test_label_sets (void)
{
  g_autoptr (VmmGuestSeries) series
    = map ("{\"name\": \"a\", \"value\": \"\", \"fields\": {\"b\": \"\", \"c\": \"1\"}}");

  g_assert_cmpstr (series->filled, ==, "c");
  g_assert_cmpstr (series->empty, ==, "b,object,value");
}

static void
test_unsupported (void)
{
  static const char *const entries[] = {
    "7",
    "[]",
    "null",
    "{}",
    "{\"name\": \"a\"}",
    "{\"name\": \"a\", \"value\": null}",
    "{\"name\": \"a\", \"value\": null, \"type\": \"string\"}",
    "{\"name\": \"a\", \"value\": []}",
    "{\"name\": \"a\", \"value\": {}}",
    "{\"name\": \"a\", \"value\": \"x\", \"type\": \"gauge\"}",
    "{\"name\": \"a\", \"value\": \"\", \"type\": \"counter\"}",
    "{\"name\": \"a\", \"value\": \"1e999\", \"type\": \"counter\"}",
    "{\"name\": \"a\", \"value\": \"nan\", \"type\": \"counter\"}",
    "{\"name\": \"a\", \"value\": \"1 2\", \"type\": \"counter\"}",
    "{\"name\": \"a\", \"value\": [1], \"type\": \"counter\"}",
    "{\"name\": \"\", \"value\": 1}",
    "{\"name\": 7, \"value\": 1}",
    "{\"value\": 1}",
    "{\"name\": \"a\", \"value\": 1, \"fields\": [1]}",
  };

  for (guint i = 0; i < G_N_ELEMENTS (entries); i++)
    g_assert_null (map (entries[i]));
}

/* A guest does not decide how much one series may be. */
static void
test_too_much (void)
{
  g_autofree char *name = g_strnfill (513, 'a');
  g_autofree char *entry = g_strdup_printf ("{\"name\": \"%s\", \"value\": 1}", name);
  g_autoptr (GString) fields = g_string_new ("{\"name\": \"a\", \"value\": 1, \"fields\": {\"x\": 1");

  g_assert_null (map (entry));
  for (guint i = 0; i < 64; i++)
    g_string_append_printf (fields, ", \"f%u\": 1", i);
  g_string_append (fields, "}}");
  g_assert_null (map (fields->str));
}

static VmmGuestReport *
parse (const char *text, GError **error)
{
  g_autoptr (GBytes) bytes = g_bytes_new (text, strlen (text));

  return vmm_guest_report_parse (bytes, error);
}

static void
test_report (void)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (VmmGuestReport) report
    = parse ("{\"mediaType\": \"application/vnd.io.systemd.report\", \"extra\": [],"
             " \"timestamp\": \"Sat 2026-09-12 14:17:48 UTC\", \"metrics\": ["
             "{\"name\": \"a\", \"value\": 1, \"type\": \"gauge\", \"junk\": 1},"
             "{\"name\": \"a\", \"object\": \"o\", \"value\": 2}, {\"name\": \"b\"}, 7]}",
             &error);
  g_autoptr (JsonNode) sample = NULL;
  g_autofree char *text = NULL;

  g_assert_no_error (error);
  g_assert_cmpuint (json_array_get_length (report->entries), ==, 4);
  g_assert_cmpuint (report->n_families, ==, 2);
  g_assert_cmpint (report->generated_at, ==, G_GINT64_CONSTANT (1789222668) * G_USEC_PER_SEC);
  sample = vmm_json_node_take_array (json_array_ref (report->sample));
  text = vmm_json_to_line (sample, NULL);
  g_assert_cmpstr (text, ==,
                   "[{\"name\":\"a\",\"value\":1,\"type\":\"gauge\"},"
                   "{\"name\":\"a\",\"object\":\"o\",\"value\":2},{\"name\":\"b\"},{}]");
}

static void
test_empty_report (void)
{
  static const char *const texts[] = { "{}", "{\"metrics\": null}", "{\"metrics\": []}",
                                       "{\"timestamp\": 7}" };

  for (guint i = 0; i < G_N_ELEMENTS (texts); i++)
    {
      g_autoptr (GError) error = NULL;
      g_autoptr (VmmGuestReport) report = parse (texts[i], &error);

      g_assert_no_error (error);
      g_assert_cmpuint (json_array_get_length (report->entries), ==, 0);
    }
}

static void
test_timestamps (void)
{
  static const char *const texts[] = { "Sat 2026-09-12 14:17:48 CEST", "Sat 2026-13-12 14:17:48 UTC",
                                       "2026-09-12T14:17:48Z", "", "Sat 2026-09-12 14:17:4x UTC" };

  for (guint i = 0; i < G_N_ELEMENTS (texts); i++)
    {
      g_autofree char *text = g_strdup_printf ("{\"timestamp\": \"%s\"}", texts[i]);
      g_autoptr (VmmGuestReport) report = parse (text, NULL);

      g_assert_cmpint (report->generated_at, ==, 0);
    }
}

static void
test_no_report (void)
{
  static const char *const texts[] = { "", "[]", "null", "7", "{", "{} {}", "{\"metrics\": {}}",
                                       "{\"metrics\": [1,]}", "\xff" };
  g_autofree char *large = g_malloc0 (VMM_GUEST_REPORT_MAX + 1);
  g_autoptr (GBytes) bytes = g_bytes_new_static (large, VMM_GUEST_REPORT_MAX + 1);
  g_autoptr (GError) error = NULL;

  for (guint i = 0; i < G_N_ELEMENTS (texts); i++)
    {
      g_autoptr (GError) refusal = NULL;

      g_assert_null (parse (texts[i], &refusal));
      g_assert_error (refusal, VMM_ERROR, VMM_ERROR_INVALID_REQUEST);
    }
  g_assert_null (vmm_guest_report_parse (bytes, &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_INVALID_REQUEST);
}

static void
test_large_sample (void)
{
  g_autofree char *value = g_strnfill (40000, 'a');
  g_autofree char *text
    = g_strdup_printf ("{\"metrics\": [{\"name\": \"a\", \"value\": \"%s\"}, {\"name\": \"b\", "
                       "\"value\": \"%s\"}]}",
                       value, value);
  g_autoptr (VmmGuestReport) report = parse (text, NULL);

  g_assert_cmpuint (json_array_get_length (report->entries), ==, 2);
  g_assert_cmpuint (json_array_get_length (report->sample), ==, 1);
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, G_TEST_OPTION_ISOLATE_DIRS, NULL);
  g_test_add_func ("/guest-report/metric-names", test_metric_names);
  g_test_add_func ("/guest-report/label-names", test_label_names);
  g_test_add_func ("/guest-report/series", test_series);
  g_test_add_func ("/guest-report/label-sets", test_label_sets);
  g_test_add_func ("/guest-report/unsupported", test_unsupported);
  g_test_add_func ("/guest-report/too-much", test_too_much);
  g_test_add_func ("/guest-report/report", test_report);
  g_test_add_func ("/guest-report/empty-report", test_empty_report);
  g_test_add_func ("/guest-report/timestamps", test_timestamps);
  g_test_add_func ("/guest-report/no-report", test_no_report);
  g_test_add_func ("/guest-report/large-sample", test_large_sample);
  return g_test_run ();
}
