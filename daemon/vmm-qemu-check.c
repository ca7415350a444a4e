/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Checks what a QEMU command line is to be made of.
 *
 * QEMU would find most of these mistakes itself, but only after the disk was made and the vTPM
 * started, and in its own words. Some it would not find at all: a serial of more than 20 bytes is
 * cut silently, and a disk path that begins with a protocol's name is not a file any more.
 *
 * Network arguments come from a backend and are passed on as they are, so they are taken apart
 * here: only pairs of -netdev and -device that belong together get through.
 */
#include "config.h"

#include "vmm-qemu-check.h"

#include <stdarg.h>
#include <string.h>

#include "interfaces/vmm-error.h"
#include "vmm-file.h"

#define SERIAL_MAX 20 /* of virtio-blk */
#define CID_MIN 3
#define CID_MAX G_GUINT64_CONSTANT (4294967294)
#define CREDENTIAL_NAME_MAX 255
/* The kernel takes at most 128 KiB an argument; base64 and the option's name come on top. */
#define CREDENTIAL_VALUE_MAX (64 * 1024)
#define NAME_CHARACTERS G_CSET_A_2_Z G_CSET_a_2_z G_CSET_DIGITS "._-"

static gboolean refuse (GError **error, const char *format, ...) G_GNUC_PRINTF (2, 3);

static gboolean
refuse (GError **error, const char *format, ...)
{
  g_autofree char *message = NULL;
  va_list arguments;

  va_start (arguments, format);
  message = g_strdup_vprintf (format, arguments);
  va_end (arguments);
  vmm_set_error (error, VMM_ERROR_INVALID_REQUEST, "%s", message);
  return FALSE;
}

static gboolean
is_empty (const char *text)
{
  return text == NULL || *text == '\0';
}

static gboolean
is_name (const char *text)
{
  return !is_empty (text) && text[strspn (text, NAME_CHARACTERS)] == '\0';
}

static gboolean
is_install (const VmmQemuConfig *config)
{
  return g_strcmp0 (config->phase, "install") == 0;
}

/* A relative path could be read as one of QEMU's protocols ("nbd:", "json:"). */
static gboolean
check_path (const char *what, const char *path, GError **error)
{
  if (!g_path_is_absolute (path))
    return refuse (error, "%s must be an absolute path", what);
  return TRUE;
}

static gboolean
check_socket (const char *what, const char *path, GError **error)
{
  if (is_empty (path))
    return refuse (error, "%s socket path is required", what);
  if (strlen (path) > VMM_SOCKET_PATH_MAX)
    return refuse (error, "%s socket path exceeds %d bytes; use a shorter state dir", what,
                   VMM_SOCKET_PATH_MAX);
  return check_path (what, path, error);
}

static gboolean
check_machine (const VmmQemuConfig *config, GError **error)
{
  if (is_empty (config->id))
    return refuse (error, "vm id is required");
  if (!is_install (config) && g_strcmp0 (config->phase, "boot") != 0)
    return refuse (error, "phase must be \"install\" or \"boot\", got \"%s\"",
                   config->phase != NULL ? config->phase : "");
  if (g_strcmp0 (config->accelerator, "kvm") != 0 && g_strcmp0 (config->accelerator, "tcg") != 0)
    return refuse (error, "accelerator must be \"kvm\" or \"tcg\", got \"%s\"",
                   config->accelerator != NULL ? config->accelerator : "");
  if (config->cpus < 1)
    return refuse (error, "cpus must be at least 1");
  if (config->memory_mib < 1)
    return refuse (error, "memory must be at least 1 MiB");
  return TRUE;
}

