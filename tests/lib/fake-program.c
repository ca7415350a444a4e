/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* One of the fakes of a VM as a program of its own, which a test can kill.
 *
 * Usage: fake-program ID OWNER ROLE COMMAND...
 *
 * A fake QEMU serves the console as well, since the monitor beside it is a real one, and its guest
 * says READY=1 where a vsock device would bring it. How it ends is left in VMM_FAKE_PROCESSES for a
 * daemon whose child it is not. */

#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <glib-unix.h>

#include "fake-backends.h"
#include "fake-peer-loop.h"
#include "fake-peers.h"

#define CONSOLE "socket,id=console,path="
#define GUEST_SOCKETS "vsock.sock_"

static const char *process_id;
static char *directory; /* of the VM, for QEMU */

static void
exit_cb (int code, int signum, gpointer user_data)
{
  g_autofree char *name = g_strconcat (process_id, ".exit", NULL);
  g_autofree char *path = g_build_filename (g_getenv ("VMM_FAKE_PROCESSES"), name, NULL);
  g_autofree char *text = g_strdup_printf ("%d", code);

  g_file_set_contents (path, text, -1, NULL);
  _exit (code);
}

static gboolean
term_cb (gpointer user_data)
{
  test_peer_signal (user_data, SIGTERM);
  return G_SOURCE_CONTINUE;
}

static void
say_ready (const char *path)
{
  struct sockaddr_un address = { .sun_family = AF_UNIX };
  int fd = socket (AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

  g_strlcpy (address.sun_path, path, sizeof address.sun_path);
  if (fd >= 0 && connect (fd, (struct sockaddr *) &address, sizeof address) == 0)
    (void) !write (fd, "READY=1\n", 8);
  if (fd >= 0)
    close (fd);
}

static void
journal_cb (const char *event)
{
  g_autoptr (GDir) dir = NULL;
  const char *name;

  if (directory == NULL || strcmp (event, "ready") != 0)
    return;
  dir = g_dir_open (directory, 0, NULL);
  while (dir != NULL && (name = g_dir_read_name (dir)) != NULL)
    if (g_str_has_prefix (name, GUEST_SOCKETS))
      {
        g_autofree char *path = g_build_filename (directory, name, NULL);

        say_ready (path);
      }
}

/* Nobody reads or writes it. */
static void
serve_console (char **command)
{
  for (guint i = 0; command[i] != NULL; i++)
    if (g_str_has_prefix (command[i], CONSOLE))
      {
        const char *start = command[i] + strlen (CONSOLE);
        g_autofree char *path = g_strndup (start, strcspn (start, ","));

        directory = g_path_get_dirname (path);
        g_assert_cmpint (test_listen (path), >=, 0);
      }
}

int
main (int argc, char **argv)
{
  g_autoptr (VmmProcessSpec) spec = NULL;
  g_autoptr (GMainLoop) loop = g_main_loop_new (NULL, FALSE);
  g_autofree char *here = g_get_current_dir ();
  TestPeer *peer;

  g_assert_cmpint (argc, >, 4);
  process_id = argv[1];
  spec = vmm_process_spec_new (process_id, (const char *const *) argv + 4);
  vmm_process_spec_set_owner (spec, argv[2], argv[3]);
  vmm_process_spec_set_directory (spec, here);
  test_fakes_configure_from_text (g_getenv ("VMM_FAKE"));
  test_peer_watch_journal (journal_cb);
  serve_console (argv + 4);
  peer = test_peer_new (spec, exit_cb, NULL);
  g_assert_nonnull (peer);
  g_unix_signal_add (SIGTERM, term_cb, peer);
  g_main_loop_run (loop);
  return 1;
}
