/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <json-glib/json-glib.h>

#include "interfaces/vmm.h"

G_BEGIN_DECLS

/* The daemon's end of vmm-monitor, the small process beside each QEMU: it owns the serial console,
 * the READY=1 listener and a second QMP connection, and keeps an ordered journal.
 *
 * Protocol on vms/<id>/monitor.sock, one JSON object a line, at most 64 KiB:
 *   monitor: {"vmm-monitor": 1, "features": [...]}
 *   daemon:  {"read-from": N}                  (the events numbered above N; 0: all that are kept)
 *   monitor: {"seq": N, "at": "<RFC 3339>", "event": "ready"|"status"|"reset"|"shutdown"|"stop"|
 *             "resume"|"exit", "data": {...}}  (journal, then live)
 * data: status {"text"}, shutdown {"guest": bool, "reason"}, stop {"reason"}. Numbers begin at 1,
 * only grow, and go on over restarts of the monitor and of the VM.
 *
 * ::event (guint64 seq, const char *name, JsonObject *data), ::closed (const char *reason) once. */
#define VMM_TYPE_WITNESS (vmm_witness_get_type ())
G_DECLARE_FINAL_TYPE (VmmWitness, vmm_witness, VMM, WITNESS, GObject)

typedef struct
{
  const char *vm_id;
  const char *directory;     /* vms/<id> */
  guint32 cid;
  guint32 notify_port;
  /* Of the program that is the VM's vsock device; NULL where the kernel is, and the monitor listens on
   * AF_VSOCK. Else on the Unix socket "<vsock_socket>_<notify_port>". */
  const char *vsock_socket;
} VmmWitnessConfig;

/* Starts the monitor through the launcher; it is there when its socket has said hello (5 s). */
void vmm_witness_start_async (VmmLauncher *launcher, const VmmWitnessConfig *config,
                              GCancellable *cancellable, GAsyncReadyCallback callback,
                              gpointer user_data);
VmmProcess *vmm_witness_start_finish (GAsyncResult *result, GError **error);
/* Connects to a running monitor and reads its journal on: read_from is the number of the last
 * event that was seen, 0 for none. */
void vmm_witness_connect_async (const char *directory, guint64 read_from,
                                GCancellable *cancellable, GAsyncReadyCallback callback,
                                gpointer user_data);
VmmWitness *vmm_witness_connect_finish (GAsyncResult *result, GError **error);
void vmm_witness_close (VmmWitness *self);
gboolean vmm_witness_is_open (VmmWitness *self);

G_END_DECLS
