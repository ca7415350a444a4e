/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "interfaces/vmm.h"

G_BEGIN_DECLS

/* Fake swtpm, QEMU, vmm-monitor and vhost-device-vsock that live in the test's own process, behind the real sockets
 * that their command lines name. A fake launcher makes one for each process it is asked to start.
 * */
typedef struct _TestPeer TestPeer;

/* How the fakes behave: read at the moment it matters, so a test changes it in mid-life. */
typedef struct
{
  guint installer_ms;         /* from cont to the installer's end; TEST_PEER_NEVER */
  int installer_exit;         /* not 0: it ends without a SHUTDOWN event */
  const char *installer_reason; /* of its SHUTDOWN event */
  guint ready_ms;             /* from cont, or a reset, to READY=1; TEST_PEER_NEVER */
  guint powerdown_ms;         /* from the power button to the guest's end */
  gboolean ignore_powerdown;  /* the guest does not react to the power button */
  gboolean ignore_quit;       /* answers quit and stays */
  gboolean ignore_term;       /* stays at SIGTERM */
  gboolean qmp_silent;        /* accepts, then says nothing */
  gboolean qmp_garbage;       /* greets with something that is not JSON */
  int qemu_exit;              /* not 0: QEMU exits with it instead of listening */
  gboolean tpm_silent;
  int tpm_exit;
  gboolean monitor_silent;
  int monitor_exit;
  gboolean vsock_silent;      /* makes no socket */
  int vsock_exit;
  int tpm_setup_exit;         /* not 0: it makes no state */
} TestPeerBehaviour;

#define TEST_PEER_NEVER G_MAXUINT

extern TestPeerBehaviour test_peer_behaviour;

/* Back to the defaults (everything works, at once), then what the text says: "installer-ms=20,
 * ready-ms=never,installer-exit=7,installer-reason=guest-shutdown,powerdown-ms=5,powerdown=ignore,
 * quit=ignore,term=ignore,qmp=silent,qmp=garbage,qemu-exit=1,tpm=silent,tpm-exit=1,monitor=silent,
 * monitor-exit=1,vsock=silent,vsock-exit=1,
 * tpm-setup-exit=1". NULL is the empty text; an unknown word fails the test. */
void test_peer_configure (const char *text);

/* The process exited: code, or -1 and a signal. Called once, never from within test_peer_new(). */
typedef void (*TestPeerExit) (int code, int signum, gpointer user_data);

/* By the role of the spec: "tpm", "qemu", "monitor", "vsock", "tpm-setup"; NULL for any other. */
TestPeer *test_peer_new (VmmProcessSpec *spec, TestPeerExit exit_cb, gpointer user_data);
/* At any time, also from within the exit callback; nothing is reported any more. */
void test_peer_free (TestPeer *peer);
/* What the program does at SIGTERM or SIGKILL. */
void test_peer_signal (TestPeer *peer, int signum);

/* Lets something happen to a VM; FALSE when it has no such program running.
 * "ready", "status": journal only. "reset": RESET and the journal, then READY=1 anew. "stop" (a full
 * disk), "resume": QMP and journal. "shutdown": the guest powers off. "crash": QEMU dies of SIGSEGV.
 * "tpm-exit", "monitor-exit", "vsock-exit": that program exits with 1. */
gboolean test_peer_emit (const char *vm_id, const char *what);
/* Writes an entry into the journal of a VM; data is a JSON object as text, or NULL. */
void test_peer_journal (const char *vm_id, const char *event, const char *data);
/* Told of each entry as well: for a QEMU that is a program of its own, beside a real monitor. */
typedef void (*TestPeerJournalWatch) (const char *event);
void test_peer_watch_journal (TestPeerJournalWatch watch);
/* Whether a program of that role runs, and how often the power button of a VM was pressed. */
gboolean test_peer_is_running (const char *vm_id, const char *role);
guint test_peer_get_n_powerdowns (const char *vm_id);
/* Forgets the journals of VMs of which no program runs. */
void test_peer_forget (void);

G_END_DECLS
