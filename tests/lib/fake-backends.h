/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "interfaces/vmm.h"

G_BEGIN_DECLS

/* What QEMU needs to open for a port of the fake network. */
#define TEST_FAKE_NETWORK_DEVICE "/dev/net/tun"

/* One backend of each kind, all named "fake", that act on nothing but memory and do as they are
 * told. They live in one control block per process: what they hold survives a "daemon" that a test
 * drops and makes again, and goes with test_fakes_reset().
 *
 * CALLS. Each call that a backend gets is logged as "call subject" and can be told what to do:
 *
 *   call                       subject        when it lies
 *   launcher.start             role           says it started, but the process exits with 1 at once
 *   launcher.find              role           finds one that has ended, status unknown
 *   process.stop               role           says it stopped, but it goes on
 *   process.signal             role           says it signalled, but did not (so does hang)
 *   network.open               network        -
 *   network.attach             vm id          arguments with another MAC address
 *   network.detach             vm id          says it detached, but did not
 *   network.dial               vm id          a connection that is closed already
 *   network.forward            vm id          port 1
 *   network.unforward          forward id     says it is gone, but it stays
 *   network.close              network        says it is closed, but it stays open
 *   storage.acquire            volume         a volume of half the size
 *   storage.grow               volume         says it grew, but it did not
 *   storage.remove             volume         says it is gone, but it stays
 *   storage.list               glob or "*"    an empty list
 *   attestor.nonce             vm id          a nonce of one byte
 *   attestor.judge             vm id          verified, whatever the test said
 *   attestor.begin-boot, attestor.forget      (only logged)
 *
 * A plan is for a call ("launcher.start") or for a call on one subject ("launcher.start:qemu"),
 * which goes before the other. process.signal is logged as "process.signal role number", and not
 * for the signals of a stop.
 *
 * PROCESSES have process ids that no real process has. TERM ends one as signal 15, KILL as 9. With
 * peers, those of the roles tpm, qemu and monitor answer on the sockets that their arguments name
 * and decide themselves what a signal does.
 *
 * AS A MODULE, libvmm-fake-backends.so, in a real daemon: peers are on and the environment variable
 * VMM_FAKE tells what to do, comma-separated:
 *
 *   fail=CALL[:SUBJECT]   the call fails; hang= and lie= likewise; may be repeated
 *   unavailable=KIND      launcher, network, storage or attestor says that it is not available
 *   outlives              the launcher says that its processes outlive the daemon
 *   lasting               there is another launcher, see lasting-launcher.h; lasting=no: as long
 *                         as the daemon; lasting=all: the fakes of VMs are programs, too
 *   unverified            the attestor does not verify
 *   all else              is for the peers, see fake-peers.h
 *
 * With VMM_FAKE_FORGETS in the environment it does not keep the log.
 */
typedef struct
{
  gboolean outlives_daemon;
  gboolean peers;
  gboolean has_lasting;        /* the launcher of that name is to be there, */
  gboolean lasting_ends;       /* and what it starts is to end with the daemon */
  gboolean lasting_all;        /* and everything that it starts is a process */
  gboolean verifies;           /* TRUE after a reset */
  const char *unavailable[4];  /* by launcher, network, storage, attestor: why; NULL when it is */
  guint16 forward_port;        /* what a forward without a host port gets; 0: a free one */
  VmmNetworkCounters counters; /* of each network */
  VmmProcessUsage usage;       /* of each process */
} TestFakes;

extern TestFakes test_fakes;

/* Registers the four backends with their extension points; more than once is fine. */
void test_fakes_register (void);
/* Forgets everything: plans, log, processes, volumes, networks. Calls that hang are cancelled. */
void test_fakes_reset (void);
/* Does as a text like that of VMM_FAKE says; NULL is the empty text. Peers are on afterwards. */
void test_fakes_configure_from_text (const char *text);

/* Plans, until they are cleared or reset. */
void test_fakes_fail (const char *call, VmmError code, const char *message);
void test_fakes_fail_once (const char *call, VmmError code, const char *message);
void test_fakes_hang (const char *call);
void test_fakes_lie (const char *call);
void test_fakes_clear (const char *call);
/* Clears the plan and lets the calls that hang go on. */
void test_fakes_release (const char *call);
guint test_fakes_get_n_hanging (void);

/* The calls so far, one a line, and how often one of them was made ("storage.remove vm-1"). */
char *test_fakes_dup_log (void);
guint test_fakes_count (const char *line);
void test_fakes_clear_log (void);

/* Processes. owner may be NULL for any. */
gboolean test_fakes_is_running (const char *owner, const char *role);
guint test_fakes_get_n_running (void);
/* What the process was started with; NULL when there is none. */
VmmProcessSpec *test_fakes_get_spec (const char *owner, const char *role);
/* Ends a process: with a code, or with a signal when that is not 0. */
void test_fakes_exit (const char *owner, const char *role, int code, int signum);
/* The process ended while nobody saw it: the status is lost. */
void test_fakes_vanish (const char *owner, const char *role);
/* The daemon died: nobody watches any more, and processes that do not outlive it are gone. */
void test_fakes_daemon_died (void);

/* Networks. */
VmmNetwork *test_fakes_get_network (const char *name);
/* What the network was opened with; 0 when there is none. */
guint test_fakes_get_network_mtu (const char *name);
gboolean test_fakes_is_attached (const char *vm_id);
guint test_fakes_get_n_ports (void);
guint test_fakes_get_n_forwards (void);
/* The daemon's metadata socket of an attached VM; NULL when there is none. */
const char *test_fakes_get_metadata_path (const char *vm_id);
/* The guest's end of the oldest connection that was dialled; NULL when there is none. */
GIOStream *test_fakes_take_dialed (void);

/* Volumes: whether it exists, and its size in bytes. */
gboolean test_fakes_has_volume (const char *name, guint64 *size_bytes);
guint test_fakes_get_n_volumes (void);

/* What the attestor says from now on; NULL: verified. */
void test_fakes_set_verdict (VmmVerdict *verdict);

/* Types, for tests that need one backend alone. */
#define TEST_TYPE_FAKE_LAUNCHER (test_fake_launcher_get_type ())
G_DECLARE_FINAL_TYPE (TestFakeLauncher, test_fake_launcher, TEST, FAKE_LAUNCHER, GObject)
#define TEST_TYPE_FAKE_NETWORK_BACKEND (test_fake_network_backend_get_type ())
G_DECLARE_FINAL_TYPE (TestFakeNetworkBackend, test_fake_network_backend, TEST, FAKE_NETWORK_BACKEND,
                      GObject)
#define TEST_TYPE_FAKE_STORAGE (test_fake_storage_get_type ())
G_DECLARE_FINAL_TYPE (TestFakeStorage, test_fake_storage, TEST, FAKE_STORAGE, GObject)
#define TEST_TYPE_FAKE_ATTESTOR (test_fake_attestor_get_type ())
G_DECLARE_FINAL_TYPE (TestFakeAttestor, test_fake_attestor, TEST, FAKE_ATTESTOR, GObject)

G_END_DECLS
