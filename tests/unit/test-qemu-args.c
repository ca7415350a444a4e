/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* QEMU's command line: golden files, what is refused, and that no value breaks out of its option.
 *
 * data/qemu-args/NAME.json describes a VM, NAME.args has one argument a line, escaped as in C.
 * VMM_TEST_REGENERATE=1 rewrites them. */
#include <string.h>

#include "interfaces/vmm-error.h"
#include "test-await.h"
#include "vmm-json.h"
#include "vmm-qemu-args.h"
#include "vmm-qmp.h"

/* Everything that could end a value, or begin another option, in some syntax or other. */
#define HOSTILE "/a\",b=c,,d' -device e,id=f\n-S \\,$(g)"

/* A VM to change one thing of. */
typedef struct
{
  VmmQemuConfig config;
  VmmQemuDrive drives[2];
  VmmQemuCredential credentials[2];
  const char *network[9];
} Case;

static void
case_init (Case *it)
{
  const Case good = {
    .config = {
      .id = "1a2b3c4d",
      .phase = "install",
      .accelerator = "tcg",
      .cpus = 1,
      .memory_mib = 512,
      .console_socket = "/s/console.sock",
      .qmp_socket = "/s/qmp.sock",
      .monitor_qmp_socket = "/s/qmp-monitor.sock",
      .ovmf_code = "/f/code",
      .ovmf_vars = "/f/vars",
      .uki = "/i/uki",
      .installer_disk = "/i/raw",
      .target_disk = "/s/disk",
      .n_drives = 2,
      .vsock = VMM_QEMU_VSOCK_VHOST_USER,
      .cid = 3,
      .vsock_socket = "/s/vsock.sock",
      .tpm_socket = "/s/tpm.sock",
      .n_credentials = 2,
      .kernel_cmdline_extra = "quiet",
    },
    .drives = { { "one", "/s/one", "raw", FALSE }, { "two", "/s/two", "qcow2", TRUE } },
    .credentials = { { "a", "1" }, { "b", "2" } },
    .network = { "-netdev", "user,id=net0", "-device",
                 "virtio-net-pci,netdev=net0,mac=02:00:00:00:00:01", NULL },
  };

  *it = good;
  it->config.drives = it->drives;
  it->config.credentials = it->credentials;
  it->config.network_arguments = it->network;
}

static char *
data_path (const char *name, const char *suffix)
{
  g_autofree char *file = g_strconcat (name, suffix, NULL);

  return g_test_build_filename (G_TEST_DIST, "unit", "data", "qemu-args", file, NULL);
}

static const char *
string_member (JsonObject *object, const char *member)
{
  const char *value = NULL;
  g_autoptr (GError) error = NULL;

  g_assert_true (vmm_json_get_string (object, member, NULL, &value, &error));
  g_assert_no_error (error);
  return value;
}

static gint64
int_member (JsonObject *object, const char *member)
{
  gint64 value = 0;

  g_assert_true (vmm_json_get_int (object, member, 0, &value, NULL));
  return value;
}

static void
read_drives (JsonObject *object, Case *it)
{
  JsonArray *array = NULL;

  g_assert_true (vmm_json_get_array (object, "drives", &array, NULL));
  it->config.n_drives = array != NULL ? json_array_get_length (array) : 0;
  it->config.drives = g_new0 (VmmQemuDrive, it->config.n_drives);
  for (guint i = 0; i < it->config.n_drives; i++)
    {
      JsonObject *drive = json_array_get_object_element (array, i);

      ((VmmQemuDrive *) it->config.drives)[i] = (VmmQemuDrive){
        string_member (drive, "serial"), string_member (drive, "path"),
        string_member (drive, "format"),
        json_object_get_boolean_member_with_default (drive, "read_only", FALSE)
      };
    }
}

