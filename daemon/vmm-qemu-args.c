/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Turns the description of a VM into QEMU's command line.
 *
 * Pure: what is wrong is refused by vmm-qemu-check before a single argument exists, nothing is
 * looked up, nothing is probed. This is the only place that quotes: in an option list QEMU ends a
 * value at a comma and reads two of them as one, so every value that is not ours has its commas
 * doubled. Nothing else has a meaning there, neither quotes nor '=' nor newlines.
 *
 * The order of the arguments is fixed; the golden files of the test show it. QEMU starts with its
 * processors stopped (-S), so that the monitor sees the guest's first byte and first event.
 * Writable disks stop the guest on an error: a full host pauses it and loses nothing.
 */
#include "config.h"

#include "vmm-qemu-args.h"

#include <stdarg.h>
#include <string.h>

#include "vmm-qemu-check.h"

#define BINARY "qemu-system-x86_64"
#define SANDBOX "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"
/* What distributions build for (x86-64-v2), and no more: each further feature costs time. */
#define EMULATED_CPU "qemu64,+ssse3,+sse4.1,+sse4.2,+popcnt,+cx16,+lahf_lm"
#define WRITABLE_DISK "discard=unmap,werror=stop,rerror=stop"

static char *
escape (const char *value)
{
  GString *escaped = g_string_new (value);

  g_string_replace (escaped, ",", ",,", 0);
  return g_string_free (escaped, FALSE);
}

static void
add (GPtrArray *argv, const char *argument)
{
  g_ptr_array_add (argv, g_strdup (argument));
}

static void add_format (GPtrArray *argv, const char *option, const char *format, ...)
  G_GNUC_PRINTF (3, 4);

static void
add_format (GPtrArray *argv, const char *option, const char *format, ...)
{
  va_list arguments;

  add (argv, option);
  va_start (arguments, format);
  g_ptr_array_add (argv, g_strdup_vprintf (format, arguments));
  va_end (arguments);
}

/* An option whose last value is not ours. */
static void
add_escaped (GPtrArray *argv, const char *option, const char *prefix, const char *value,
             const char *suffix)
{
  g_autofree char *escaped = escape (value);

  add_format (argv, option, "%s%s%s", prefix, escaped, suffix);
}

static gboolean
is_install (const VmmQemuConfig *config)
{
  return g_str_equal (config->phase, "install");
}

static void
add_machine (GPtrArray *argv, const VmmQemuConfig *config)
{
  gboolean kvm = g_str_equal (config->accelerator, "kvm");
  gboolean shared = config->vsock == VMM_QEMU_VSOCK_VHOST_USER;

  add (argv, BINARY);
  add_escaped (argv, "-name", "guest=", config->id, "");
  add_format (argv, "-machine", "q35%s", shared ? ",memory-backend=mem" : "");
  add_format (argv, "-accel", "%s", config->accelerator);
  add_format (argv, "-cpu", "%s", kvm ? "host" : EMULATED_CPU);
  add_format (argv, "-smp", "%u", config->cpus);
  add_format (argv, "-m", "%" G_GUINT64_FORMAT "M", config->memory_mib);
  /* The process at the other end of a vhost-user socket maps the guest's memory. */
  if (shared)
    add_format (argv, "-object",
                "memory-backend-memfd,id=mem,size=%" G_GUINT64_FORMAT "M,share=on",
                config->memory_mib);
  add (argv, "-nodefaults");
  add_format (argv, "-display", "none");
  add_format (argv, "-sandbox", SANDBOX);
}

static void
add_channels (GPtrArray *argv, const VmmQemuConfig *config)
{
  add_escaped (argv, "-chardev", "socket,id=console,path=", config->console_socket,
               ",server=on,wait=off");
  add_format (argv, "-serial", "chardev:console");
  add_escaped (argv, "-qmp", "unix:", config->qmp_socket, ",server=on,wait=off");
  add_escaped (argv, "-qmp", "unix:", config->monitor_qmp_socket, ",server=on,wait=off");
}

static void
add_firmware (GPtrArray *argv, const VmmQemuConfig *config)
{
  add_escaped (argv, "-drive", "if=pflash,format=raw,unit=0,readonly=on,file=", config->ovmf_code,
               "");
  add_escaped (argv, "-drive", "if=pflash,format=raw,unit=1,file=", config->ovmf_vars, "");
  if (!is_install (config))
    return;
  add (argv, "-kernel"); /* not an option list */
  add (argv, config->uki);
}

static void
add_drive (GPtrArray *argv, const VmmQemuDrive *drive, const char *device_suffix)
{
  g_autofree char *path = escape (drive->path);

  add_format (argv, "-drive", "if=none,id=%s,format=%s,file=%s,%s", drive->serial, drive->format,
              path, drive->read_only ? "readonly=on" : WRITABLE_DISK);
  add_format (argv, "-device", "virtio-blk-pci,drive=%s,serial=%s%s", drive->serial,
              drive->serial, device_suffix);
}