static gboolean
check_boot_files (const VmmQemuConfig *config, GError **error)
{
  if (is_install (config) && is_empty (config->uki))
    return refuse (error, "install phase needs a UKI");
  if (is_install (config) && is_empty (config->installer_disk))
    return refuse (error, "install phase needs the installer DDI");
  if (is_empty (config->target_disk))
    return refuse (error, "target disk is required");
  if (config->vsock != VMM_QEMU_VSOCK_NONE && (config->cid < CID_MIN || config->cid > CID_MAX))
    return refuse (error, "vsock cid must be in 3..4294967294, got %u", config->cid);
  if (is_empty (config->ovmf_code) || is_empty (config->ovmf_vars))
    return refuse (error, "OVMF code and vars paths are required");
  return (!is_install (config)
          || (check_path ("UKI", config->uki, error)
              && check_path ("installer DDI", config->installer_disk, error)))
         && check_path ("target disk", config->target_disk, error)
         && check_path ("OVMF code", config->ovmf_code, error)
         && check_path ("OVMF vars", config->ovmf_vars, error);
}

static gboolean
check_sockets (const VmmQemuConfig *config, GError **error)
{
  return check_socket ("console", config->console_socket, error)
         && check_socket ("QMP", config->qmp_socket, error)
         && check_socket ("monitor QMP", config->monitor_qmp_socket, error)
         && (config->tpm_socket == NULL || check_socket ("TPM", config->tpm_socket, error))
         && (config->vsock != VMM_QEMU_VSOCK_VHOST_USER
             || check_socket ("vsock", config->vsock_socket, error));
}

static gboolean
check_drive (const VmmQemuConfig *config, guint index, GError **error)
{
  const VmmQemuDrive *drive = &config->drives[index];
  const char *serial = drive->serial != NULL ? drive->serial : "";
  gboolean taken = g_str_equal (serial, "target")
                   || (is_install (config) && g_str_equal (serial, "installer"));
  g_autofree char *what = g_strdup_printf ("drive \"%s\"", serial);

  if (is_empty (drive->path))
    return refuse (error, "drive \"%s\" has no path", serial);
  if (g_strcmp0 (drive->format, "raw") != 0 && g_strcmp0 (drive->format, "qcow2") != 0)
    return refuse (error, "drive \"%s\" format \"%s\" must be raw or qcow2", serial,
                   drive->format != NULL ? drive->format : "");
  if (!is_name (serial) || strlen (serial) > SERIAL_MAX)
    return refuse (error, "drive serial \"%s\" must be 1-20 characters of [A-Za-z0-9._-]", serial);
  for (guint i = 0; i < index && !taken; i++)
    taken = g_strcmp0 (config->drives[i].serial, serial) == 0;
  if (taken)
    return refuse (error, "drive serial \"%s\" is used twice", serial);
  return check_path (what, drive->path, error);
}

/* Takes an option list apart as QEMU does: "a,b=c,,d" is "a" and "b=c,d". */
static GStrv
split_options (const char *text)
{
  g_autoptr (GStrvBuilder) builder = g_strv_builder_new ();
  g_autoptr (GString) part = g_string_new (NULL);

  for (const char *c = text; *c != '\0'; c++)
    {
      if (*c == ',' && c[1] != ',')
        {
          g_strv_builder_add (builder, part->str);
          g_string_truncate (part, 0);
          continue;
        }
      c += *c == ',';
      g_string_append_c (part, *c);
    }
  g_strv_builder_add (builder, part->str);
  return g_strv_builder_end (builder);
}

/* The value of an option that is there exactly once. */
static const char *
find_option (GStrv options, const char *name)
{
  const char *value = NULL;
  gsize length = strlen (name);

  for (guint i = 1; options[i] != NULL; i++)
    {
      if (strncmp (options[i], name, length) != 0 || options[i][length] != '=')
        continue;
      if (value != NULL)
        return NULL;
      value = options[i] + length + 1;
    }
  return value;
}

static gboolean
is_option_list (GStrv options)
{
  const char *driver = options[0];

  if (!g_ascii_islower (*driver)
      || driver[strspn (driver, G_CSET_a_2_z G_CSET_DIGITS "-")] != '\0')
    return FALSE;
  for (guint i = 1; options[i] != NULL; i++)
    {
      gsize key = strspn (options[i], NAME_CHARACTERS);

      if (key == 0 || options[i][key] != '=')
        return FALSE;
    }
  return TRUE;
}