static void
read_credentials (JsonObject *object, Case *it)
{
  JsonArray *array = NULL;

  g_assert_true (vmm_json_get_array (object, "credentials", &array, NULL));
  it->config.n_credentials = array != NULL ? json_array_get_length (array) : 0;
  it->config.credentials = g_new0 (VmmQemuCredential, it->config.n_credentials);
  for (guint i = 0; i < it->config.n_credentials; i++)
    {
      JsonArray *pair = json_array_get_array_element (array, i);

      ((VmmQemuCredential *) it->config.credentials)[i] = (VmmQemuCredential){
        json_array_get_string_element (pair, 0), json_array_get_string_element (pair, 1)
      };
    }
}

static void
read_config (JsonObject *object, Case *it)
{
  VmmQemuConfig *config = &it->config;
  const char *vsock = string_member (object, "vsock");

  memset (it, 0, sizeof *it);
  config->id = string_member (object, "id");
  config->phase = string_member (object, "phase");
  config->accelerator = string_member (object, "accelerator");
  config->cpus = int_member (object, "cpus");
  config->memory_mib = int_member (object, "memory_mib");
  config->console_socket = string_member (object, "console_socket");
  config->qmp_socket = string_member (object, "qmp_socket");
  config->monitor_qmp_socket = string_member (object, "monitor_qmp_socket");
  config->ovmf_code = string_member (object, "ovmf_code");
  config->ovmf_vars = string_member (object, "ovmf_vars");
  config->uki = string_member (object, "uki");
  config->installer_disk = string_member (object, "installer_disk");
  config->target_disk = string_member (object, "target_disk");
  config->vsock = g_strcmp0 (vsock, "vhost") == 0        ? VMM_QEMU_VSOCK_VHOST
                  : g_strcmp0 (vsock, "vhost-user") == 0 ? VMM_QEMU_VSOCK_VHOST_USER
                                                         : VMM_QEMU_VSOCK_NONE;
  config->cid = int_member (object, "cid");
  config->vsock_socket = string_member (object, "vsock_socket");
  config->tpm_socket = string_member (object, "tpm_socket");
  config->kernel_cmdline_extra = string_member (object, "kernel_cmdline_extra");
  read_drives (object, it);
  read_credentials (object, it);
}

static GStrv
build_golden (const char *name)
{
  g_autofree char *path = data_path (name, ".json");
  g_autofree char *text = NULL;
  g_autoptr (JsonObject) object = NULL;
  g_autoptr (GError) error = NULL;
  g_auto (GStrv) network = NULL;
  gsize length;
  GStrv argv;
  Case it;

  g_assert_true (g_file_get_contents (path, &text, &length, &error));
  object = vmm_json_parse_object (text, length, &error);
  g_assert_no_error (error);
  read_config (object, &it);
  g_assert_true (vmm_json_get_strv (object, "network_arguments", &network, &error));
  it.config.network_arguments = (const char *const *) network;
  argv = vmm_qemu_args_build (&it.config, &error);
  g_assert_no_error (error);
  g_free ((gpointer) it.config.drives);
  g_free ((gpointer) it.config.credentials);
  return argv;
}

static void
test_golden (gconstpointer data)
{
  const char *name = data;
  g_auto (GStrv) argv = build_golden (name);
  g_autoptr (GString) text = g_string_new (NULL);
  g_autofree char *path = data_path (name, ".args");
  g_autofree char *expected = NULL;
  g_autoptr (GError) error = NULL;

  for (guint i = 0; argv[i] != NULL; i++)
    {
      g_autofree char *escaped = g_strescape (argv[i], "\"");

      g_string_append_printf (text, "%s\n", escaped);
    }
  if (g_getenv ("VMM_TEST_REGENERATE") != NULL)
    g_assert_true (g_file_set_contents (path, text->str, text->len, NULL));
  g_assert_true (g_file_get_contents (path, &expected, NULL, &error));
  g_assert_cmpstr (text->str, ==, expected);
}

