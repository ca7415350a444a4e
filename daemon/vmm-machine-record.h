/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <json-glib/json-glib.h>

#include "interfaces/vmm.h"
#include "vmm-machine-fsm.h"

G_BEGIN_DECLS

/* The format of vm.json; a record of a higher number is never touched. */
#define VMM_MACHINE_RECORD_FORMAT 1
/* What a record may say; in bytes it still fits a number. */
#define VMM_MACHINE_MEMORY_MAX_MIB (G_MAXINT64 / (1024 * 1024))
#define VMM_MACHINE_KEYS_MAX 4096

typedef enum
{
  VMM_PROCESS_ROLE_QEMU,
  VMM_PROCESS_ROLE_TPM,
  VMM_PROCESS_ROLE_MONITOR,
  VMM_PROCESS_ROLE_VSOCK,
} VmmProcessRole;
#define VMM_N_PROCESS_ROLES (VMM_PROCESS_ROLE_VSOCK + 1)
const char *vmm_process_role_to_nick (VmmProcessRole role);

typedef struct
{
  char *id;
  guint16 port;
  char *protocol;
  char *host_address;
  guint16 host_port;
} VmmForward;
VmmForward *vmm_forward_copy (const VmmForward *forward);
void vmm_forward_free (VmmForward *forward);

/* One quote's result as it is kept: {verified, message, at, akFingerprint?, pcrs?, learned?}. */
typedef struct
{
  gboolean present;
  gint64 at;
  VmmVerdict *verdict;
} VmmQuoteResult;

/* One VM, field by field as in vm.json and in the API. Times are in microseconds since 1970, 0 for
 * "not yet". Strings are never NULL unless the comment says so. */
typedef struct
{
  char *id;
  char *name;
  char *image;
  char *kubernetes_version;      /* NULL for none */
  guint cpus;
  guint64 memory_mib;
  guint64 disk_gib;
  char *network;
  GStrv ssh_authorized_keys;     /* NULL for none */
  char *hostname;
  char *region;
  char *zone;
  GHashTable *metadata;          /* string -> string, never NULL */
  gboolean require_attestation;
  gboolean autostart;
  char *owner;                   /* the subject who created it */
  VmmMachineState state;
  char *phase;                   /* "install", "boot" or NULL */
  char *ip;                      /* NULL before the lease */
  char *mac;
  guint32 cid;
  guint32 notify_port;           /* per VM, fixed for its life */
  char *machine_id;
  gboolean booted;
  char *status;                  /* NULL for none */
  char *ssh_public_key;          /* NULL while creating */
  char *accelerator;             /* "kvm" or "tcg" of the current or last run; NULL before */
  gboolean user_data_released;
  gint64 nonce_issued_at;
  VmmQuoteResult initrd_quote;
  VmmQuoteResult ready_quote;
  char *pinned_key;              /* NULL until an attestor pinned one; kept, not shown */
  gint64 created_at;
  gint64 installed_at;
  gint64 booted_at;
  gint64 ready_at;
  gint64 tpm_restored_at;        /* the vTPM's state was that of a copy; 0 for never */
  char *last_error;              /* NULL for none */
  char *paused_reason;           /* NULL unless the guest is paused */
  gint64 paused_at;
  guint64 journal_position;      /* how far the monitor's journal was read; kept, not shown */
  VmmProcessHandle *processes[VMM_N_PROCESS_ROLES];
  GPtrArray *forwards;           /* of VmmForward, never NULL */
  char *volume_path;             /* NULL until the volume was opened */
} VmmMachineRecord;

VmmMachineRecord *vmm_machine_record_new (void);
void vmm_machine_record_free (VmmMachineRecord *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (VmmMachineRecord, vmm_machine_record_free)
/* Forgets both quotes, as at the start of a boot. */
void vmm_machine_record_clear_quotes (VmmMachineRecord *self);
/* The guest is not paused, or there is none any more. */
void vmm_machine_record_clear_paused (VmmMachineRecord *self);

/* The API's VM object. */
JsonNode *vmm_machine_record_to_json (const VmmMachineRecord *self, const char *directory);
/* The Attestation object of the API. */
JsonNode *vmm_machine_record_attestation_to_json (const VmmMachineRecord *self);
/* vm.json: the same with what is kept but not shown. */
JsonNode *vmm_machine_record_to_file (const VmmMachineRecord *self, const char *directory);
VmmMachineRecord *vmm_machine_record_from_file (JsonObject *object, GError **error);

G_END_DECLS
