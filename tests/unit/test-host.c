/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The host report, with small scripts in place of outside programs. */

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <glib/gstdio.h>

#include "interfaces/vmm.h"
#include "test-await.h"
#include "test-plugins.h"
#include "vmm-host-probe.h"
#include "vmm-host.h"
#include "vmm-json.h"
#include "vmm-log.h"

/* Long for a small script, short for a test of one that hangs. */
#define LIMIT_MS 20000
#define SHORT_LIMIT_MS 100
/* sha256 of "firmware" */
#define FIRMWARE_SHA256 "c3bf47ea1f4a4a605470313cacb3a44f4a461f68c6faeab07e737610cb5ac835"

typedef struct
{
  char *directory;
  char *path;
  VmmPluginRegistry *registry;
  VmmHost *host;
} Fixture;

static char *
in_directory (Fixture *fixture, const char *name)
{
  return g_build_filename (fixture->directory, name, NULL);
}

static void
write_file (Fixture *fixture, const char *name, const char *content, guint mode)
{
  g_autofree char *path = in_directory (fixture, name);
  g_autofree char *folder = g_path_get_dirname (path);

  g_assert_no_errno (g_mkdir_with_parents (folder, 0755));
  g_assert_true (g_file_set_contents (path, content, -1, NULL));
  g_assert_no_errno (g_chmod (path, (int) mode));
}

/* A program on PATH that counts how often it is run. */
static void
add_program (Fixture *fixture, const char *name, const char *script)
{
  g_autofree char *file = g_build_filename ("bin", name, NULL);
  g_autofree char *text
      = g_strdup_printf ("#!/bin/sh\necho %s >> %s/runs\n%s\n", name, fixture->directory, script);

  write_file (fixture, file, text, 0755);
}

/* One that does as told when it is to run a guest with KVM. */
static void
add_qemu (Fixture *fixture, const char *guest)
{
  g_autofree char *script = g_strdup_printf (
      "case \"$*\" in\n"
      "*'-accel kvm'*) %s;;\n"
      "*'-device help'*) echo 'name \"tpm-crb\"'; echo 'name \"vhost-user-vsock-pci\", bus PCI';;\n"
      "*) echo 'QEMU emulator version 7.2.22 (Debian 1:7.2)';;\n"
      "esac",
      guest);

  add_program (fixture, "qemu-system-x86_64", script);
}

static void
remove_file (Fixture *fixture, const char *name)
{
  g_autofree char *path = in_directory (fixture, name);

  g_assert_no_errno (g_unlink (path));
}

static char *
runs (Fixture *fixture)
{
  g_autofree char *path = in_directory (fixture, "runs");
  char *text = NULL;

  if (!g_file_get_contents (path, &text, NULL, NULL))
    return g_strdup ("");
  g_unlink (path);
  return text;
}

static void
new_host_with (Fixture *fixture, VmmPluginRegistry *registry, const char *accelerator)
{
  g_autofree char *kvm = in_directory (fixture, "kvm");
  g_autofree char *vsock = in_directory (fixture, "vsock");
  g_autofree char *providers = in_directory (fixture, "providers");
  g_autofree char *code = in_directory (fixture, "code.fd");
  g_autofree char *vars = in_directory (fixture, "vars.fd");
  const char *pairs[] = { "ovmf-code", code, "ovmf-vars", vars, "accelerator", accelerator, NULL };
  g_autoptr (GError) error = NULL;
  g_autoptr (VmmOptions) options = vmm_options_new_for_test (pairs, &error);

  g_assert_no_error (error);
  g_clear_object (&fixture->host);
  fixture->host = vmm_host_new (options, registry);
  vmm_host_set_places (fixture->host, kvm, vsock, providers);
  vmm_host_set_probe_limit (fixture->host, LIMIT_MS);
}

static void
new_host (Fixture *fixture, VmmPluginRegistry *registry)
{
  new_host_with (fixture, registry, "auto");
}

/* A host that has everything. */
static void
set_up (Fixture *fixture, gconstpointer data)
{
  g_autofree char *bin = NULL;

  fixture->directory = test_make_directory ();
  fixture->path = g_strdup (g_getenv ("PATH"));
  bin = in_directory (fixture, "bin");
  g_setenv ("PATH", bin, TRUE);
  g_setenv ("VM_MANAGER_HELPER_DIR", bin, TRUE);
  add_qemu (fixture, "exit 85");
  add_program (fixture, "swtpm_setup", "exit 1");
  add_program (fixture, "vmm-monitor", "exit 1");
  add_program (fixture, "swtpm", "echo 'TPM emulator version 0.7.1, Copyright (c) 2014'");
  add_program (fixture, "systemctl", "echo 'systemd 252 (252.39-1~deb12u1)'; echo '+PAM'");
  add_program (fixture, "dpkg-query",
               "case $1 in\n"
               "--search) echo 'diversion by x from: /y'; echo \"ovmf, other:amd64: $2\";;\n"
               "--show) echo \"2022.11-6+deb12u2\";;\n"
               "esac");
  write_file (fixture, "kvm", "", 0600);
  write_file (fixture, "vsock", "", 0600);
  write_file (fixture, "code.fd", "firmware", 0644);
  write_file (fixture, "vars.fd", "variables", 0644);
  write_file (fixture, "providers/zfs", "", 0600);
  write_file (fixture, "providers/fs", "", 0600);
  write_file (fixture, "providers/folder/inside", "", 0600);
  new_host (fixture, NULL);
}