static gboolean
is_mac (const char *text)
{
  if (strlen (text) != 17)
    return FALSE;
  for (guint i = 0; i < 17; i++)
    if (i % 3 == 2 ? text[i] != ':' : !g_ascii_isxdigit (text[i]))
      return FALSE;
  return TRUE;
}

static gboolean
check_network_pair (const char *backend, const char *device, GHashTable *ids, GError **error)
{
  g_auto (GStrv) backend_options = split_options (backend);
  g_auto (GStrv) device_options = split_options (device);
  const char *id = find_option (backend_options, "id");
  const char *peer = find_option (device_options, "netdev");
  const char *mac = find_option (device_options, "mac");

  if (!is_option_list (backend_options) || !is_option_list (device_options))
    return refuse (error, "a network's arguments must be option lists");
  if (!is_name (id))
    return refuse (error, "netdev id \"%s\" must be [A-Za-z0-9._-]", id != NULL ? id : "");
  if (!g_hash_table_add (ids, g_strdup (id)))
    return refuse (error, "netdev id \"%s\" is used twice", id);
  if (g_strcmp0 (id, peer) != 0)
    return refuse (error, "netdev \"%s\" has a device for \"%s\"", id, peer != NULL ? peer : "");
  if (mac == NULL || !is_mac (mac))
    return refuse (error, "netdev \"%s\" mac \"%s\" is not a 48-bit address", id,
                   mac != NULL ? mac : "");
  return TRUE;
}

static gboolean
check_network (const char *const *arguments, GError **error)
{
  g_autoptr (GHashTable) ids = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL);
  guint length = arguments != NULL ? g_strv_length ((char **) arguments) : 0;

  if (length % 4 != 0)
    return refuse (error, "a network's arguments must be pairs of -netdev and -device");
  for (guint i = 0; i < length; i += 4)
    {
      if (!g_str_equal (arguments[i], "-netdev") || !g_str_equal (arguments[i + 2], "-device"))
        return refuse (error, "a network's arguments must be pairs of -netdev and -device");
      if (!check_network_pair (arguments[i + 1], arguments[i + 3], ids, error))
        return FALSE;
    }
  return TRUE;
}

static gboolean
check_credential (const VmmQemuConfig *config, guint index, GError **error)
{
  const char *name = config->credentials[index].name != NULL ? config->credentials[index].name : "";
  const char *value = config->credentials[index].value;
  gsize length = strlen (name);

  if (length < 1 || length > CREDENTIAL_NAME_MAX || g_str_equal (name, ".")
      || g_str_equal (name, ".."))
    return refuse (error, "credential name \"%s\" must be 1-255 characters and not . or ..", name);
  for (gsize i = 0; i < length; i++)
    if (!g_ascii_isprint (name[i]) || strchr ("/:=", name[i]) != NULL)
      return refuse (error,
                     "credential name \"%s\" may only contain printable ASCII without / : =", name);
  for (guint i = 0; i < index; i++)
    if (g_strcmp0 (config->credentials[i].name, name) == 0)
      return refuse (error, "credential name \"%s\" is used twice", name);
  if (value == NULL)
    return refuse (error, "credential \"%s\" has no value", name);
  if (strlen (value) > CREDENTIAL_VALUE_MAX)
    return refuse (error, "credential \"%s\" exceeds %d bytes", name, CREDENTIAL_VALUE_MAX);
  return TRUE;
}

gboolean
vmm_qemu_config_check (const VmmQemuConfig *config, GError **error)
{
  const char *extra = config->kernel_cmdline_extra;

  if (!check_machine (config, error) || !check_boot_files (config, error)
      || !check_sockets (config, error))
    return FALSE;
  for (guint i = 0; i < config->n_drives; i++)
    if (!check_drive (config, i, error))
      return FALSE;
  if (!check_network (config->network_arguments, error))
    return FALSE;
  for (guint i = 0; i < config->n_credentials; i++)
    if (!check_credential (config, i, error))
      return FALSE;
  if (extra != NULL && (strchr (extra, '\n') != NULL || strlen (extra) > CREDENTIAL_VALUE_MAX))
    return refuse (error, "kernel cmdline extra must be a single line");
  return TRUE;
}
