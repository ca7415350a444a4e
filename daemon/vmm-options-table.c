/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The table of flags, and how values of their types are read. */

#include "config.h"

#include "vmm-options-table.h"

#include <string.h>
#include <unistd.h>

#include <glib/gi18n.h>

#include "vmm-network-plan.h"
#include "vmm-time.h"

/* systemd may give several folders, separated by colons: the first is ours. */
static char *
first_folder (const char *variable)
{
  const char *folders = g_getenv (variable);

  return folders != NULL && *folders == '/' ? g_strndup (folders, strcspn (folders, ":")) : NULL;
}

static char *
find_state_dir (void)
{
  char *folder = first_folder ("STATE_DIRECTORY");
  const char *given = g_getenv ("XDG_STATE_HOME");
  const char *home = g_getenv ("HOME");

  if (folder != NULL)
    return folder;
  if (given != NULL && *given == '/')
    return g_build_filename (given, "vm-manager", NULL);
  if (home != NULL && *home == '/')
    return g_build_filename (home, ".local", "state", "vm-manager", NULL);
  return g_strdup ("/var/lib/vm-manager");
}

static char *
find_socket (void)
{
  g_autofree char *folder = first_folder ("RUNTIME_DIRECTORY");
  const char *session = g_getenv ("XDG_RUNTIME_DIR");

  if (folder != NULL)
    return g_build_filename (folder, "api.sock", NULL);
  if (session != NULL && *session == '/')
    return g_build_filename (session, "vm-manager", "api.sock", NULL);
  return geteuid () == 0 ? g_strdup ("/run/vm-manager/api.sock") : NULL;
}

static char *
find_config (void)
{
  if (geteuid () == 0)
    return g_strdup (VMM_SYSCONF_DIR "/vm-manager.conf");
  return g_build_filename (g_get_user_config_dir (), "vm-manager", "vm-manager.conf", NULL);
}

static char *
check_subnet (const char *text, gint64 number)
{
  const char *sentinel = "invalid request: ";
  g_autoptr (GError) error = NULL;
  VmmAddressPlan plan;

  if (vmm_address_plan_parse (text, NULL, &plan, &error))
    return NULL;
  return g_strdup (g_str_has_prefix (error->message, sentinel) ? error->message + strlen (sentinel)
                                                               : error->message);
}

static char *
check_network_name (const char *text, gint64 number)
{
  if (*text == '\0')
    return g_strdup (_ ("name required"));
  if (!vmm_name_is_dns_label (text))
    return g_strdup_printf (_ ("name \"%s\" must be a DNS label"), text);
  return NULL;
}

static char *
check_accelerator (const char *text, gint64 number)
{
  static const char *const known[] = { "auto", "kvm", "tcg", NULL };

  if (g_strv_contains (known, text))
    return NULL;
  return g_strdup_printf (_ ("\"%s\" is not one of [auto kvm tcg]"), text);
}

static char *
check_port (const char *text, gint64 number)
{
  if (number >= 0 && number <= G_MAXUINT32)
    return NULL;
  return g_strdup_printf (_ ("%s is not a vsock port"), text);
}

static char *
check_series (const char *text, gint64 number)
{
  if (number >= 0 && number <= G_MAXINT)
    return NULL;
  return g_strdup_printf (_ ("%s must be at least 1"), text);
}

static char *
check_timeout (const char *text, gint64 number)
{
  return number > 0 ? NULL : g_strdup_printf (_ ("\"%s\" must be more than 0s"), text);
}