static void
tear_down (Fixture *fixture, gconstpointer data)
{
  test_drain ();
  g_assert_cmpint (waitpid (-1, NULL, WNOHANG), ==, -1);
  g_assert_cmpint (errno, ==, ECHILD);
  g_clear_object (&fixture->host);
  g_clear_object (&fixture->registry);
  g_setenv ("PATH", fixture->path, TRUE);
  g_free (fixture->path);
  test_remove_directory (fixture->directory);
}

static JsonNode *
describe (Fixture *fixture)
{
  TestAwait await = TEST_AWAIT_INIT;
  g_autoptr (GAsyncResult) result = NULL;
  g_autoptr (GError) error = NULL;
  JsonNode *node;

  vmm_host_describe_async (fixture->host, NULL, test_await_cb, &await);
  result = test_await (&await);
  node = vmm_host_describe_finish (fixture->host, result, &error);
  g_assert_no_error (error);
  g_assert_true (JSON_NODE_HOLDS_OBJECT (node));
  return node;
}

/* A member as text; "" when there is none. */
static char *
member (JsonNode *report, const char *name)
{
  JsonNode *node = json_object_get_member (json_node_get_object (report), name);
  gsize length;

  return node != NULL ? vmm_json_to_line (node, &length) : g_strdup ("");
}

static void
assert_member (JsonNode *report, const char *name, const char *text)
{
  g_autofree char *value = member (report, name);

  g_assert_cmpstr (value, ==, text);
}

static void
assert_member_matches (JsonNode *report, const char *name, const char *pattern)
{
  g_autofree char *value = member (report, name);

  g_test_message ("%s: %s", name, value);
  g_assert_true (g_pattern_match_simple (pattern, value));
}

static void
test_complete (Fixture *fixture, gconstpointer data)
{
  g_autoptr (JsonNode) report = describe (fixture);
  JsonObject *object = json_node_get_object (report);
  g_autofree char *kvm
      = g_strdup_printf ("{\"path\":\"%s/kvm\",\"accessible\":true,\"usable\":true}", fixture->directory);
  g_autofree char *code = g_strdup_printf ("\"%s/code.fd\"", fixture->directory);
  char name[256] = "";

  g_assert_no_errno (gethostname (name, sizeof name));
  g_assert_cmpstr (json_object_get_string_member (object, "hostname"), ==, name);
  g_assert_cmpuint (strlen (json_object_get_string_member (object, "kernel")), >, 0);
  g_assert_cmpint (json_object_get_int_member (object, "cpus"), ==, g_get_num_processors ());
  g_assert_cmpint (json_object_get_int_member (object, "memoryBytes"), >, 1 << 20);
  g_assert_cmpint (json_object_get_int_member (object, "memoryBytes") % 1024, ==, 0);
  assert_member (report, "kvm", kvm);
  assert_member (report, "qemu", "{\"found\":true,\"version\":\"7.2.22\"}");
  assert_member (report, "swtpm", "{\"found\":true,\"version\":\"0.7.1\"}");
  assert_member (report, "systemd", "{\"found\":true,\"version\":\"252\"}");
  assert_member (report, "ovmfCode", code);
  assert_member (report, "firmware",
                 "{\"sha256\":\"" FIRMWARE_SHA256 "\",\"package\":\"ovmf\","
                 "\"version\":\"2022.11-6+deb12u2\"}");
  assert_member (report, "storageProviders", "[\"fs\",\"zfs\"]");
  assert_member (report, "accelerator", "\"kvm\"");
  assert_member (report, "vsock", "\"vhost\"");
  assert_member (report, "ready", "true");
  assert_member (report, "missing", "");
  assert_member (report, "plugins", "[]");
  assert_member_matches (report, "libraries", "{\"glib\":\"2.*\",\"libsoup\":\"3.*\"}");
  g_assert_false (vmm_host_is_emulated (fixture->host));
}

static void
test_nothing (Fixture *fixture, gconstpointer data)
{
  static const char *const gone[] = { "bin/qemu-system-x86_64",
                                      "bin/swtpm",
                                      "bin/swtpm_setup",
                                      "bin/vmm-monitor",
                                      "bin/systemctl",
                                      "bin/dpkg-query",
                                      "kvm",
                                      "vsock",
                                      "code.fd",
                                      "providers/fs",
                                      "providers/zfs" };
  g_autoptr (JsonNode) report = NULL;
  g_autofree char *missing
      = g_strdup_printf ("[\"%s/kvm\",\"%s/vsock\",\"qemu-system-x86_64\","
                         "\"swtpm\",\"swtpm_setup\",\"vmm-monitor\",\"OVMF code image %s/code.fd\"]",
                         fixture->directory, fixture->directory, fixture->directory);
  g_autofree char *kvm = g_strdup_printf ("{\"path\":\"%s/kvm\",\"accessible\":false,"
                                          "\"usable\":false,\"error\":\"no such file or directory\"}",
                                          fixture->directory);

  for (guint i = 0; i < G_N_ELEMENTS (gone); i++)
    remove_file (fixture, gone[i]);
  report = describe (fixture);
  assert_member (report, "kvm", kvm);
  assert_member (report, "qemu",
                 "{\"found\":false,\"error\":\"executable file not found in $PATH\"}");
  assert_member (report, "systemd",
                 "{\"found\":false,\"error\":\"executable file not found in $PATH\"}");
  assert_member (report, "ovmfCode", "");
  assert_member (report, "firmware", "");
  assert_member (report, "storageProviders", "[]");
  assert_member (report, "accelerator", "\"tcg\"");
  assert_member (report, "vsock", "\"none\"");
  assert_member (report, "ready", "false");
  assert_member (report, "missing", missing);
}

