/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "vmm-machine.h"

G_BEGIN_DECLS

/* One VM on the fake backends, with a state folder of its own, a network "default" and an image
 * "demo_1.0.0". A machine comes and goes as its daemon would; the folder and the fakes stay. */
typedef struct
{
  char *state_dir;
  VmmPluginRegistry *registry;
  VmmMachineContext context;
  VmmMachine *machine;
  gboolean require_attestation;
  gboolean gone;
  guint32 next_cid; /* what the next free one is; counts up */
} MachineFixture;

/* The rows that any machine of this test took: from, event, to. */
extern guint8 machine_fixture_seen[VMM_MACHINE_N_STATES][VMM_MACHINE_N_EVENTS]
                                  [VMM_MACHINE_N_STATES + 1];

#define MACHINE_FIXTURE_ID "1a2b3c4d"

MachineFixture *machine_fixture_new (void);
/* Leaves nothing behind, and checks that the machine was freed. */
void machine_fixture_free (MachineFixture *self);

/* A machine that is still to be created. */
void machine_fixture_make (MachineFixture *self);
/* The operations, waited for. */
gboolean machine_fixture_create (MachineFixture *self, GError **error);
gboolean machine_fixture_start (MachineFixture *self, GError **error);
gboolean machine_fixture_stop (MachineFixture *self, GError **error);
gboolean machine_fixture_reboot (MachineFixture *self, GError **error);
gboolean machine_fixture_delete (MachineFixture *self, GError **error);
gboolean machine_fixture_close (MachineFixture *self, gboolean detach, GError **error);

void machine_fixture_await_state (MachineFixture *self, VmmMachineState state);
/* Until lastError begins with, or contains, the text. */
void machine_fixture_await_error (MachineFixture *self, const char *text);
const VmmMachineRecord *machine_fixture_record (MachineFixture *self);
/* Makes it, and brings it to a state by what really leads there. */
void machine_fixture_bring_to (MachineFixture *self, VmmMachineState state);
/* Installed, and the installed boot waits for its vTPM. */
void machine_fixture_bring_to_installed (MachineFixture *self);

/* QEMU ends and its monitor says so; reason, if any, is of a SHUTDOWN event before. */
void machine_fixture_end_qemu (MachineFixture *self, int code, int signum, const char *reason);

/* The daemon is killed and comes back: vm.json is read and the machine recovered. */
void machine_fixture_kill (MachineFixture *self);
void machine_fixture_recover (MachineFixture *self);
/* Until no write of the record is in flight. */
void machine_fixture_flush (MachineFixture *self);
/* vm.json as text, and rewritten with one piece replaced. */
char *machine_fixture_read_record (MachineFixture *self);
void machine_fixture_edit_record (MachineFixture *self, const char *from, const char *to);
/* A file of the VM's folder. */
char *machine_fixture_path (MachineFixture *self, const char *name);
void machine_fixture_write (MachineFixture *self, const char *path, const char *content);
/* No folder, no process, no lease, no port, no volume. */
void machine_fixture_assert_nothing_left (MachineFixture *self);

G_END_DECLS