/* QEMU's reading of an option list, written down once more. */
static GStrv
qemu_split (const char *text)
{
  g_autoptr (GStrvBuilder) builder = g_strv_builder_new ();
  g_autoptr (GString) part = g_string_new (NULL);

  for (gsize i = 0; i <= strlen (text); i++)
    {
      if (text[i] == ',' && text[i + 1] == ',')
        g_string_append_c (part, text[i++]);
      else if (text[i] != ',' && text[i] != '\0')
        g_string_append_c (part, text[i]);
      else
        {
          g_strv_builder_add (builder, part->str);
          g_string_truncate (part, 0);
        }
    }
  return g_strv_builder_end (builder);
}

static GStrv
build (Case *it)
{
  g_autoptr (GError) error = NULL;
  GStrv argv = vmm_qemu_args_build (&it->config, &error);

  g_assert_no_error (error);
  return argv;
}

/* The two lines must be one option list after the other with the same keys; only whole values may
 * differ, and those must be exactly the hostile text in place of the good one. */
static guint
compare_argument (const char *good, const char *bad)
{
  g_auto (GStrv) good_options = qemu_split (good);
  g_auto (GStrv) bad_options = qemu_split (bad);
  guint differences = 0;

  g_assert_cmpuint (g_strv_length (bad_options), ==, g_strv_length (good_options));
  for (guint i = 0; good_options[i] != NULL; i++)
    {
      if (g_str_equal (good_options[i], bad_options[i]))
        continue;
      differences++;
      g_assert_true (g_str_has_suffix (bad_options[i], HOSTILE));
      g_assert_true (strncmp (good_options[i], bad_options[i],
                              strlen (bad_options[i]) - strlen (HOSTILE)) == 0);
    }
  return differences;
}

static void
test_no_break_out (void)
{
  const gsize fields[] = {
    G_STRUCT_OFFSET (Case, config.id),
    G_STRUCT_OFFSET (Case, config.console_socket),
    G_STRUCT_OFFSET (Case, config.qmp_socket),
    G_STRUCT_OFFSET (Case, config.monitor_qmp_socket),
    G_STRUCT_OFFSET (Case, config.ovmf_code),
    G_STRUCT_OFFSET (Case, config.ovmf_vars),
    G_STRUCT_OFFSET (Case, config.uki),
    G_STRUCT_OFFSET (Case, config.installer_disk),
    G_STRUCT_OFFSET (Case, config.target_disk),
    G_STRUCT_OFFSET (Case, config.vsock_socket),
    G_STRUCT_OFFSET (Case, config.tpm_socket),
    G_STRUCT_OFFSET (Case, drives[0].path),
    G_STRUCT_OFFSET (Case, drives[1].path),
  };

  for (guint field = 0; field < G_N_ELEMENTS (fields); field++)
    {
      Case it;
      g_auto (GStrv) good = NULL;
      g_auto (GStrv) bad = NULL;
      guint differences = 0;

      case_init (&it);
      good = build (&it);
      G_STRUCT_MEMBER (const char *, &it, fields[field]) = HOSTILE;
      bad = build (&it);
      g_assert_cmpuint (g_strv_length (good), ==, g_strv_length (bad));
      for (guint i = 0; good[i] != NULL; i++)
        {
          if (g_str_equal (good[i], it.config.uki) || g_str_equal (bad[i], HOSTILE))
            differences += !g_str_equal (good[i], bad[i]); /* -kernel takes no list */
          else
            differences += compare_argument (good[i], bad[i]);
        }
      g_assert_cmpuint (differences, >, 0);
    }
}

