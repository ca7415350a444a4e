/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* QEMU's end of the daemon's QMP connection, saying anything. Input: bits, what it says. Each command
 * is answered once, and an error is a bounded text that can be logged. */

#include "vmm-qmp.h"

#include <string.h>

#include "fuzz.h"
#include "scripted-peer.h"
#include "test-await.h"

#define POLITE 0x01 /* it greets first and takes our features */
#define PIECES 0x02
#define HANG_UP 0x04
#define GREETING "{\"QMP\":{}}"
#define TAKEN "{\"return\":{},\"id\":1}"
#define COMMANDS 3
#define LONG_MS 600000

static char *folder, *path;
static ScriptedPeer *peer;
static guint answers;

static void
check_error (const GError *error)
{
  g_assert_nonnull (error);
  g_assert_true (g_utf8_validate (error->message, -1, NULL));
  g_assert_cmpuint (strlen (error->message), <, 4096);
}

static void
answer_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  gboolean *answered = user_data;
  g_autoptr (GError) error = NULL;
  g_autoptr (JsonNode) node = vmm_qmp_execute_finish (VMM_QMP (source), result, &error);

  g_assert_false (*answered);
  *answered = TRUE;
  answers++;
  if (node == NULL)
    check_error (error);
}

static void
event_cb (VmmQmp *qmp, const char *name, JsonObject *data, gpointer user_data)
{
  g_assert_nonnull (name);
  g_assert_nonnull (data);
}

static void
closed_cb (VmmQmp *qmp, const char *reason, gpointer user_data)
{
  guint *closed = user_data;

  g_assert_cmpuint (++*closed, ==, 1);
  g_assert_false (vmm_qmp_is_open (qmp));
}

static void
say (const uint8_t *data, gsize size, guint bits)
{
  gsize half = (bits & PIECES) != 0 ? size / 2 : size;

  if (!scripted_peer_has_client (peer))
    return;
  scripted_peer_say_bytes (peer, (const char *) data, half);
  if ((bits & PIECES) != 0)
    test_drain ();
  if (scripted_peer_has_client (peer) && size > half)
    scripted_peer_say_bytes (peer, (const char *) data + half, size - half);
  test_drain ();
}

static void
run_commands (VmmQmp *qmp, const uint8_t *data, gsize size, guint bits)
{
  gboolean answered[COMMANDS] = { FALSE };
  guint closed = 0;

  answers = 0;
  g_signal_connect (qmp, "event", G_CALLBACK (event_cb), NULL);
  g_signal_connect (qmp, "closed", G_CALLBACK (closed_cb), &closed);
  for (guint i = 0; i < COMMANDS; i++)
    vmm_qmp_execute_async (qmp, "stop", NULL, LONG_MS, NULL, answer_cb, &answered[i]);
  test_drain ();
  say (data, size, bits);
  if ((bits & HANG_UP) != 0)
    scripted_peer_hang_up (peer);
  test_drain ();
  vmm_qmp_close (qmp);
  test_drain ();
  g_assert_cmpuint (answers, ==, COMMANDS);
  g_signal_handlers_disconnect_by_data (qmp, &closed);
}

static VmmQmp *
greet (const uint8_t *data, gsize size, guint bits)
{
  TestAwait await = TEST_AWAIT_INIT;
  g_autoptr (GCancellable) cancellable = g_cancellable_new ();
  g_autoptr (GAsyncResult) result = NULL;
  g_autoptr (GError) error = NULL;
  VmmQmp *qmp;

  scripted_peer_set_greeting (peer, (bits & POLITE) != 0 ? GREETING : NULL);
  vmm_qmp_connect_async (path, NULL, NULL, cancellable, test_await_cb, &await);
  test_drain ();
  if ((bits & POLITE) != 0)
    scripted_peer_say (peer, TAKEN);
  else
    say (data, size, bits);
  test_drain ();
  if (await.result == NULL && (bits & POLITE) == 0)
    g_cancellable_cancel (cancellable);
  result = test_await (&await);
  qmp = vmm_qmp_connect_finish (result, &error);
  if (qmp == NULL)
    check_error (error);
  return qmp;
}

int
LLVMFuzzerInitialize (int *argc, char ***argv)
{
  folder = test_make_directory ();
  path = g_build_filename (folder, "qmp.sock", NULL);
  peer = scripted_peer_new (path, NULL);
  return 0;
}

int
LLVMFuzzerTestOneInput (const uint8_t *data, size_t size)
{
  g_autoptr (VmmQmp) qmp = NULL;
  guint bits = size > 0 ? data[0] : 0;

  if (size < 1)
    return 0;
  qmp = greet (data + 1, size - 1, bits);
  if (qmp != NULL)
    run_commands (qmp, data + 1, size - 1, bits);
  g_clear_object (&qmp);
  test_drain ();
  return 0;
}

void
fuzz_finish (void)
{
  scripted_peer_free (peer);
  g_free (path);
  test_remove_directory (folder);
}
