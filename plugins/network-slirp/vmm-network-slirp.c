/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The rootless network: each network is a process of its own, vmm-netd, that carries its packets
 * through sockets of the host. Nothing of a guest is ever looked at in the daemon.
 *
 * This file is the backend; a network is in vmm-netd-network.c. */

#include <pwd.h>
#include <unistd.h>

#include "interfaces/vmm.h"
#include "vmm-netd-network.h"
#include "vmm-netd-store.h"

#define VMM_TYPE_NETWORK_SLIRP (vmm_network_slirp_get_type ())
G_DECLARE_FINAL_TYPE (VmmNetworkSlirp, vmm_network_slirp, VMM, NETWORK_SLIRP, GObject)

#define HELPER_NAME "vmm-netd"
#define HELPER_VARIABLE "VM_MANAGER_HELPER_DIR"
#define HASH_DIGITS 8

struct _VmmNetworkSlirp
{
  GObject parent_instance;

  char *helper;
  char *state_hash; /* tells the processes of two daemons of one user apart */
};

static void vmm_network_slirp_backend_init (VmmBackendInterface *iface);
static void vmm_network_slirp_network_backend_init (VmmNetworkBackendInterface *iface);

G_DEFINE_FINAL_TYPE_WITH_CODE (VmmNetworkSlirp, vmm_network_slirp, G_TYPE_OBJECT,
                               G_IMPLEMENT_INTERFACE (VMM_TYPE_BACKEND,
                                                      vmm_network_slirp_backend_init)
                                   G_IMPLEMENT_INTERFACE (VMM_TYPE_NETWORK_BACKEND,
                                                          vmm_network_slirp_network_backend_init))

/* An account that does not exist means that vmm-netd runs as root, too. */
static void
share_with (const char *name)
{
  const struct passwd *entry = NULL;

  if (geteuid () == 0 && name != NULL && name[0] != '\0')
    entry = getpwnam (name);
  vmm_netd_store_set_account (entry != NULL, entry != NULL ? entry->pw_uid : 0,
                              entry != NULL ? entry->pw_gid : 0);
}

static gboolean
vmm_network_slirp_configure (VmmBackend *backend, const VmmBackendConfig *config, GError **error)
{
  VmmNetworkSlirp *self = VMM_NETWORK_SLIRP (backend);
  g_autofree char *hash = g_compute_checksum_for_string (G_CHECKSUM_SHA256, config->state_dir, -1);

  g_free (self->state_hash);
  self->state_hash = g_strndup (hash, HASH_DIGITS);
  share_with (config->account);
  return TRUE;
}

static gboolean
vmm_network_slirp_is_available (VmmBackend *backend, char **reason)
{
  VmmNetworkSlirp *self = VMM_NETWORK_SLIRP (backend);

  if (g_file_test (self->helper, G_FILE_TEST_IS_REGULAR) && access (self->helper, X_OK) == 0)
    return TRUE;
  if (reason != NULL)
    *reason = g_strdup_printf (
        "%s is not there or cannot be run; " HELPER_VARIABLE " names another folder", self->helper);
  return FALSE;
}

static GVariant *
vmm_network_slirp_describe_host (VmmBackend *backend)
{
  GVariantBuilder members;

  g_variant_builder_init (&members, G_VARIANT_TYPE_VARDICT);
  g_variant_builder_add (&members, "{sv}", "networkEngine", g_variant_new_string ("libslirp"));
  return g_variant_builder_end (&members);
}

static void
opened_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  GError *error = NULL;
  VmmNetdNetwork *network = vmm_netd_network_open_finish (result, &error);

  if (network == NULL)
    g_task_return_error (task, error);
  else
    g_task_return_pointer (task, network, g_object_unref);
}

static void
vmm_network_slirp_open_async (VmmNetworkBackend *backend, const VmmNetworkSpec *spec,
                              VmmLauncher *launcher, GCancellable *cancellable,
                              GAsyncReadyCallback callback, gpointer user_data)
{
  VmmNetworkSlirp *self = VMM_NETWORK_SLIRP (backend);
  GTask *task = g_task_new (self, cancellable, callback, user_data);
  g_autofree char *id
      = g_strdup_printf ("net-%s-%s", self->state_hash != NULL ? self->state_hash : "", spec->name);

  g_task_set_source_tag (task, vmm_network_slirp_open_async);
  g_task_set_check_cancellable (task, FALSE); /* a network that is up is never lost */
  vmm_netd_network_open_async (spec, launcher, self->helper, id, cancellable, opened_cb, task);
}

static void
vmm_network_slirp_finalize (GObject *object)
{
  VmmNetworkSlirp *self = VMM_NETWORK_SLIRP (object);

  g_free (self->helper);
  g_free (self->state_hash);
  G_OBJECT_CLASS (vmm_network_slirp_parent_class)->finalize (object);
}

static void
vmm_network_slirp_backend_init (VmmBackendInterface *iface)
{
  iface->configure = vmm_network_slirp_configure;
  iface->is_available = vmm_network_slirp_is_available;
  iface->describe_host = vmm_network_slirp_describe_host;
}

static void
vmm_network_slirp_network_backend_init (VmmNetworkBackendInterface *iface)
{
  iface->open_async = vmm_network_slirp_open_async;
}

static void
vmm_network_slirp_class_init (VmmNetworkSlirpClass *klass)
{
  G_OBJECT_CLASS (klass)->finalize = vmm_network_slirp_finalize;
}

static void
vmm_network_slirp_init (VmmNetworkSlirp *self)
{
  self->helper = vmm_helper_find (HELPER_NAME);
}

VMM_PLUGIN_DEFINE (vmm_network_slirp, VMM_NETWORK_BACKEND_EXTENSION_POINT, VMM_TYPE_NETWORK_SLIRP,
                   "slirp", 50)