/* Credentials and the kernel's command line: the SMBIOS string has to arrive as it is. */
static void
test_smbios_values (void)
{
  static const char single[] = "/a\",b=c,,d' -device e,id=f -S \\,$(g)";
  Case it;
  g_auto (GStrv) argv = NULL;
  guint found = 0;

  case_init (&it);
  it.credentials[0].value = single;
  it.credentials[1].value = HOSTILE;
  it.config.kernel_cmdline_extra = single;
  argv = build (&it);
  for (guint i = 0; argv[i] != NULL; i++)
    {
      g_auto (GStrv) options = qemu_split (argv[i]);
      g_autofree char *base64 = g_base64_encode ((const guchar *) HOSTILE, strlen (HOSTILE));
      g_autofree char *plain = g_strconcat ("value=io.systemd.credential:a=", single, NULL);
      g_autofree char *binary = g_strconcat ("value=io.systemd.credential.binary:b=", base64, NULL);
      g_autofree char *extra
        = g_strconcat ("value=io.systemd.stub.kernel-cmdline-extra=", single, NULL);

      if (!g_str_equal (options[0], "type=11"))
        continue;
      g_assert_cmpuint (g_strv_length (options), ==, 2);
      found += g_str_equal (options[1], plain) || g_str_equal (options[1], binary)
               || g_str_equal (options[1], extra);
    }
  g_assert_cmpuint (found, ==, 3);
}

typedef void (*Spoil) (Case *it);

#define SPOIL(name, statement)                                                                     \
  static void spoil_##name (Case *it)                                                              \
  {                                                                                                \
    statement;                                                                                     \
  }

/* 108 bytes */
#define LONG_PATH                                                                                  \
  "/23456789012345678901234567890123456789012345678901234567890123456789012345678901234567890"      \
  "123456789012345678"

SPOIL (id, it->config.id = "")
SPOIL (phase, it->config.phase = "rescue")
SPOIL (accelerator, it->config.accelerator = "xen")
SPOIL (cpus, it->config.cpus = 0)
SPOIL (memory, it->config.memory_mib = 0)
SPOIL (uki, it->config.uki = NULL)
SPOIL (ddi, it->config.installer_disk = "")
SPOIL (target, it->config.target_disk = NULL)
SPOIL (cid_low, it->config.cid = 2)
SPOIL (cid_high, it->config.cid = G_MAXUINT32)
SPOIL (ovmf, it->config.ovmf_vars = NULL)
SPOIL (console, it->config.console_socket = NULL)
SPOIL (qmp, it->config.qmp_socket = "")
SPOIL (qmp_long, it->config.qmp_socket = LONG_PATH)
SPOIL (monitor, it->config.monitor_qmp_socket = NULL)
SPOIL (tpm_long, it->config.tpm_socket = LONG_PATH)
SPOIL (vsock, it->config.vsock_socket = NULL)
SPOIL (relative, it->config.target_disk = "nbd:localhost:10809")
SPOIL (json, it->drives[0].path = "json:{\"driver\":\"nbd\"}")
SPOIL (drive_path, it->drives[0].path = NULL)
SPOIL (drive_format, it->drives[1].format = "vmdk")
SPOIL (drive_serial, it->drives[0].serial = "abcdefghij0123456789x")
SPOIL (drive_comma, it->drives[0].serial = "a,b=c")
SPOIL (drive_twice, it->drives[1].serial = "one")
SPOIL (drive_target, it->drives[0].serial = "target")
SPOIL (drive_installer, it->drives[0].serial = "installer")
SPOIL (net_odd, it->network[3] = NULL)
SPOIL (net_option, it->network[0] = "-monitor")
SPOIL (net_second, it->network[2] = "-netdev")
SPOIL (net_no_id, it->network[1] = "user")
SPOIL (net_two_ids, it->network[1] = "user,id=net0,id=net1")
SPOIL (net_bad_id, it->network[1] = "user,id=a/b")
SPOIL (net_json, it->network[1] = "{\"type\":\"user\"}")
SPOIL (net_key, it->network[1] = "user,id=net0,restrict")
SPOIL (net_peer, it->network[3] = "virtio-net-pci,netdev=net1,mac=02:00:00:00:00:01")
SPOIL (net_mac, it->network[3] = "virtio-net-pci,netdev=net0,mac=02:00:00:00:00")
SPOIL (net_no_mac, it->network[3] = "virtio-net-pci,netdev=net0")
SPOIL (net_twice, for (guint i = 0; i < 4; i++) it->network[4 + i] = it->network[i])
SPOIL (credential_empty, it->credentials[0].name = "")
SPOIL (credential_dots, it->credentials[0].name = "..")
SPOIL (credential_slash, it->credentials[0].name = "a/b")
SPOIL (credential_colon, it->credentials[0].name = "a:b")
SPOIL (credential_equals, it->credentials[0].name = "a=b")
SPOIL (credential_utf8, it->credentials[0].name = "\xc3\xa4")
SPOIL (credential_twice, it->credentials[0].name = "b")
SPOIL (extra, it->config.kernel_cmdline_extra = "a\nb")

