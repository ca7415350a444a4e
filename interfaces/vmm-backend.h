/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <gio/gio.h>

G_BEGIN_DECLS

/**
 * VmmBackendConfig:
 * @state_dir: the daemon's state directory
 * @runtime_dir: a directory for sockets that need not survive a reboot
 * @account: (nullable): the account children run as when the daemon is root
 *
 * What a backend is told, once, before anything else.
 */
typedef struct
{
  const char *state_dir;
  const char *runtime_dir;
  const char *account;
} VmmBackendConfig;

#define VMM_TYPE_BACKEND (vmm_backend_get_type ())
G_DECLARE_INTERFACE (VmmBackend, vmm_backend, VMM, BACKEND, GObject)

/**
 * VmmBackendInterface:
 * @configure: takes the configuration; must not act on the host yet
 * @is_available: whether the backend could work here, with a sentence saying why not
 * @dup_capabilities: names of what this backend can do beyond its interface, such as `learn`
 * @describe_host: (nullable): members to add to the host report, as a floating `a{sv}`
 *
 * What every kind of backend has in common.
 */
struct _VmmBackendInterface
{
  GTypeInterface parent_iface;

  gboolean (*configure) (VmmBackend *self, const VmmBackendConfig *config, GError **error);
  gboolean (*is_available) (VmmBackend *self, char **reason);
  GStrv (*dup_capabilities) (VmmBackend *self);
  GVariant *(*describe_host) (VmmBackend *self);
};

gboolean vmm_backend_configure (VmmBackend *self, const VmmBackendConfig *config, GError **error);
gboolean vmm_backend_is_available (VmmBackend *self, char **reason);
GStrv vmm_backend_dup_capabilities (VmmBackend *self);
gboolean vmm_backend_has_capability (VmmBackend *self, const char *capability);
GVariant *vmm_backend_describe_host (VmmBackend *self);

G_END_DECLS
