/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "vmm-attachment.h"
#include "vmm-backend.h"
#include "vmm-launcher.h"

G_BEGIN_DECLS

/**
 * VmmNetworkSpec:
 * @name: the network's name, a DNS label
 * @cidr: the IPv4 prefix with its host bits cleared, such as `192.168.127.0/24`
 * @gateway: the gateway's address
 * @gateway_mac: the gateway's MAC address
 * @dns_search_domain: (nullable): handed out over DHCP
 * @mtu: largest packet, in bytes
 * @enable_imds: whether 169.254.169.254 is served
 * @enable_host_alias: whether the last but one address reaches the host's 127.0.0.1
 * @directory: the network's own directory, 0750, made by the daemon
 *
 * What a network is to be.
 */
typedef struct
{
  const char *name;
  const char *cidr;
  const char *gateway;
  const char *gateway_mac;
  const char *dns_search_domain;
  guint mtu;
  gboolean enable_imds;
  gboolean enable_host_alias;
  const char *directory;
} VmmNetworkSpec;

/**
 * VmmNetworkPort:
 * @vm_id: which VM is plugged in
 * @mac: its MAC address
 * @ip: its IPv4 address
 * @socket_path: where QEMU listens for the network, when the backend uses a socket
 * @metadata_path: (nullable): the daemon's socket that serves this VM's metadata: each TCP
 *   connection of the guest to 169.254.169.254:80 becomes one connection to it
 *
 * One VM's place on a network. The guest is identified by its port alone.
 */
typedef struct
{
  const char *vm_id;
  const char *mac;
  const char *ip;
  const char *socket_path;
  const char *metadata_path;
} VmmNetworkPort;

/**
 * VmmForwardSpec:
 * @id: the forward's id, chosen by the daemon
 * @vm_id: the VM it leads to
 * @ip: the VM's address
 * @port: the VM's port
 * @protocol: `tcp` or `udp`
 * @host_address: address to listen on
 * @host_port: port to listen on; 0 lets the kernel choose
 *
 * A port of the host that leads to a port of a VM.
 */
typedef struct
{
  const char *id;
  const char *vm_id;
  const char *ip;
  guint16 port;
  const char *protocol;
  const char *host_address;
  guint16 host_port;
} VmmForwardSpec;

/**
 * VmmNetworkCounters:
 * @bytes_sent: bytes sent to VMs, framing included
 * @bytes_received: bytes received from VMs, framing included
 * @dropped: frames dropped because a queue was full
 * @spoofed: frames refused because they were not the lease's
 *
 * What a network carried since it came up.
 */
typedef struct
{
  guint64 bytes_sent;
  guint64 bytes_received;
  guint64 dropped;
  guint64 spoofed;
} VmmNetworkCounters;

/**
 * VmmNetwork:
 *
 * A network that is up.
 *
 * ::failed (const char *reason) says that it carries no packets any more; ::recovered that it does
 * again.
 */
#define VMM_TYPE_NETWORK (vmm_network_get_type ())
G_DECLARE_DERIVABLE_TYPE (VmmNetwork, vmm_network, VMM, NETWORK, GObject)

struct _VmmNetworkClass
{
  GObjectClass parent_class;

  void (*attach_async) (VmmNetwork *self, const VmmNetworkPort *port, GCancellable *cancellable,
                        GAsyncReadyCallback callback, gpointer user_data);
  VmmAttachment *(*attach_finish) (VmmNetwork *self, GAsyncResult *result, GError **error);
  void (*detach_async) (VmmNetwork *self, const char *vm_id, GCancellable *cancellable,
                        GAsyncReadyCallback callback, gpointer user_data);
  gboolean (*detach_finish) (VmmNetwork *self, GAsyncResult *result, GError **error);
  void (*dial_async) (VmmNetwork *self, const char *vm_id, const char *ip, guint16 port,
                      GCancellable *cancellable, GAsyncReadyCallback callback, gpointer user_data);
  GIOStream *(*dial_finish) (VmmNetwork *self, GAsyncResult *result, GError **error);
  void (*forward_async) (VmmNetwork *self, const VmmForwardSpec *spec, GCancellable *cancellable,
                         GAsyncReadyCallback callback, gpointer user_data);
  guint (*forward_finish) (VmmNetwork *self, GAsyncResult *result, GError **error);
  void (*unforward_async) (VmmNetwork *self, const char *forward_id, GCancellable *cancellable,
                           GAsyncReadyCallback callback, gpointer user_data);
  gboolean (*unforward_finish) (VmmNetwork *self, GAsyncResult *result, GError **error);
  gboolean (*get_counters) (VmmNetwork *self, VmmNetworkCounters *counters);
  void (*close_async) (VmmNetwork *self, gboolean keep_running, GCancellable *cancellable,
                       GAsyncReadyCallback callback, gpointer user_data);
  gboolean (*close_finish) (VmmNetwork *self, GAsyncResult *result, GError **error);
  void (*keep_only) (VmmNetwork *self, const char *const *vm_ids, const char *const *forward_ids);
};