static const struct
{
  Spoil spoil;
  const char *message;
} bad[] = {
  { spoil_id, "vm id is required" },
  { spoil_phase, "phase must be \"install\" or \"boot\", got \"rescue\"" },
  { spoil_accelerator, "accelerator must be \"kvm\" or \"tcg\", got \"xen\"" },
  { spoil_cpus, "cpus must be at least 1" },
  { spoil_memory, "memory must be at least 1 MiB" },
  { spoil_uki, "install phase needs a UKI" },
  { spoil_ddi, "install phase needs the installer DDI" },
  { spoil_target, "target disk is required" },
  { spoil_cid_low, "vsock cid must be in 3..4294967294, got 2" },
  { spoil_cid_high, "vsock cid must be in 3..4294967294, got 4294967295" },
  { spoil_ovmf, "OVMF code and vars paths are required" },
  { spoil_console, "console socket path is required" },
  { spoil_qmp, "QMP socket path is required" },
  { spoil_qmp_long, "QMP socket path exceeds 107 bytes; use a shorter state dir" },
  { spoil_monitor, "monitor QMP socket path is required" },
  { spoil_tpm_long, "TPM socket path exceeds 107 bytes; use a shorter state dir" },
  { spoil_vsock, "vsock socket path is required" },
  { spoil_relative, "target disk must be an absolute path" },
  { spoil_json, "drive \"one\" must be an absolute path" },
  { spoil_drive_path, "drive \"one\" has no path" },
  { spoil_drive_format, "drive \"two\" format \"vmdk\" must be raw or qcow2" },
  { spoil_drive_serial,
    "drive serial \"abcdefghij0123456789x\" must be 1-20 characters of [A-Za-z0-9._-]" },
  { spoil_drive_comma, "drive serial \"a,b=c\" must be 1-20 characters of [A-Za-z0-9._-]" },
  { spoil_drive_twice, "drive serial \"one\" is used twice" },
  { spoil_drive_target, "drive serial \"target\" is used twice" },
  { spoil_drive_installer, "drive serial \"installer\" is used twice" },
  { spoil_net_odd, "a network's arguments must be pairs of -netdev and -device" },
  { spoil_net_option, "a network's arguments must be pairs of -netdev and -device" },
  { spoil_net_second, "a network's arguments must be pairs of -netdev and -device" },
  { spoil_net_no_id, "netdev id \"\" must be [A-Za-z0-9._-]" },
  { spoil_net_two_ids, "netdev id \"\" must be [A-Za-z0-9._-]" },
  { spoil_net_bad_id, "netdev id \"a/b\" must be [A-Za-z0-9._-]" },
  { spoil_net_json, "a network's arguments must be option lists" },
  { spoil_net_key, "a network's arguments must be option lists" },
  { spoil_net_peer, "netdev \"net0\" has a device for \"net1\"" },
  { spoil_net_mac, "netdev \"net0\" mac \"02:00:00:00:00\" is not a 48-bit address" },
  { spoil_net_no_mac, "netdev \"net0\" mac \"\" is not a 48-bit address" },
  { spoil_net_twice, "netdev id \"net0\" is used twice" },
  { spoil_credential_empty, "credential name \"\" must be 1-255 characters and not . or .." },
  { spoil_credential_dots, "credential name \"..\" must be 1-255 characters and not . or .." },
  { spoil_credential_slash,
    "credential name \"a/b\" may only contain printable ASCII without / : =" },
  { spoil_credential_colon,
    "credential name \"a:b\" may only contain printable ASCII without / : =" },
  { spoil_credential_equals,
    "credential name \"a=b\" may only contain printable ASCII without / : =" },
  { spoil_credential_utf8,
    "credential name \"\xc3\xa4\" may only contain printable ASCII without / : =" },
  { spoil_credential_twice, "credential name \"b\" is used twice" },
  { spoil_extra, "kernel cmdline extra must be a single line" },
};

