/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "ssh-guest.h"

#include <glib/gstdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "test-await.h"

/* Not the first one of PATH: paramiko comes from a package of this Debian. */
#define PYTHON "/usr/bin/python3"

static char *
script (const char *name)
{
  return g_build_filename (g_getenv ("VMM_TEST_SOURCE_ROOT"), "tests", "lib", name, NULL);
}

static void
manage (SshGuest *self, const char *action, const char *argument)
{
  g_autofree char *program = script ("ssh-guest.py");
  const char *const argv[] = { PYTHON, program, action, self->folder, argument, NULL };
  g_autoptr (GError) error = NULL;
  int status = -1;

  g_spawn_sync (NULL, (char **) argv, NULL, G_SPAWN_STDOUT_TO_DEV_NULL, NULL, NULL, NULL, NULL,
                &status, &error);
  g_assert_no_error (error);
  g_assert_cmpint (status, ==, 0);
}

SshGuest *
ssh_guest_new (const char *public_line)
{
  SshGuest *self = g_new0 (SshGuest, 1);

  self->folder = test_make_directory ();
  self->processes = g_ptr_array_new_with_free_func (g_object_unref);
  manage (self, "prepare", public_line);
  return self;
}

void
ssh_guest_free (SshGuest *self)
{
  for (guint i = 0; i < self->processes->len; i++)
    {
      GSubprocess *process = g_ptr_array_index (self->processes, i);

      g_subprocess_force_exit (process);
      g_subprocess_wait (process, NULL, NULL);
    }
  g_ptr_array_unref (self->processes);
  test_remove_directory (self->folder);
  g_free (self);
}

const char *
ssh_guest_missing (SshGuest *self, const char *server)
{
  g_autofree char *sshd = g_build_filename (self->folder, "sshd", NULL);
  g_autofree char *key = g_build_filename (self->folder, "host_dropbear", NULL);

  if (g_str_equal (server, "openssh") && !g_file_test (sshd, G_FILE_TEST_EXISTS))
    return "no sshd: tests/debian-unpack bookworm openssh-server libwrap0";
  if (g_str_equal (server, "dropbear") && !g_file_test (key, G_FILE_TEST_EXISTS))
    return "no dropbear: its package is dropbear-bin";
  return NULL;
}

void
ssh_guest_serve (SshGuest *self, const char *server, int fd)
{
  gboolean is_real = g_str_equal (server, "openssh") || g_str_equal (server, "dropbear");
  g_autofree char *program = script (is_real ? "ssh-guest.py" : "ssh-peer.py");
  g_autoptr (GSubprocessLauncher) launcher
      = g_subprocess_launcher_new (G_SUBPROCESS_FLAGS_STDERR_SILENCE);
  GSubprocess *process;
  g_autoptr (GError) error = NULL;

  g_subprocess_launcher_take_stdin_fd (launcher, fd);
  g_subprocess_launcher_take_stdout_fd (launcher, dup (fd));
  process = g_subprocess_launcher_spawn (launcher, &error, PYTHON, program, server, self->folder,
                                         NULL);
  g_assert_no_error (error);
  g_ptr_array_add (self->processes, process);
}

GIOStream *
ssh_guest_connect (SshGuest *self, const char *server)
{
  g_autoptr (GSocket) socket = NULL;
  int fds[2];

  g_assert_cmpint (socketpair (AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), ==, 0);
  ssh_guest_serve (self, server, fds[1]);
  socket = g_socket_new_from_fd (fds[0], NULL);
  return G_IO_STREAM (g_socket_connection_factory_create_connection (socket));
}

void
ssh_guest_rekey (SshGuest *self)
{
  manage (self, "rekey", NULL);
}

static gboolean
exists (gpointer path)
{
  return g_file_test (path, G_FILE_TEST_EXISTS);
}

static void
await_file (SshGuest *self, const char *name)
{
  g_autofree char *path = g_build_filename (self->folder, name, NULL);

  test_await_condition (exists, path);
  g_assert_cmpint (g_unlink (path), ==, 0);
}

void
ssh_guest_await_reached (SshGuest *self)
{
  await_file (self, "reached");
}

void
ssh_guest_await_left (SshGuest *self)
{
  await_file (self, "left");
}

char *
ssh_guest_dup_host_key (SshGuest *self)
{
  g_autofree char *path = g_build_filename (self->folder, "host_ed25519.pub", NULL);
  g_autofree char *line = NULL;
  g_auto (GStrv) words = NULL;

  g_assert_true (g_file_get_contents (path, &line, NULL, NULL));
  words = g_strsplit (line, " ", 3);
  return g_strstrip (g_strjoin (" ", words[0], words[1], NULL));
}
