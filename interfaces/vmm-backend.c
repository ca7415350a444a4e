/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What launchers, networks, storages and attestors have in common.
 *
 * The plugin registry makes one object of each backend, configures it once and asks whether it
 * could work on this host. Everything here is cheap, synchronous and without effects on the host.
 * A backend implements only what differs from the defaults: nothing to configure, available, no
 * capabilities, nothing to add to the host report.
 */

#include "vmm-backend.h"

/**
 * VmmBackend:
 *
 * What every kind of backend has in common: it is configured once, can say whether it could work on
 * this host, and may add to the host report. Every backend implements this interface beside the one
 * of its kind.
 */
G_DEFINE_INTERFACE (VmmBackend, vmm_backend, G_TYPE_OBJECT)

static gboolean
real_configure (VmmBackend *self, const VmmBackendConfig *config, GError **error)
{
  return TRUE;
}

static gboolean
real_is_available (VmmBackend *self, char **reason)
{
  return TRUE;
}

static GStrv
real_dup_capabilities (VmmBackend *self)
{
  return g_new0 (char *, 1);
}

static GVariant *
real_describe_host (VmmBackend *self)
{
  return NULL;
}

static void
vmm_backend_default_init (VmmBackendInterface *iface)
{
  iface->configure = real_configure;
  iface->is_available = real_is_available;
  iface->dup_capabilities = real_dup_capabilities;
  iface->describe_host = real_describe_host;
}

/**
 * vmm_backend_configure:
 * @self: a backend
 * @config: what the daemon tells it; copied by the backend where it keeps something
 * @error: return location for an error
 *
 * Configures the backend, once, before anything else. It must not act on the host yet.
 *
 * Returns: %FALSE with an error of `VMM_ERROR` when the backend cannot work with @config
 */
gboolean
vmm_backend_configure (VmmBackend *self, const VmmBackendConfig *config, GError **error)
{
  g_return_val_if_fail (VMM_IS_BACKEND (self), FALSE);
  g_return_val_if_fail (config != NULL, FALSE);

  return VMM_BACKEND_GET_IFACE (self)->configure (self, config, error);
}

/**
 * vmm_backend_is_available:
 * @self: a backend
 * @reason: (out) (optional) (nullable) (transfer full): a sentence saying why not; %NULL when
 *   it is available
 *
 * Whether the backend could work on this host. Cheap and free of side effects.
 *
 * Returns: %TRUE when it could
 */
gboolean
vmm_backend_is_available (VmmBackend *self, char **reason)
{
  g_autofree char *why = NULL;
  gboolean available;

  g_return_val_if_fail (VMM_IS_BACKEND (self), FALSE);

  available = VMM_BACKEND_GET_IFACE (self)->is_available (self, &why);
  if (reason == NULL)
    return available;

  if (available)
    *reason = NULL;
  else if (why == NULL)
    *reason = g_strdup ("it does not say why");
  else
    *reason = g_steal_pointer (&why);
  return available;
}

/**
 * vmm_backend_dup_capabilities:
 * @self: a backend
 *
 * What the backend can do beyond its interface, such as `learn`.
 *
 * Returns: (transfer full) (array zero-terminated=1): names, none when there is nothing
 */
GStrv
vmm_backend_dup_capabilities (VmmBackend *self)
{
  g_return_val_if_fail (VMM_IS_BACKEND (self), NULL);

  return VMM_BACKEND_GET_IFACE (self)->dup_capabilities (self);
}

/**
 * vmm_backend_has_capability:
 * @self: a backend
 * @capability: a name
 *
 * Whether the backend advertises a capability.
 *
 * Returns: %TRUE when it does
 */
gboolean
vmm_backend_has_capability (VmmBackend *self, const char *capability)
{
  g_auto (GStrv) capabilities = NULL;

  g_return_val_if_fail (VMM_IS_BACKEND (self), FALSE);
  g_return_val_if_fail (capability != NULL, FALSE);

  capabilities = vmm_backend_dup_capabilities (self);
  return capabilities != NULL && g_strv_contains ((const char *const *) capabilities, capability);
}

/**
 * vmm_backend_describe_host:
 * @self: a backend
 *
 * Members that the backend adds to the host report.
 *
 * Returns: (transfer none) (nullable): a floating `a{sv}`, or %NULL for none
 */
GVariant *
vmm_backend_describe_host (VmmBackend *self)
{
  g_return_val_if_fail (VMM_IS_BACKEND (self), NULL);

  return VMM_BACKEND_GET_IFACE (self)->describe_host (self);
}