static void
test_refused (void)
{
  for (guint i = 0; i < G_N_ELEMENTS (bad); i++)
    {
      g_autoptr (GError) error = NULL;
      g_autofree char *message = g_strconcat ("invalid request: ", bad[i].message, NULL);
      Case it;

      case_init (&it);
      bad[i].spoil (&it);
      g_assert_null (vmm_qemu_args_build (&it.config, &error));
      g_assert_error (error, VMM_ERROR, VMM_ERROR_INVALID_REQUEST);
      g_assert_cmpstr (error->message, ==, message);
    }
}

static void
test_too_long (void)
{
  g_autofree char *value = g_strnfill (64 * 1024 + 1, 'a');
  g_autofree char *name = g_strnfill (256, 'a');
  g_autoptr (GError) error = NULL;
  Case it;

  case_init (&it);
  it.credentials[0].value = value;
  g_assert_null (vmm_qemu_args_build (&it.config, &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_INVALID_REQUEST);
  g_clear_error (&error);

  case_init (&it);
  it.credentials[0].name = name;
  g_assert_null (vmm_qemu_args_build (&it.config, &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_INVALID_REQUEST);
}

/* Only in the phase that needs them. */
static void
test_boot_needs_no_installer (void)
{
  Case it;
  g_auto (GStrv) argv = NULL;

  case_init (&it);
  it.config.phase = "boot";
  it.config.uki = NULL;
  it.config.installer_disk = NULL;
  it.config.drives = NULL;
  it.config.n_drives = 0;
  argv = build (&it);
  g_assert_false (g_strv_contains ((const char *const *) argv, "-kernel"));
  g_assert_false (g_strv_contains ((const char *const *) argv, "-no-reboot"));
  g_assert_true (g_strv_contains ((const char *const *) argv, "-S"));
}

/* A QEMU that answers has opened all it was told. */
static VmmQmp *
connect_qmp (const char *socket_path)
{
  TestAwait await = TEST_AWAIT_INIT;
  g_autoptr (GAsyncResult) result = NULL;
  g_autoptr (GError) error = NULL;
  VmmQmp *qmp;

  vmm_qmp_connect_async (socket_path, NULL, NULL, NULL, test_await_cb, &await);
  result = test_await (&await);
  qmp = vmm_qmp_connect_finish (result, &error);
  g_assert_no_error (error);
  return qmp;
}

static void
quit_qemu (VmmQmp *qmp)
{
  TestAwait await = TEST_AWAIT_INIT;
  g_autoptr (GAsyncResult) result = NULL;
  g_autoptr (JsonNode) answer = NULL;
  g_autoptr (GError) error = NULL;

  vmm_qmp_execute_async (qmp, "quit", NULL, 10000, NULL, test_await_cb, &await);
  result = test_await (&await);
  answer = vmm_qmp_execute_finish (qmp, result, &error);
  g_assert_no_error (error);
}

/* What a real QEMU makes of it: with -S it opens everything and then waits. */
static void
test_real_qemu (void)
{
  g_autofree char *binary = g_find_program_in_path ("qemu-system-x86_64");
  g_autofree char *directory = NULL;
  g_autofree char *disk = NULL;
  g_autofree char *code = NULL;
  g_autofree char *vars = NULL;
  g_autofree char *qmp = NULL;
  g_autofree char *monitor = NULL;
  g_autofree char *console = NULL;
  g_autofree char *zeros = g_malloc0 (1024 * 1024);
  g_autoptr (GSubprocess) child = NULL;
  g_autoptr (VmmQmp) client = NULL;
  g_autoptr (GAsyncResult) result = NULL;
  g_autoptr (GError) error = NULL;
  g_auto (GStrv) argv = NULL;
  TestAwait await = TEST_AWAIT_INIT;
  Case it;

  if (binary == NULL)
    {
      g_test_skip ("qemu-system-x86_64 is not installed");
      return;
    }
  directory = test_make_directory ();
  disk = g_build_filename (directory, "a,b.raw", NULL);
  code = g_build_filename (directory, "code", NULL);
  vars = g_build_filename (directory, "vars", NULL);
  qmp = g_build_filename (directory, "qmp,1.sock", NULL);
  monitor = g_build_filename (directory, "qmp,2.sock", NULL);
  console = g_build_filename (directory, "console.sock", NULL);
  g_assert_true (g_file_set_contents (disk, zeros, 1024 * 1024, NULL));
  g_assert_true (g_file_set_contents (code, zeros, 1024 * 1024, NULL));
  g_assert_true (g_file_set_contents (vars, zeros, 1024 * 1024, NULL));
  case_init (&it);
  it.config.phase = "boot";
  it.config.n_drives = 0;
  it.config.tpm_socket = NULL;
  it.config.vsock = VMM_QEMU_VSOCK_NONE;
  it.config.target_disk = disk;
  it.config.ovmf_code = code;
  it.config.ovmf_vars = vars;
  it.config.qmp_socket = qmp;
  it.config.monitor_qmp_socket = monitor;
  it.config.console_socket = console;
  argv = build (&it);
  child = g_subprocess_newv ((const char *const *) argv, G_SUBPROCESS_FLAGS_NONE, &error);
  g_assert_no_error (error);
  client = connect_qmp (monitor);
  g_assert_true (g_file_test (qmp, G_FILE_TEST_EXISTS));
  g_assert_true (g_file_test (console, G_FILE_TEST_EXISTS));
  quit_qemu (client);
  g_subprocess_wait_async (child, NULL, test_await_cb, &await);
  result = test_await (&await);
  g_assert_true (g_subprocess_wait_finish (child, result, &error));
  g_assert_true (g_subprocess_get_successful (child));
  test_remove_directory (g_steal_pointer (&directory));
}

int
main (int argc, char **argv)
{
  static const char *const golden[]
    = { "boot", "first-boot", "install", "emulated", "commas", "credentials", "drives" };

  g_test_init (&argc, &argv, G_TEST_OPTION_ISOLATE_DIRS, NULL);
  for (guint i = 0; i < G_N_ELEMENTS (golden); i++)
    {
      g_autofree char *path = g_strconcat ("/qemu-args/golden/", golden[i], NULL);

      g_test_add_data_func (path, golden[i], test_golden);
    }
  g_test_add_func ("/qemu-args/no-break-out", test_no_break_out);
  g_test_add_func ("/qemu-args/smbios-values", test_smbios_values);
  g_test_add_func ("/qemu-args/refused", test_refused);
  g_test_add_func ("/qemu-args/too-long", test_too_long);
  g_test_add_func ("/qemu-args/boot-needs-no-installer", test_boot_needs_no_installer);
  g_test_add_func ("/qemu-args/real-qemu", test_real_qemu);
  return g_test_run ();
}