const VmmOptionRow vmm_option_rows[] = {
  { "config", "VM_MANAGER_CONFIG", VMM_OPTION_STRING, NULL, N_ ("the user's or the system's"),
    "FILE", N_ ("configuration file; its group [serve] knows the names of these flags"),
    find_config, NULL },
  { "listen", "VM_MANAGER_LISTEN", VMM_OPTION_STRING, "127.0.0.1:8080", NULL, "ADDRESS:PORT",
    N_ ("TCP addresses to listen on, separated by commas; empty for none"), NULL, NULL },
  { "listen-unix", "VM_MANAGER_LISTEN_UNIX", VMM_OPTION_STRING, NULL,
    N_ ("vm-manager/api.sock in the runtime directory"), "PATH",
    N_ ("Unix socket to listen on, for the daemon's user and root; empty for none"), find_socket,
    NULL },
  { "allow-local-users", "VM_MANAGER_ALLOW_LOCAL_USERS", VMM_OPTION_BOOLEAN, "false", NULL, NULL,
    N_ ("serve every user of this machine on loopback addresses, not the daemon's own only"), NULL,
    NULL },
  { "allow-anonymous", "VM_MANAGER_ALLOW_ANONYMOUS", VMM_OPTION_BOOLEAN, "false", NULL, NULL,
    N_ ("serve everybody who reaches an address; needed to listen on other than loopback"), NULL,
    NULL },
  { "allow-metrics", "VM_MANAGER_ALLOW_METRICS", VMM_OPTION_BOOLEAN, "false", NULL, NULL,
    N_ ("answer /metrics to everybody"), NULL, NULL },
  { "state-dir", "VM_MANAGER_STATE_DIR", VMM_OPTION_STRING, NULL,
    N_ ("vm-manager in the user's state directory, /var/lib/vm-manager without a home"), "DIR",
    N_ ("state directory, created"), find_state_dir, NULL },
  { "image-dir", "VM_MANAGER_IMAGE_DIR", VMM_OPTION_STRING, NULL,
    N_ ("images in the state directory"), "DIR", N_ ("image directory, created"), NULL, NULL },
  { "network-subnet", "VM_MANAGER_NETWORK_SUBNET", VMM_OPTION_STRING, "192.168.127.0/24", NULL,
    "CIDR", N_ ("subnet of the default network"), NULL, check_subnet },
  { "default-network", "VM_MANAGER_DEFAULT_NETWORK", VMM_OPTION_STRING, "default", NULL, "NAME",
    N_ ("name of the default network"), NULL, check_network_name },
  { "install-timeout", "VM_MANAGER_INSTALL_TIMEOUT", VMM_OPTION_DURATION, "5m", NULL, "TIME",
    N_ ("limit of an installation; four times as long under emulation unless set"), NULL,
    check_timeout },
  { "boot-timeout", "VM_MANAGER_BOOT_TIMEOUT", VMM_OPTION_DURATION, "4m", NULL, "TIME",
    N_ ("limit of a boot until the guest is ready; four times as long under emulation unless set"),
    NULL, check_timeout },
  { "stop-timeout", "VM_MANAGER_STOP_TIMEOUT", VMM_OPTION_DURATION, "30s", NULL, "TIME",
    N_ ("time for a guest to power down before it is killed; four times as long under emulation "
        "unless set"),
    NULL, check_timeout },
  { "accelerator", "VM_MANAGER_ACCELERATOR", VMM_OPTION_STRING, "auto", NULL, "NAME",
    N_ ("what runs guests: kvm, tcg to emulate them, or auto: kvm where it works"), NULL,
    check_accelerator },
  { "ovmf-code", "VM_MANAGER_OVMF_CODE", VMM_OPTION_STRING, NULL, N_ ("the first pair found"),
    "FILE", N_ ("firmware image"), NULL, NULL },
  { "ovmf-vars", "VM_MANAGER_OVMF_VARS", VMM_OPTION_STRING, NULL, N_ ("the first pair found"),
    "FILE", N_ ("template of the firmware's variable store"), NULL, NULL },
  { "notify-port", "VM_MANAGER_NOTIFY_PORT", VMM_OPTION_INT, "0", NULL, "PORT",
    N_ ("base of the vsock ports for guest notifications; 0 picks one for each VM"), NULL,
    check_port },
  { "launcher", "VM_MANAGER_LAUNCHER", VMM_OPTION_STRING, "auto", NULL, "NAME",
    N_ ("plugin that runs the processes of VMs; auto takes the best available one"), NULL, NULL },
  { "network", "VM_MANAGER_NETWORK", VMM_OPTION_STRING, "auto", NULL, "NAME",
    N_ ("plugin that carries the packets of VMs; auto takes the best available one"), NULL, NULL },
  { "storage", "VM_MANAGER_STORAGE", VMM_OPTION_STRING, "auto", NULL, "NAME",
    N_ ("plugin that keeps the disks of VMs; auto takes the best available one"), NULL, NULL },
  { "attestation", "VM_MANAGER_ATTESTATION", VMM_OPTION_STRING, "auto", NULL, "NAME",
    N_ ("plugin that judges the quotes of VMs; auto takes the best available one that verifies"),
    NULL, NULL },
  { "detach-vms-on-exit", "VM_MANAGER_DETACH_VMS_ON_EXIT", VMM_OPTION_BOOLEAN, "true", NULL, NULL,
    N_ ("leave VMs running at shutdown where the launcher can"), NULL, NULL },
  { "metrics-enabled", "VM_MANAGER_METRICS_ENABLED", VMM_OPTION_BOOLEAN, "true", NULL, NULL,
    N_ ("offer /metrics"), NULL, NULL },
  { "metrics-guest-series-limit", "VM_MANAGER_METRICS_GUEST_SERIES_LIMIT", VMM_OPTION_INT, "1000",
    NULL, "N", N_ ("series kept per VM from one report"), NULL, check_series },
  { "plugin-dir", "VM_MANAGER_PLUGIN_DIR", VMM_OPTION_STRING, VMM_PLUGIN_DIR, NULL, "DIRS",
    N_ ("folders with plugins, separated by colons"), NULL, NULL },
  { "disable-plugins", "VM_MANAGER_DISABLE_PLUGINS", VMM_OPTION_STRING, "", NULL, "NAMES",
    N_ ("plugin modules not to load, separated by commas"), NULL, NULL },
};
const guint vmm_n_option_rows = G_N_ELEMENTS (vmm_option_rows);

static gboolean
parse_boolean (const char *text, gint64 *number)
{
  static const char *const yes[] = { "1", "t", "T", "TRUE", "true", "True", NULL };
  static const char *const no[] = { "0", "f", "F", "FALSE", "false", "False", NULL };

  *number = g_strv_contains (yes, text);
  return *number != 0 || g_strv_contains (no, text);
}

char *
vmm_option_row_parse (const VmmOptionRow *row, const char *text, gint64 *number)
{
  *number = 0;
  if (!g_utf8_validate (text, -1, NULL))
    return g_strdup (_ ("not valid UTF-8"));
  switch (row->type)
    {
    case VMM_OPTION_BOOLEAN:
      if (!parse_boolean (text, number))
        return g_strdup_printf (_ ("\"%s\" is not true or false"), text);
      break;
    case VMM_OPTION_INT:
      if (!g_ascii_string_to_signed (text, 10, G_MININT64, G_MAXINT64, number, NULL))
        return g_strdup_printf (_ ("\"%s\" is not a number"), text);
      break;
    case VMM_OPTION_DURATION:
      if (!vmm_duration_from_text (text, number))
        return g_strdup_printf (_ ("\"%s\" is not a duration such as 30s, 5m or 1h30m"), text);
      break;
    case VMM_OPTION_STRING:
    default:
      break;
    }
  return row->check != NULL ? row->check (text, *number) : NULL;
}