static void
test_substitutes (Fixture *fixture, gconstpointer data)
{
  g_autoptr (JsonNode) report = NULL;
  g_autofree char *missing = g_strdup_printf ("[\"%s/vsock\"]", fixture->directory);

  remove_file (fixture, "kvm");
  remove_file (fixture, "vsock");
  report = describe (fixture);
  assert_member (report, "accelerator", "\"tcg\"");
  assert_member (report, "vsock", "\"none\"");
  assert_member (report, "missing", missing);
  g_clear_pointer (&report, json_node_unref);

  add_program (fixture, "vhost-device-vsock", "exit 1");
  report = describe (fixture);
  assert_member (report, "vsock", "\"vhost-user\"");
  assert_member (report, "ready", "true");
  assert_member (report, "missing", "");
}

static void
test_emulated (Fixture *fixture, gconstpointer data)
{
  remove_file (fixture, "kvm");
  new_host (fixture, NULL);
  g_assert_true (vmm_host_is_emulated (fixture->host));
  json_node_unref (describe (fixture));
  g_assert_true (vmm_host_is_emulated (fixture->host));
  /* It is looked at anew each time. */
  write_file (fixture, "kvm", "", 0600);
  json_node_unref (describe (fixture));
  g_assert_false (vmm_host_is_emulated (fixture->host));
}

static gboolean
find_ways (Fixture *fixture, VmmHostWays *ways, GError **error)
{
  TestAwait await = TEST_AWAIT_INIT;
  g_autoptr (GAsyncResult) result = NULL;

  vmm_host_find_ways_async (fixture->host, NULL, test_await_cb, &await);
  result = test_await (&await);
  return vmm_host_find_ways_finish (fixture->host, result, ways, error);
}

static void
find_ways_well (Fixture *fixture, gboolean emulated, VmmHostVsock vsock)
{
  g_autoptr (GError) error = NULL;
  VmmHostWays ways;

  g_assert_true (find_ways (fixture, &ways, &error));
  g_assert_no_error (error);
  g_assert_cmpint (ways.emulated, ==, emulated);
  g_assert_cmpint (ways.vsock, ==, vsock);
  g_assert_cmpint (vmm_host_is_emulated (fixture->host), ==, emulated);
}

/* A start runs nothing but the one guest, and that once for each QEMU and each device node. */
static void
test_kvm_works (Fixture *fixture, gconstpointer data)
{
  g_autofree char *kvm = in_directory (fixture, "kvm");
  g_autofree char *first = NULL;
  g_autofree char *second = NULL;
  g_autofree char *third = NULL;
  g_autofree char *fourth = NULL;

  find_ways_well (fixture, FALSE, VMM_HOST_VSOCK_VHOST);
  first = runs (fixture);
  g_assert_cmpstr (first, ==, "qemu-system-x86_64\n");
  find_ways_well (fixture, FALSE, VMM_HOST_VSOCK_VHOST);
  second = runs (fixture);
  g_assert_cmpstr (second, ==, "");
  add_qemu (fixture, "echo broken >&2; exit 1");
  find_ways_well (fixture, TRUE, VMM_HOST_VSOCK_VHOST);
  third = runs (fixture);
  g_assert_cmpstr (third, ==, "qemu-system-x86_64\n");
  g_assert_no_errno (g_chmod (kvm, 0644));
  find_ways_well (fixture, TRUE, VMM_HOST_VSOCK_VHOST);
  fourth = runs (fixture);
  g_assert_cmpstr (fourth, ==, "qemu-system-x86_64\n");
}

static void
assert_kvm_error (Fixture *fixture, const char *error)
{
  g_autoptr (JsonNode) report = describe (fixture);
  g_autofree char *kvm = g_strdup_printf (
      "{\"path\":\"%s/kvm\",\"accessible\":true,\"usable\":false,\"error\":\"%s\"}",
      fixture->directory, error);

  assert_member (report, "kvm", kvm);
  assert_member (report, "accelerator", "\"tcg\"");
  assert_member (report, "ready", "true");
}