static void
add_drives (GPtrArray *argv, const VmmQemuConfig *config)
{
  const VmmQemuDrive installer = { "installer", config->installer_disk, "raw", TRUE };
  const VmmQemuDrive target = { "target", config->target_disk, "raw", FALSE };

  if (is_install (config))
    add_drive (argv, &installer, "");
  add_drive (argv, &target, is_install (config) ? "" : ",bootindex=0");
  for (guint i = 0; i < config->n_drives; i++)
    add_drive (argv, &config->drives[i], "");
}

static void
add_devices (GPtrArray *argv, const VmmQemuConfig *config)
{
  for (guint i = 0; config->network_arguments != NULL && config->network_arguments[i] != NULL; i++)
    add (argv, config->network_arguments[i]);
  if (config->vsock == VMM_QEMU_VSOCK_VHOST)
    add_format (argv, "-device", "vhost-vsock-pci,id=vsock0,guest-cid=%u", config->cid);
  if (config->vsock == VMM_QEMU_VSOCK_VHOST_USER)
    {
      add_escaped (argv, "-chardev", "socket,id=chrvsock,path=", config->vsock_socket, "");
      add_format (argv, "-device", "vhost-user-vsock-pci,id=vsock0,chardev=chrvsock");
    }
  if (config->tpm_socket == NULL)
    return;
  add_escaped (argv, "-chardev", "socket,id=chrtpm,path=", config->tpm_socket, "");
  add_format (argv, "-tpmdev", "emulator,id=tpm0,chardev=chrtpm");
  add_format (argv, "-device", "tpm-crb,tpmdev=tpm0");
}

/* Letters, marks, digits, punctuation, symbols and the ASCII space: what survives a line of text.
 * */
static gboolean
is_printable (gunichar c)
{
  switch (g_unichar_type (c))
    {
    case G_UNICODE_CONTROL:
    case G_UNICODE_FORMAT:
    case G_UNICODE_UNASSIGNED:
    case G_UNICODE_PRIVATE_USE:
    case G_UNICODE_SURROGATE:
    case G_UNICODE_LINE_SEPARATOR:
    case G_UNICODE_PARAGRAPH_SEPARATOR:
      return FALSE;
    case G_UNICODE_SPACE_SEPARATOR:
      return c == ' ';
    default:
      return TRUE;
    }
}

static gboolean
is_printable_text (const char *text)
{
  if (!g_utf8_validate (text, -1, NULL))
    return FALSE;
  for (const char *c = text; *c != '\0'; c = g_utf8_next_char (c))
    if (!is_printable (g_utf8_get_char (c)))
      return FALSE;
  return TRUE;
}

static void
add_credential (GPtrArray *argv, const VmmQemuCredential *credential)
{
  g_autofree char *text = NULL;

  if (is_printable_text (credential->value))
    {
      text = g_strdup_printf ("io.systemd.credential:%s=%s", credential->name, credential->value);
    }
  else
    {
      g_autofree char *base64 = g_base64_encode ((const guchar *) credential->value,
                                                 strlen (credential->value));

      text = g_strdup_printf ("io.systemd.credential.binary:%s=%s", credential->name, base64);
    }
  add_escaped (argv, "-smbios", "type=11,value=", text, "");
}

static int
compare_credentials (gconstpointer a, gconstpointer b)
{
  const VmmQemuCredential *const *first = a;
  const VmmQemuCredential *const *second = b;

  return strcmp ((*first)->name, (*second)->name);
}

static void
add_smbios (GPtrArray *argv, const VmmQemuConfig *config)
{
  g_autoptr (GPtrArray) sorted = g_ptr_array_new ();

  add_escaped (argv, "-smbios",
               "type=1,manufacturer=" VMM_SMBIOS_MANUFACTURER ",product=" VMM_SMBIOS_PRODUCT
               ",serial=",
               config->id, "");
  for (guint i = 0; i < config->n_credentials; i++)
    g_ptr_array_add (sorted, (gpointer) &config->credentials[i]);
  g_ptr_array_sort (sorted, compare_credentials);
  for (guint i = 0; i < sorted->len; i++)
    add_credential (argv, sorted->pdata[i]);
  if (config->kernel_cmdline_extra != NULL)
    add_escaped (argv, "-smbios", "type=11,value=io.systemd.stub.kernel-cmdline-extra=",
                 config->kernel_cmdline_extra, "");
}

GStrv
vmm_qemu_args_build (const VmmQemuConfig *config, GError **error)
{
  g_autoptr (GPtrArray) argv = NULL;

  g_return_val_if_fail (config != NULL, NULL);

  if (!vmm_qemu_config_check (config, error))
    return NULL;
  argv = g_ptr_array_new_with_free_func (g_free);
  add_machine (argv, config);
  add_channels (argv, config);
  add_firmware (argv, config);
  add_drives (argv, config);
  add_devices (argv, config);
  add_smbios (argv, config);
  if (is_install (config))
    add (argv, "-no-reboot");
  add (argv, "-S");
  g_ptr_array_add (argv, NULL);
  return (GStrv) g_ptr_array_free (g_steal_pointer (&argv), FALSE);
}
