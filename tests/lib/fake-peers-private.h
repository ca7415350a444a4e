/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "fake-peer-loop.h"
#include "fake-peers.h"

G_BEGIN_DECLS

typedef enum
{
  TEST_ROLE_QEMU,
  TEST_ROLE_TPM,
  TEST_ROLE_MONITOR,
  TEST_ROLE_VSOCK,
  TEST_ROLE_TPM_SETUP,
  TEST_N_ROLES
} TestRole;

/* What the programs of one VM share. */
typedef struct
{
  TestPeer *peers[TEST_N_ROLES];
  GQueue journal; /* of lines */
  guint64 first_seq; /* of the journal's head */
  guint64 next_seq;
  guint n_powerdowns;
} TestVm;

typedef struct
{
  TestPeer *peer;
  char *path;
  guint64 inode; /* of the socket at the path */
  int fd;
  TestWatch *watch;   /* NULL while a QMP socket has its one client */
  GPtrArray *clients; /* of TestClient */
} TestListener;

typedef struct
{
  TestListener *listener;
  TestLines *lines;
  gboolean negotiated; /* QMP */
  gboolean live;       /* monitor: wants new entries */
} TestClient;

struct _TestPeer
{
  TestRole role;
  TestVm *vm;
  TestPeerExit exit_cb;
  gpointer user_data;
  GPtrArray *listeners;
  guint timer;
  guint exit_source;
  int exit_code;
  int exit_signal;
  gboolean exiting;
  gboolean install;
  gboolean started; /* cont was seen */
  gboolean running; /* the processors run */
};

/* Ends a program in the next turn of the main loop; a signum that is not 0 killed it. */
void test_peer_exit (TestPeer *peer, int code, int signum);
gboolean test_peer_add_listener (TestPeer *peer, const char *path);
typedef void (*TestClientFunc) (TestClient *client, gconstpointer data);
void test_peer_foreach_client (TestPeer *peer, TestClientFunc function, gconstpointer data);
void test_vm_journal (TestVm *vm, const char *event, const char *data);

/* fake-peer-qemu.c */
gboolean test_qemu_listen (TestPeer *peer, const char *const *argv);
void test_qemu_greet (TestClient *client);
void test_qemu_line (TestPeer *peer, TestClient *client, const char *line);
/* Something happens: "reset", "stop", "resume", "shutdown", "crash", "term". */
void test_qemu_emit (TestPeer *peer, const char *what);

G_END_DECLS