/* The ways in which it is there and does not work. */
static void
test_kvm_fails (Fixture *fixture, gconstpointer data)
{
  add_qemu (fixture, "echo 'error: failed to set MSR 0x10a to 0x69' >&2; kill -6 $$");
  assert_kvm_error (fixture, "qemu does not run a guest with it: ended by signal 6: error: failed "
                             "to set MSR 0x10a to 0x69");
  /* Only the guest's own end counts. */
  add_qemu (fixture, "exit 0");
  assert_kvm_error (fixture, "qemu does not run a guest with it: exit status 0");
  /* One whose guest stopped would stay for ever. */
  add_qemu (fixture, "echo 'warning: this' >&2; echo 'KVM internal error. Suberror: 1' >&2; "
                     "exec /bin/sleep 300");
  assert_kvm_error (fixture,
                    "qemu does not run a guest with it: KVM internal error. Suberror: 1");
  vmm_host_set_probe_limit (fixture->host, SHORT_LIMIT_MS);
  add_qemu (fixture, "exec /bin/sleep 300");
  find_ways_well (fixture, TRUE, VMM_HOST_VSOCK_VHOST);
}

static void
test_accelerator_chosen (Fixture *fixture, gconstpointer data)
{
  g_autofree char *ran = NULL;
  g_autofree char *text = NULL;
  g_autofree char *missing = g_strdup_printf ("[\"%s/kvm\"]", fixture->directory);
  g_autoptr (JsonNode) report = NULL;
  g_autoptr (GError) error = NULL;
  VmmHostWays ways;

  new_host_with (fixture, NULL, "tcg");
  find_ways_well (fixture, TRUE, VMM_HOST_VSOCK_VHOST);
  ran = runs (fixture);
  g_assert_cmpstr (ran, ==, "");

  new_host_with (fixture, NULL, "kvm");
  find_ways_well (fixture, FALSE, VMM_HOST_VSOCK_VHOST);
  add_qemu (fixture, "echo no >&2; exit 1");
  g_assert_false (find_ways (fixture, &ways, &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_UNSUPPORTED);
  text = g_strdup_printf ("unsupported: kvm was asked for and cannot be used: %s/kvm: qemu does not "
                          "run a guest with it: exit status 1: no; --accelerator=auto emulates "
                          "guests instead",
                          fixture->directory);
  g_assert_cmpstr (error->message, ==, text);
  report = describe (fixture);
  assert_member (report, "missing", missing);
}

/* The real QEMU, told to emulate: the guest does what it is for. */
static void
test_kvm_guest (Fixture *fixture, gconstpointer data)
{
  g_auto (GStrv) folders = g_strsplit (fixture->path, ":", -1);
  g_autofree char *script = NULL;

  for (guint i = 0; folders[i] != NULL && script == NULL; i++)
    {
      g_autofree char *real = g_build_filename (folders[i], "qemu-system-x86_64", NULL);

      if (g_file_test (real, G_FILE_TEST_IS_EXECUTABLE))
        script = g_strdup_printf ("i=$#; while test $i -gt 0; do a=$1; shift; i=$((i-1)); "
                                  "case $a in kvm) a=tcg;; host) a=max;; esac; set -- \"$@\" $a; "
                                  "done; exec %s \"$@\"",
                                  real);
    }
  if (script == NULL)
    {
      g_test_skip ("there is no qemu-system-x86_64");
      return;
    }
  add_qemu (fixture, script);
  find_ways_well (fixture, FALSE, VMM_HOST_VSOCK_VHOST);
}

static void
test_vsock_ways (Fixture *fixture, gconstpointer data)
{
  g_autoptr (GError) error = NULL;
  g_autofree char *none = g_strdup_printf (
      "unsupported: no vsock device: %s/vsock: no such file or directory, and there is no "
      "vhost-device-vsock on PATH; load the module vhost_vsock and let this user open its device, "
      "or install vhost-device-vsock",
      fixture->directory);
  VmmHostWays ways;

  remove_file (fixture, "vsock");
  g_assert_false (find_ways (fixture, &ways, &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_UNSUPPORTED);
  g_assert_cmpstr (error->message, ==, none);
  g_clear_error (&error);
  add_program (fixture, "vhost-device-vsock", "exit 1");
  find_ways_well (fixture, FALSE, VMM_HOST_VSOCK_VHOST_USER);
  /* A QEMU without the device for it. */
  add_program (fixture, "qemu-system-x86_64", "echo 'name \"vhost-vsock-pci\"'; exit 0");
  g_assert_false (find_ways (fixture, &ways, &error));
  g_assert_nonnull (strstr (error->message, "qemu has no vhost-user-vsock-pci"));
  write_file (fixture, "vsock", "", 0600);
  find_ways_well (fixture, TRUE, VMM_HOST_VSOCK_VHOST);
}

/* Both kinds of question at once: each gets its answer. */
static void
test_ways_and_report (Fixture *fixture, gconstpointer data)
{
  TestAwait awaits[3] = { TEST_AWAIT_INIT };
  g_autoptr (GAsyncResult) first = NULL;
  g_autoptr (GAsyncResult) second = NULL;
  g_autoptr (GAsyncResult) third = NULL;
  g_autoptr (JsonNode) node = NULL;
  g_autoptr (GError) error = NULL;
  VmmHostWays ways;

  vmm_host_find_ways_async (fixture->host, NULL, test_await_cb, &awaits[0]);
  vmm_host_describe_async (fixture->host, NULL, test_await_cb, &awaits[1]);
  vmm_host_find_ways_async (fixture->host, NULL, test_await_cb, &awaits[2]);
  first = test_await (&awaits[0]);
  second = test_await (&awaits[1]);
  third = test_await (&awaits[2]);
  g_assert_true (vmm_host_find_ways_finish (fixture->host, first, &ways, &error));
  g_assert_true (vmm_host_find_ways_finish (fixture->host, third, &ways, &error));
  node = vmm_host_describe_finish (fixture->host, second, &error);
  g_assert_no_error (error);
  assert_member (node, "ready", "true");
}

static void
test_asked_once (Fixture *fixture, gconstpointer data)
{
  g_autofree char *first = NULL;
  g_autofree char *second = NULL;
  g_autofree char *third = NULL;
  g_autofree char *fourth = NULL;
  g_autofree char *fifth = NULL;
  g_autoptr (JsonNode) report = NULL;

  json_node_unref (describe (fixture));
  first = runs (fixture);
  g_assert_cmpuint (strlen (first), ==,
                    strlen ("qemu-system-x86_64\nqemu-system-x86_64\nqemu-system-x86_64\nswtpm\n"
                            "systemctl\ndpkg-query\ndpkg-query\n"));

  /* The steady state runs nothing. */
  json_node_unref (describe (fixture));
  second = runs (fixture);
  g_assert_cmpstr (second, ==, "");

  /* What has become another file is asked again, and alone. */
  add_program (fixture, "swtpm", "echo TPM emulator version 0.10.1");
  report = describe (fixture);
  third = runs (fixture);
  g_assert_cmpstr (third, ==, "swtpm\n");
  assert_member (report, "swtpm", "{\"found\":true,\"version\":\"0.10.1\"}");
  write_file (fixture, "code.fd", "another firmware", 0644);
  json_node_unref (describe (fixture));
  fourth = runs (fixture);
  g_assert_cmpstr (fourth, ==, "dpkg-query\ndpkg-query\n");
  /* A program that is gone is not run, either. */
  remove_file (fixture, "bin/swtpm");
  json_node_unref (describe (fixture));
  fifth = runs (fixture);
  g_assert_cmpstr (fifth, ==, "");
}

static void
test_shared (Fixture *fixture, gconstpointer data)
{
  TestAwait awaits[3] = { TEST_AWAIT_INIT };
  g_autofree char *ran = NULL;
  JsonNode *first = NULL;

  for (guint i = 0; i < G_N_ELEMENTS (awaits); i++)
    vmm_host_describe_async (fixture->host, NULL, test_await_cb, &awaits[i]);
  for (guint i = 0; i < G_N_ELEMENTS (awaits); i++)
    {
      g_autoptr (GAsyncResult) result = test_await (&awaits[i]);
      g_autoptr (JsonNode) node = vmm_host_describe_finish (fixture->host, result, NULL);

      g_assert_nonnull (node);
      g_assert_true (json_node_is_immutable (node));
      if (first == NULL)
        first = node; /* only compared */
      g_assert_true (node == first);
    }
  ran = runs (fixture);
  g_assert_cmpuint (strlen (ran), ==,
                    strlen ("qemu-system-x86_64\nqemu-system-x86_64\nqemu-system-x86_64\nswtpm\n"
                            "systemctl\ndpkg-query\ndpkg-query\n"));
}

static void
test_cancelled (Fixture *fixture, gconstpointer data)
{
  g_autoptr (GCancellable) before = g_cancellable_new ();
  g_autoptr (GCancellable) later = g_cancellable_new ();
  TestAwait awaits[3] = { TEST_AWAIT_INIT };
  g_autoptr (GAsyncResult) first = NULL;
  g_autoptr (GAsyncResult) second = NULL;
  g_autoptr (GAsyncResult) third = NULL;
  g_autoptr (JsonNode) node = NULL;
  g_autoptr (GError) error = NULL;

  g_cancellable_cancel (before);
  vmm_host_describe_async (fixture->host, before, test_await_cb, &awaits[0]);
  vmm_host_describe_async (fixture->host, later, test_await_cb, &awaits[1]);
  vmm_host_describe_async (fixture->host, NULL, test_await_cb, &awaits[2]);
  g_cancellable_cancel (later);
  first = test_await (&awaits[0]);
  second = test_await (&awaits[1]);
  /* The third still waits. */
  g_assert_null (awaits[2].result);
  third = test_await (&awaits[2]);

  g_assert_null (vmm_host_describe_finish (fixture->host, first, &error));
  g_assert_error (error, G_IO_ERROR, G_IO_ERROR_CANCELLED);
  g_clear_error (&error);
  g_assert_null (vmm_host_describe_finish (fixture->host, second, &error));
  g_assert_error (error, G_IO_ERROR, G_IO_ERROR_CANCELLED);
  g_clear_error (&error);
  node = vmm_host_describe_finish (fixture->host, third, &error);
  g_assert_no_error (error);
  g_assert_nonnull (node);
}

/* Nobody waits any more: the description ends by itself, and the next one is a new one. */
static void
test_all_cancelled (Fixture *fixture, gconstpointer data)
{
  g_autoptr (GCancellable) cancellable = g_cancellable_new ();
  TestAwait await = TEST_AWAIT_INIT;
  g_autoptr (GAsyncResult) result = NULL;
  g_autoptr (JsonNode) node = NULL;

  vmm_host_describe_async (fixture->host, cancellable, test_await_cb, &await);
  g_cancellable_cancel (cancellable);
  result = test_await (&await);
  g_assert_null (vmm_host_describe_finish (fixture->host, result, NULL));
  node = describe (fixture);
  assert_member (node, "ready", "true");
}

static void
test_hanging_tool (Fixture *fixture, gconstpointer data)
{
  g_autofree char *fifo = in_directory (fixture, "fifo");
  g_autofree char *script = g_strdup_printf ("read line < %s", fifo);
  g_autoptr (JsonNode) report = NULL;
  g_autofree char *second = NULL;

  g_assert_no_errno (mkfifo (fifo, 0600));
  json_node_unref (describe (fixture));
  g_free (runs (fixture));
  add_program (fixture, "swtpm", script);
  vmm_host_set_probe_limit (fixture->host, SHORT_LIMIT_MS);
  report = describe (fixture);
  assert_member (report, "swtpm", "{\"found\":false,\"error\":\"no answer within 0.1 s\"}");
  assert_member (report, "missing", "[\"swtpm\"]");
  g_free (runs (fixture));
  /* It is remembered for a while. */
  json_node_unref (describe (fixture));
  second = runs (fixture);
  g_assert_cmpstr (second, ==, "");
}

static void
test_bad_tools (Fixture *fixture, gconstpointer data)
{
  g_autoptr (JsonNode) report = NULL;
  g_autofree char *plain = in_directory (fixture, "bin/systemctl");

  add_program (fixture, "qemu-system-x86_64", "echo 'cannot\nfor reasons' >&2; exit 3");
  add_program (fixture, "swtpm", "kill -9 $$");
  /* It is there, but it is not a program. */
  g_assert_no_errno (g_chmod (plain, 0644));
  report = describe (fixture);
  assert_member (report, "qemu", "{\"found\":false,\"error\":\"exit status 3: cannot\"}");
  assert_member (report, "swtpm", "{\"found\":false,\"error\":\"ended by signal 9\"}");
  assert_member (report, "systemd",
                 "{\"found\":false,\"error\":\"executable file not found in $PATH\"}");
  g_clear_pointer (&report, json_node_unref);

  add_program (fixture, "qemu-system-x86_64", "echo nothing of the kind");
  add_program (fixture, "swtpm", "while :; do echo 0123456789abcdef0123456789abcdef; done");
  report = describe (fixture);
  assert_member (report, "qemu", "{\"found\":true}");
  assert_member (report, "swtpm", "{\"found\":false,\"error\":\"wrote more than 65536 bytes\"}");
  g_clear_pointer (&report, json_node_unref);

  write_file (fixture, "bin/swtpm", "#!/no/such/interpreter\n", 0755);
  report = describe (fixture);
  assert_member_matches (report, "swtpm", "{\"found\":false,\"error\":\"*No such file*\"}");
}

/* A child of the tool holds its output open: the tool has answered, but nobody knows. */
static void
test_output_held_open (Fixture *fixture, gconstpointer data)
{
  g_autofree char *fifo = in_directory (fixture, "fifo");
  g_autofree char *script = g_strdup_printf ("(read line < %s) & echo version 1", fifo);
  g_autoptr (JsonNode) report = NULL;
  int fd;

  g_assert_no_errno (mkfifo (fifo, 0600));
  json_node_unref (describe (fixture));
  add_program (fixture, "swtpm", script);
  vmm_host_set_probe_limit (fixture->host, SHORT_LIMIT_MS);
  report = describe (fixture);
  assert_member (report, "swtpm", "{\"found\":false,\"error\":\"no answer within 0.1 s\"}");
  /* Lets it go. */
  fd = open (fifo, O_RDWR | O_CLOEXEC);
  g_assert_cmpint (fd, >=, 0);
  g_assert_cmpint (write (fd, "\n\n", 2), ==, 2);
  close (fd);
}

static void
test_firmware (Fixture *fixture, gconstpointer data)
{
  g_autoptr (JsonNode) report = NULL;
  g_autofree char *code = in_directory (fixture, "code.fd");
  g_autofree char *missing = g_strdup_printf ("[\"OVMF code image %s\"]", code);

  remove_file (fixture, "bin/dpkg-query");
  report = describe (fixture);
  assert_member (report, "firmware",
                 "{\"sha256\":\"" FIRMWARE_SHA256 "\","
                 "\"error\":\"dpkg-query: executable file not found in $PATH\"}");
  assert_member (report, "ready", "true");
  g_clear_pointer (&report, json_node_unref);

  add_program (fixture, "dpkg-query", "echo 'dpkg-query: no path found' >&2; exit 1");
  report = describe (fixture);
  assert_member (report, "firmware",
                 "{\"sha256\":\"" FIRMWARE_SHA256 "\","
                 "\"error\":\"exit status 1: dpkg-query: no path found\"}");
  g_clear_pointer (&report, json_node_unref);

  add_program (fixture, "dpkg-query", "echo nonsense");
  report = describe (fixture);
  assert_member (report, "firmware",
                 "{\"sha256\":\"" FIRMWARE_SHA256 "\","
                 "\"error\":\"dpkg-query named no package\"}");
  g_clear_pointer (&report, json_node_unref);

  add_program (fixture, "dpkg-query",
               "test $1 = --search && { echo \"ovmf: $2\"; exit; }; echo gone >&2; exit 2");
  report = describe (fixture);
  assert_member (report, "firmware",
                 "{\"sha256\":\"" FIRMWARE_SHA256 "\",\"error\":\"exit status 2: gone\"}");
  g_clear_pointer (&report, json_node_unref);

  g_assert_no_errno (g_unlink (code));
  g_assert_no_errno (g_mkdir (code, 0755));
  report = describe (fixture);
  assert_member (report, "firmware", "");
  assert_member (report, "missing", missing);
}

static void
test_firmware_choice (Fixture *fixture, gconstpointer data)
{
  g_autofree char *code = in_directory (fixture, "code.fd");
  g_autofree char *vars = in_directory (fixture, "vars.fd");
  const char *half[] = { "ovmf-code", "relative.fd", NULL };
  g_autoptr (VmmOptions) options = vmm_options_new_for_test (half, NULL);
  g_autoptr (VmmOptions) defaults = vmm_options_new_for_test (NULL, NULL);
  g_autoptr (VmmHost) other = vmm_host_new (options, NULL);
  g_autoptr (VmmHost) usual = vmm_host_new (defaults, NULL);
  g_autofree char *here = g_get_current_dir ();
  g_autofree char *relative = g_build_filename (here, "relative.fd", NULL);

  g_assert_cmpstr (vmm_host_get_ovmf_code (fixture->host), ==, code);
  g_assert_cmpstr (vmm_host_get_ovmf_vars (fixture->host), ==, vars);
  g_assert_cmpstr (vmm_host_get_ovmf_code (other), ==, relative);
  g_assert_true (g_str_has_prefix (vmm_host_get_ovmf_vars (other), "/usr/share/"));
  g_assert_true (g_str_has_prefix (vmm_host_get_ovmf_code (usual), "/usr/share/"));
  g_assert_nonnull (strstr (vmm_host_get_ovmf_code (usual), "OVMF_CODE"));
  g_assert_nonnull (strstr (vmm_host_get_ovmf_vars (usual), "OVMF_VARS"));
}

/* A backend that adds to the report, also what it must not replace. */
#define TEST_TYPE_TALKER (test_talker_get_type ())
G_DECLARE_FINAL_TYPE (TestTalker, test_talker, TEST, TALKER, GObject)

struct _TestTalker
{
  GObject parent_instance;
};

static GVariant *
test_talker_describe_host (VmmBackend *backend)
{
  GVariantBuilder members;

  g_variant_builder_init (&members, G_VARIANT_TYPE_VARDICT);
  g_variant_builder_add (&members, "{sv}", "talk", g_variant_new_string ("small"));
  g_variant_builder_add (&members, "{sv}", "ready", g_variant_new_string ("never"));
  return g_variant_builder_end (&members);
}

static GStrv
test_talker_dup_capabilities (VmmBackend *backend)
{
  static const char *const capabilities[] = { "talk", "listen", NULL };

  return g_strdupv ((GStrv) capabilities);
}

static void
test_talker_backend_init (VmmBackendInterface *iface)
{
  iface->describe_host = test_talker_describe_host;
  iface->dup_capabilities = test_talker_dup_capabilities;
}

G_DEFINE_FINAL_TYPE_WITH_CODE (TestTalker, test_talker, G_TYPE_OBJECT,
                               G_IMPLEMENT_INTERFACE (VMM_TYPE_BACKEND, test_talker_backend_init)
                                   G_IMPLEMENT_INTERFACE (VMM_TYPE_LAUNCHER, NULL))

static void
test_talker_class_init (TestTalkerClass *klass)
{
}

static void
test_talker_init (TestTalker *self)
{
}

static JsonObject *
find_plugin (JsonNode *report, const char *name)
{
  JsonArray *plugins = json_object_get_array_member (json_node_get_object (report), "plugins");

  for (guint i = 0; i < json_array_get_length (plugins); i++)
    {
      JsonObject *plugin = json_array_get_object_element (plugins, i);

      if (g_strcmp0 (json_object_get_string_member_with_default (plugin, "name", NULL), name) == 0)
        return plugin;
    }
  g_assert_not_reached ();
}

static void
test_plugins (Fixture *fixture, gconstpointer data)
{
  g_autoptr (JsonNode) before = NULL;
  g_autoptr (JsonNode) after = NULL;
  JsonObject *plugin;

  g_type_ensure (VMM_TYPE_LAUNCHER);
  fixture->registry = vmm_plugin_registry_new ();
  g_io_extension_point_implement (VMM_LAUNCHER_EXTENSION_POINT, TEST_TYPE_TALKER, "talker", 50);
  g_clear_object (&fixture->registry);
  fixture->registry = test_load_plugins (fixture->directory, NULL);
  new_host (fixture, fixture->registry);

  before = describe (fixture);
  plugin = find_plugin (before, "noop");
  g_assert_cmpstr (json_object_get_string_member (plugin, "kind"), ==, "attestor");
  g_assert_true (json_object_get_boolean_member (plugin, "loaded"));
  g_assert_true (json_object_get_boolean_member (plugin, "available"));
  g_assert_false (json_object_get_boolean_member (plugin, "chosen"));
  g_assert_false (json_object_has_member (plugin, "capabilities"));
  g_assert_false (json_object_has_member (plugin, "reason"));
  assert_member (
      before, "attestation",
      "{\"verifies\":false,\"reason\":\"no attestor that verifies quotes is in use: a VM "
      "that requires attestation is refused\"}");
  assert_member (before, "missing", "[\"launcher plugin\",\"network plugin\",\"storage plugin\"]");
  /* What is not in use adds nothing. */
  assert_member (before, "talk", "");

  test_choose_plugin (fixture->registry, VMM_PLUGIN_KIND_ATTESTOR, "noop");
  test_choose_plugin (fixture->registry, VMM_PLUGIN_KIND_LAUNCHER, "talker");
  after = describe (fixture);
  plugin = find_plugin (after, "talker");
  g_assert_true (json_object_get_boolean_member (plugin, "chosen"));
  g_assert_cmpuint (json_array_get_length (json_object_get_array_member (plugin, "capabilities")),
                    ==, 2);
  g_assert_false (json_object_has_member (plugin, "file"));
  assert_member (after, "talk", "\"small\"");
  assert_member (after, "ready", "false");
  assert_member (after, "missing", "[\"network plugin\",\"storage plugin\"]");
  assert_member (
      after, "attestation",
      "{\"attestor\":\"noop\",\"verifies\":false,\"reason\":\"the noop attestor does not "
      "verify quotes: user data is released without proof\"}");
}

static void
test_parse_version (void)
{
  static const struct
  {
    const char *output;
    const char *word;
    const char *version;
  } cases[] = {
    { "QEMU emulator version 7.2.22 (Debian)\nmore", "version", "7.2.22" },
    { "TPM emulator version 0.7.1, Copyright", "version", "0.7.1" },
    { "x version 1;,", "version", "1" },
    { "systemd 252 (252.1)", "systemd", "252" },
    { "version", "version", NULL },
    { "version ,", "version", NULL },
    { "first\nversion 1", "version", NULL },
    { "", "version", NULL },
    { "version\t \t9", "version", "9" },
    { "version 1\3772", "version", "1\357\277\2752" },
  };

  for (guint i = 0; i < G_N_ELEMENTS (cases); i++)
    {
      g_autofree char *version = vmm_host_probe_parse_version (cases[i].output, cases[i].word);

      g_assert_cmpstr (version, ==, cases[i].version);
    }
}

static char *
probe (const char *const *argv, GCancellable *cancellable, GError **error)
{
  TestAwait await = TEST_AWAIT_INIT;
  g_autoptr (GAsyncResult) result = NULL;

  vmm_host_probe_async (argv, LIMIT_MS, cancellable, test_await_cb, &await);
  if (cancellable != NULL)
    g_cancellable_cancel (cancellable);
  result = test_await (&await);
  return vmm_host_probe_finish (result, error);
}

static void
test_probe (Fixture *fixture, gconstpointer data)
{
  const char *environment[] = { "/usr/bin/env", NULL };
  const char *hanging[] = { "/bin/sh", "-c", "exec /bin/sleep 300", NULL };
  g_autoptr (GCancellable) cancellable = g_cancellable_new ();
  g_autoptr (GError) error = NULL;
  g_autofree char *output = NULL;

  g_setenv ("SOME_SECRET", "secret", TRUE);
  output = probe (environment, NULL, &error);
  g_unsetenv ("SOME_SECRET");
  g_assert_no_error (error);
  g_assert_nonnull (strstr (output, "LC_ALL=C\n"));
  g_assert_null (strstr (output, "secret"));

  g_assert_null (probe (hanging, cancellable, &error));
  g_assert_error (error, G_IO_ERROR, G_IO_ERROR_CANCELLED);
  g_clear_error (&error);
  g_assert_null (probe (hanging, cancellable, &error)); /* cancelled before */
  g_assert_error (error, G_IO_ERROR, G_IO_ERROR_CANCELLED);
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, G_TEST_OPTION_ISOLATE_DIRS, NULL);
  vmm_log_init (FALSE);

#define ADD(path, function) g_test_add ("/host/" path, Fixture, NULL, set_up, function, tear_down)
  ADD ("complete", test_complete);
  ADD ("nothing", test_nothing);
  ADD ("substitutes", test_substitutes);
  ADD ("emulated", test_emulated);
  ADD ("kvm-works", test_kvm_works);
  ADD ("kvm-fails", test_kvm_fails);
  ADD ("kvm-guest", test_kvm_guest);
  ADD ("accelerator-chosen", test_accelerator_chosen);
  ADD ("vsock-ways", test_vsock_ways);
  ADD ("ways-and-report", test_ways_and_report);
  ADD ("asked-once", test_asked_once);
  ADD ("shared", test_shared);
  ADD ("cancelled", test_cancelled);
  ADD ("all-cancelled", test_all_cancelled);
  ADD ("hanging-tool", test_hanging_tool);
  ADD ("bad-tools", test_bad_tools);
  ADD ("output-held-open", test_output_held_open);
  ADD ("firmware", test_firmware);
  ADD ("firmware-choice", test_firmware_choice);
  ADD ("plugins", test_plugins);
  ADD ("probe", test_probe);
#undef ADD
  g_test_add_func ("/host/parse-version", test_parse_version);
  return g_test_run ();
}