void vmm_network_attach_async (VmmNetwork *self, const VmmNetworkPort *port,
                               GCancellable *cancellable, GAsyncReadyCallback callback,
                               gpointer user_data);
VmmAttachment *vmm_network_attach_finish (VmmNetwork *self, GAsyncResult *result, GError **error);
void vmm_network_detach_async (VmmNetwork *self, const char *vm_id, GCancellable *cancellable,
                               GAsyncReadyCallback callback, gpointer user_data);
gboolean vmm_network_detach_finish (VmmNetwork *self, GAsyncResult *result, GError **error);
void vmm_network_dial_async (VmmNetwork *self, const char *vm_id, const char *ip, guint16 port,
                             GCancellable *cancellable, GAsyncReadyCallback callback,
                             gpointer user_data);
GIOStream *vmm_network_dial_finish (VmmNetwork *self, GAsyncResult *result, GError **error);
void vmm_network_forward_async (VmmNetwork *self, const VmmForwardSpec *spec,
                                GCancellable *cancellable, GAsyncReadyCallback callback,
                                gpointer user_data);
guint vmm_network_forward_finish (VmmNetwork *self, GAsyncResult *result, GError **error);
void vmm_network_unforward_async (VmmNetwork *self, const char *forward_id,
                                  GCancellable *cancellable, GAsyncReadyCallback callback,
                                  gpointer user_data);
gboolean vmm_network_unforward_finish (VmmNetwork *self, GAsyncResult *result, GError **error);
gboolean vmm_network_get_counters (VmmNetwork *self, VmmNetworkCounters *counters);
void vmm_network_close_async (VmmNetwork *self, gboolean keep_running, GCancellable *cancellable,
                              GAsyncReadyCallback callback, gpointer user_data);
gboolean vmm_network_close_finish (VmmNetwork *self, GAsyncResult *result, GError **error);
void vmm_network_keep_only (VmmNetwork *self, const char *const *vm_ids,
                            const char *const *forward_ids);

/**
 * VMM_NETWORK_BACKEND_EXTENSION_POINT:
 *
 * The extension point of network backends.
 */
#define VMM_NETWORK_BACKEND_EXTENSION_POINT "vmm-network"
#define VMM_TYPE_NETWORK_BACKEND (vmm_network_backend_get_type ())
G_DECLARE_INTERFACE (VmmNetworkBackend, vmm_network_backend, VMM, NETWORK_BACKEND, VmmBackend)

/**
 * VmmNetworkBackendInterface:
 * @open_async: bring the network up, or find it again when it still runs. @launcher starts
 *   the helpers it needs. Ports are attached afterwards, one by one
 * @open_finish: (transfer full): the network
 *
 * Carries the packets.
 */
struct _VmmNetworkBackendInterface
{
  GTypeInterface parent_iface;

  void (*open_async) (VmmNetworkBackend *self, const VmmNetworkSpec *spec, VmmLauncher *launcher,
                      GCancellable *cancellable, GAsyncReadyCallback callback, gpointer user_data);
  VmmNetwork *(*open_finish) (VmmNetworkBackend *self, GAsyncResult *result, GError **error);
};

void vmm_network_backend_open_async (VmmNetworkBackend *self, const VmmNetworkSpec *spec,
                                     VmmLauncher *launcher, GCancellable *cancellable,
                                     GAsyncReadyCallback callback, gpointer user_data);
VmmNetwork *vmm_network_backend_open_finish (VmmNetworkBackend *self, GAsyncResult *result,
                                             GError **error);

G_END_DECLS
