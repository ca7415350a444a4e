/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The channel between the two halves. The test is the sandboxed half; the warden is the real one,
 * in a process of its own, over a folder of the test's. */
#include "netd-warden.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gio/gio.h>
#include <glib/gstdio.h>

#include "netd-config.h"
#include "netd-warden-sockets.h"

#define DEADLINE_US (60 * G_USEC_PER_SEC)

typedef struct
{
  char *root;
  char *network; /* where netd.json is */
  char *resolv_conf;
  int channel[2]; /* the warden's, the test's */
  int child_end;  /* written to, or closed: ends the child */
  int log;
  pid_t warden;
  NetdLoop *loop;
  NetdOpener *opener;
  int sync_listener;
  char *resolvers; /* last told */
  guint n_resolvers;
  gboolean is_unwatched;
} Fixture;

/* --- Files --- */

static char *
path_of (Fixture *fixture, const char *name)
{
  return g_build_filename (fixture->root, name, NULL);
}

static void
make_folder (Fixture *fixture, const char *name)
{
  g_autofree char *path = path_of (fixture, name);

  g_assert_cmpint (g_mkdir_with_parents (path, 0700), ==, 0);
}

static void
remove_path (Fixture *fixture, const char *name)
{
  g_autofree char *path = path_of (fixture, name);

  g_assert_cmpint (remove (path), ==, 0);
}

static void
make_link (Fixture *fixture, const char *name, const char *target)
{
  g_autofree char *path = path_of (fixture, name);
  g_autofree char *next = g_strconcat (path, ".next", NULL);

  g_assert_cmpint (symlink (target, next), ==, 0);
  g_assert_cmpint (g_rename (next, path), ==, 0);
}

/* As the daemon does: a whole new file in place of the old one. */
static void
replace_file (Fixture *fixture, const char *name, const char *text)
{
  g_autofree char *path = path_of (fixture, name);
  g_autoptr (GError) error = NULL;

  g_file_set_contents_full (path, text, -1, G_FILE_SET_CONTENTS_CONSISTENT, 0600, &error);
  g_assert_no_error (error);
}

static void
overwrite_file (Fixture *fixture, const char *name, const char *text)
{
  g_autofree char *path = path_of (fixture, name);
  int fd = open (path, O_WRONLY | O_TRUNC | O_CLOEXEC);

  g_assert_cmpint (fd, >=, 0);
  g_assert_cmpint (write (fd, text, strlen (text)), ==, (gssize) strlen (text));
  close (fd);
}

/* Of any length, by way of the folder. */
static int
bind_at (Fixture *fixture, const char *name)
{
  struct sockaddr_un address = { .sun_family = AF_UNIX };
  g_autofree char *path = path_of (fixture, name);
  g_autofree char *folder = g_path_get_dirname (path);
  g_autofree char *last = g_path_get_basename (path);
  int folder_fd = open (folder, O_PATH | O_CLOEXEC);
  int fd = socket (AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

  g_assert_cmpint (folder_fd, >=, 0);
  g_snprintf (address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/%s", folder_fd, last);
  g_assert_cmpint (bind (fd, (struct sockaddr *) &address, sizeof address), ==, 0);
  close (folder_fd);
  return fd;
}

static int
listen_at (Fixture *fixture, const char *name)
{
  int fd = bind_at (fixture, name);

  g_assert_cmpint (listen (fd, 64), ==, 0);
  return fd;
}

static gboolean
has_visitor (int listener)
{
  struct pollfd fd = { .fd = listener, .events = POLLIN };

  return poll (&fd, 1, 0) == 1;
}

/* --- netd.json --- */

#define LONG_FOLDER "vms/in-a-folder-with-a-rather-long-name"

static void
append_port (Fixture *fixture, GString *text, const char *vm_id, guint number)
{
  g_string_append_printf (text,
                          "%s{\"vm\":\"%s\",\"mac\":\"02:00:00:00:00:%02x\",\"ip\":\"10.0.0.%u\","
                          "\"socket\":\"%s/%s/%s/net.sock\"",
                          number == 2 ? "" : ",", vm_id, number, number, fixture->root,
                          vm_id[0] == 'l' ? LONG_FOLDER : "vms", vm_id);
  if (vm_id[0] == 'm')
    g_string_append_printf (text, ",\"metadata\":\"%s/vms/%s/imds.sock\"", fixture->root, vm_id);
  g_string_append_c (text, '}');
}

/* Those whose names begin with an m have metadata, those with an l long paths. */
static void
write_config (Fixture *fixture, const char *vm_ids)
{
  g_autoptr (GString) text = g_string_new (NULL);
  g_auto (GStrv) ids = g_strsplit (vm_ids, " ", -1);

  g_string_append (text, "{\"version\":1,\"network\":{\"name\":\"t\",\"cidr\":\"10.0.0.0/24\","
                         "\"gateway\":\"10.0.0.1\",\"gateway_mac\":\"02:00:00:00:00:01\","
                         "\"mtu\":1500,\"enable_imds\":true,\"enable_host_alias\":false},"
                         "\"ports\":[");
  append_port (fixture, text, "sync", 2);
  for (guint i = 0; ids[i] != NULL; i++)
    append_port (fixture, text, ids[i], i + 3);
  g_string_append (text, "],\"forwards\":[]}");
  replace_file (fixture, "network/netd.json", text->str);
}

/* --- The processes --- */

static int log_fd;

static GLogWriterOutput
write_log (GLogLevelFlags level, const GLogField *fields, gsize n_fields, gpointer user_data)
{
  for (gsize i = 0; i < n_fields; i++)
    if (g_str_equal (fields[i].key, "MESSAGE"))
      dprintf (log_fd, "%s\n", (const char *) fields[i].value);
  return G_LOG_WRITER_HANDLED;
}

/* In place of the sandboxed half: ends as it is told, and in any case with the test. */
static pid_t
fork_child (Fixture *fixture, int end)
{
  pid_t pid = fork ();
  char byte = 0;

  if (pid != 0)
    return pid;
  close (fixture->channel[0]);
  close (log_fd);
  if (read (end, &byte, 1) == 1 && byte == 'k')
    raise (SIGKILL);
  _exit (byte);
}

/* As where the user has used up what the kernel watches. */
static void
forbid_watches (void)
{
  int fd;

  g_assert_cmpint (unshare (CLONE_NEWUSER), ==, 0);
  fd = open ("/proc/sys/user/max_inotify_watches", O_WRONLY | O_CLOEXEC);
  g_assert_cmpint (write (fd, "0", 1), ==, 1);
  close (fd);
}

static G_NORETURN void
run_warden (Fixture *fixture, int end)
{
  pid_t child;

  /* The test's ends are the test's alone. */
  close (fixture->channel[1]);
  close (fixture->child_end);
  child = fork_child (fixture, end);
  g_log_set_writer_func (write_log, NULL, NULL);
  g_setenv (NETD_RESOLV_CONF_VARIABLE, fixture->resolv_conf, TRUE);
  if (fixture->is_unwatched)
    forbid_watches ();
  _exit (netd_warden_run (fixture->network, fixture->channel[0], child));
}

static void
resolvers_cb (const char *text, gpointer user_data)
{
  Fixture *fixture = user_data;

  g_free (fixture->resolvers);
  fixture->resolvers = g_strdup (text);
  fixture->n_resolvers++;
}

static void
set_up_files (Fixture *fixture)
{
  g_autoptr (GError) error = NULL;

  fixture->root = g_dir_make_tmp ("netd-warden-XXXXXX", &error);
  g_assert_no_error (error);
  fixture->network = path_of (fixture, "network");
  fixture->resolv_conf = path_of (fixture, "etc/resolv.conf");
  make_folder (fixture, "network");
  make_folder (fixture, "etc");
  make_folder (fixture, "vms/sync");
  fixture->sync_listener = listen_at (fixture, "vms/sync/net.sock");
}

static void
start (Fixture *fixture)
{
  int end[2];
  int log[2];

  g_assert_cmpint (socketpair (AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0,
                               fixture->channel),
                   ==, 0);
  g_assert_cmpint (pipe2 (end, O_CLOEXEC), ==, 0);
  g_assert_cmpint (pipe2 (log, O_CLOEXEC), ==, 0);
  fixture->child_end = end[1];
  fixture->log = log[0];
  log_fd = log[1];
  fixture->warden = fork ();
  if (fixture->warden == 0)
    run_warden (fixture, end[0]);
  close (end[0]);
  close (log[1]);
  close (fixture->channel[0]);
  fixture->loop = netd_loop_new ();
  fixture->opener = netd_opener_new (fixture->loop, fixture->channel[1], resolvers_cb, fixture);
}

static void
set_up (Fixture *fixture, gconstpointer vm_ids)
{
  set_up_files (fixture);
  write_config (fixture, vm_ids == NULL ? "vm-a vm-b" : vm_ids);
  replace_file (fixture, "etc/resolv.conf", "nameserver 192.0.2.1\n");
  start (fixture);
}

static gboolean
can_forbid_watches (void)
{
  int status;
  pid_t pid = fork ();

  if (pid == 0)
    _exit (unshare (CLONE_NEWUSER) == 0
               && open ("/proc/sys/user/max_inotify_watches", O_WRONLY | O_CLOEXEC) >= 0
             ? 0
             : 1);
  g_assert_cmpint (waitpid (pid, &status, 0), ==, pid);
  return WIFEXITED (status) && WEXITSTATUS (status) == 0;
}

static void
set_up_unwatched (Fixture *fixture, gconstpointer data)
{
  fixture->is_unwatched = can_forbid_watches ();
  set_up (fixture, data);
}

static void
remove_tree (const char *path)
{
  GDir *folder = g_dir_open (path, 0, NULL);
  const char *name;

  while (folder != NULL && !g_file_test (path, G_FILE_TEST_IS_SYMLINK)
         && (name = g_dir_read_name (folder)) != NULL)
    {
      g_autofree char *inner = g_build_filename (path, name, NULL);

      remove_tree (inner);
    }
  g_clear_pointer (&folder, g_dir_close);
  g_assert_cmpint (remove (path), ==, 0);
}

/* Returns the exit status of the warden; its log is in @log. */
static int
wait_for_warden (Fixture *fixture, char **log)
{
  g_autoptr (GString) text = g_string_new (NULL);
  char buffer[1024];
  gssize n;
  int status;

  while ((n = read (fixture->log, buffer, sizeof buffer)) > 0)
    g_string_append_len (text, buffer, n);
  g_assert_cmpint (waitpid (fixture->warden, &status, 0), ==, fixture->warden);
  fixture->warden = 0;
  if (log != NULL)
    *log = g_string_free (g_steal_pointer (&text), FALSE);
  g_assert_true (WIFEXITED (status));
  return WEXITSTATUS (status);
}

static void
tear_down (Fixture *fixture, gconstpointer vm_ids)
{
  g_clear_pointer (&fixture->opener, netd_opener_free);
  netd_loop_free (fixture->loop);
  close (fixture->child_end);
  if (fixture->warden != 0)
    g_assert_cmpint (wait_for_warden (fixture, NULL), ==, 1);
  close (fixture->log);
  close (fixture->sync_listener);
  remove_tree (fixture->root);
  g_free (fixture->root);
  g_free (fixture->network);
  g_free (fixture->resolv_conf);
  g_free (fixture->resolvers);
}

/* --- Waiting --- */

#define TURN_UNTIL(fixture, condition)                                                             \
  G_STMT_START                                                                                     \
  {                                                                                                \
    gint64 deadline = g_get_monotonic_time () + DEADLINE_US;                                       \
    while (!(condition) && g_get_monotonic_time () < deadline)                                     \
      netd_loop_turn ((fixture)->loop, 1000);                                                      \
    g_assert_true (condition);                                                                     \
  }                                                                                                \
  G_STMT_END

/* What an opening led to. */
typedef struct
{
  NetdOpening *opening;
  int fd;
} Visit;

static void
opened_cb (int fd, gpointer user_data)
{
  Visit *visit = user_data;

  g_assert_cmpint (visit->fd, ==, -1);
  visit->fd = fd;
  visit->opening = NULL;
}

static Visit
new_visit (void)
{
  return (Visit){ NULL, -1 };
}

static void
visit (Fixture *fixture, Visit *to, NetdOpenKind kind, const char *vm_id)
{
  to->fd = -1;
  to->opening = netd_opener_open (fixture->opener, kind, vm_id, opened_cb, to);
}

/* Everything before it was handled by the warden, as messages are in order. */
static void
synchronize (Fixture *fixture)
{
  /* The second round is for what the first turn of the warden's left. */
  for (guint i = 0; i < 2; i++)
    {
      Visit to = new_visit ();
      int server;

      visit (fixture, &to, NETD_OPEN_PORT, "sync");
      TURN_UNTIL (fixture, to.fd >= 0);
      server = accept (fixture->sync_listener, NULL, NULL);
      g_assert_cmpint (server, >=, 0);
      close (server);
      close (to.fd);
    }
}

/* The two ends are one connection, and the one handed over does not block. */
static void
assert_connected (Visit *to, int listener)
{
  int server = accept (listener, NULL, NULL);
  char byte = 0;

  g_assert_cmpint (server, >=, 0);
  g_assert_cmpint (fcntl (to->fd, F_GETFL) & O_NONBLOCK, ==, O_NONBLOCK);
  g_assert_cmpint (fcntl (to->fd, F_GETFD) & FD_CLOEXEC, ==, FD_CLOEXEC);
  g_assert_cmpint (write (server, "y", 1), ==, 1);
  g_assert_cmpint (read (to->fd, &byte, 1), ==, 1);
  g_assert_cmpint (byte, ==, 'y');
  close (server);
  close (to->fd);
  to->fd = -1;
}

static void
assert_visits (Fixture *fixture, const char *vm_id, int listener)
{
  Visit to = new_visit ();

  visit (fixture, &to, NETD_OPEN_PORT, vm_id);
  TURN_UNTIL (fixture, to.fd >= 0);
  assert_connected (&to, listener);
}

/* --- Opening --- */

static void
test_appears (Fixture *fixture, gconstpointer data)
{
  Visit to = new_visit ();
  int listener;

  visit (fixture, &to, NETD_OPEN_PORT, "vm-a");
  synchronize (fixture);
  g_assert_cmpint (to.fd, ==, -1);
  /* First the folder, later the socket, by another name at first. */
  make_folder (fixture, "vms/vm-a");
  synchronize (fixture);
  listener = listen_at (fixture, "vms/vm-a/next.sock");
  synchronize (fixture);
  g_assert_cmpint (to.fd, ==, -1);
  {
    g_autofree char *from = path_of (fixture, "vms/vm-a/next.sock");
    g_autofree char *name = path_of (fixture, "vms/vm-a/net.sock");

    g_assert_cmpint (g_rename (from, name), ==, 0);
  }
  TURN_UNTIL (fixture, to.fd >= 0);
  assert_connected (&to, listener);
  close (listener);
}

static void
test_parents_appear (Fixture *fixture, gconstpointer data)
{
  Visit to = new_visit ();
  g_autofree char *vms = path_of (fixture, "vms");
  g_autofree char *aside = path_of (fixture, "aside");
  int listener;

  /* All of a sudden a whole tree. */
  g_assert_cmpint (g_rename (vms, aside), ==, 0);
  make_folder (fixture, "aside/vm-a");
  listener = listen_at (fixture, "aside/vm-a/net.sock");
  visit (fixture, &to, NETD_OPEN_PORT, "vm-a");
  for (guint i = 0; i < 20; i++)
    netd_loop_turn (fixture->loop, 1);
  g_assert_cmpint (to.fd, ==, -1);
  g_assert_cmpint (g_rename (aside, vms), ==, 0);
  TURN_UNTIL (fixture, to.fd >= 0);
  assert_connected (&to, listener);
  close (listener);
}

/* A folder that is removed and made again is another one. */
static void
test_folder_replaced (Fixture *fixture, gconstpointer data)
{
  Visit to = new_visit ();
  int listener;

  make_folder (fixture, "vms/vm-a");
  visit (fixture, &to, NETD_OPEN_PORT, "vm-a");
  synchronize (fixture);
  remove_path (fixture, "vms/vm-a");
  synchronize (fixture);
  make_folder (fixture, "vms/vm-a");
  synchronize (fixture);
  listener = listen_at (fixture, "vms/vm-a/net.sock");
  TURN_UNTIL (fixture, to.fd >= 0);
  assert_connected (&to, listener);
  close (listener);
}

/* bind() makes the name, listen() comes later and is seen by nobody. */
static void
test_bound_first (Fixture *fixture, gconstpointer data)
{
  Visit to = new_visit ();
  int listener;

  make_folder (fixture, "vms/vm-a");
  visit (fixture, &to, NETD_OPEN_PORT, "vm-a");
  synchronize (fixture);
  listener = bind_at (fixture, "vms/vm-a/net.sock");
  synchronize (fixture);
  g_assert_cmpint (to.fd, ==, -1);
  g_assert_cmpint (listen (listener, 1), ==, 0);
  TURN_UNTIL (fixture, to.fd >= 0);
  assert_connected (&to, listener);
  close (listener);
}

static void
test_again (Fixture *fixture, gconstpointer data)
{
  Visit to = new_visit ();
  int listener;

  make_folder (fixture, "vms/vm-a");
  listener = listen_at (fixture, "vms/vm-a/net.sock");
  for (guint i = 0; i < 3; i++)
    assert_visits (fixture, "vm-a", listener);

  /* Gone, but for its name; then anew. */
  close (listener);
  visit (fixture, &to, NETD_OPEN_PORT, "vm-a");
  synchronize (fixture);
  g_assert_cmpint (to.fd, ==, -1);
  remove_path (fixture, "vms/vm-a/net.sock");
  listener = listen_at (fixture, "vms/vm-a/net.sock");
  TURN_UNTIL (fixture, to.fd >= 0);
  assert_connected (&to, listener);
  close (listener);
}

static void
test_backlog (Fixture *fixture, gconstpointer data)
{
  Visit to = new_visit ();
  struct sockaddr_un address = { .sun_family = AF_UNIX };
  g_autofree char *path = path_of (fixture, "vms/vm-a/net.sock");
  int first;
  int server;
  int listener;

  make_folder (fixture, "vms/vm-a");
  listener = bind_at (fixture, "vms/vm-a/net.sock");
  g_assert_cmpint (listen (listener, 0), ==, 0);
  first = socket (AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  g_strlcpy (address.sun_path, path, sizeof address.sun_path);
  g_assert_cmpint (connect (first, (struct sockaddr *) &address, sizeof address), ==, 0);
  visit (fixture, &to, NETD_OPEN_PORT, "vm-a");
  synchronize (fixture);
  g_assert_cmpint (to.fd, ==, -1);
  server = accept (listener, NULL, NULL);
  TURN_UNTIL (fixture, to.fd >= 0);
  assert_connected (&to, listener);
  close (server);
  close (first);
  close (listener);
}

static void
test_metadata (Fixture *fixture, gconstpointer data)
{
  Visit to = new_visit ();
  Visit none = new_visit ();
  int port;
  int listener;

  make_folder (fixture, "vms/m-a");
  make_folder (fixture, "vms/vm-b");
  port = listen_at (fixture, "vms/vm-b/net.sock");
  visit (fixture, &to, NETD_OPEN_METADATA, "m-a");
  /* It has none. */
  visit (fixture, &none, NETD_OPEN_METADATA, "vm-b");
  synchronize (fixture);
  listener = listen_at (fixture, "vms/m-a/imds.sock");
  TURN_UNTIL (fixture, to.fd >= 0);
  assert_connected (&to, listener);
  synchronize (fixture);
  g_assert_cmpint (none.fd, ==, -1);
  g_assert_false (has_visitor (port));
  close (listener);
  close (port);
}

/* Longer than a socket's address. */
static void
test_long_path (Fixture *fixture, gconstpointer data)
{
  g_autofree char *long_name = g_strnfill (63, 'l');
  g_autofree char *folder = g_strconcat (LONG_FOLDER "/", long_name, NULL);
  g_autofree char *name = g_strconcat (folder, "/net.sock", NULL);
  g_autofree char *path = path_of (fixture, name);
  int listener;

  g_assert_cmpuint (strlen (path), >, sizeof ((struct sockaddr_un *) NULL)->sun_path);
  write_config (fixture, long_name);
  make_folder (fixture, folder);
  listener = listen_at (fixture, name);
  assert_visits (fixture, long_name, listener);
  close (listener);
}

/* --- What is not opened --- */

static void
test_not_named (Fixture *fixture, gconstpointer data)
{
  Visit ghost = new_visit ();
  Visit path = new_visit ();
  int listener;

  make_folder (fixture, "vms/ghost");
  listener = listen_at (fixture, "vms/ghost/net.sock");
  visit (fixture, &ghost, NETD_OPEN_PORT, "ghost");
  visit (fixture, &path, NETD_OPEN_PORT, "../vms/sync");
  synchronize (fixture);
  g_assert_cmpint (ghost.fd, ==, -1);
  g_assert_cmpint (path.fd, ==, -1);
  g_assert_false (has_visitor (listener));

  /* It joins: the file says so before anybody asks. */
  write_config (fixture, "vm-a vm-b ghost");
  assert_visits (fixture, "ghost", listener);

  /* It leaves. */
  write_config (fixture, "vm-a vm-b");
  visit (fixture, &ghost, NETD_OPEN_PORT, "ghost");
  synchronize (fixture);
  g_assert_cmpint (ghost.fd, ==, -1);
  g_assert_false (has_visitor (listener));

  /* A file that is no use changes nothing. */
  replace_file (fixture, "network/netd.json", "{");
  synchronize (fixture);
  close (listener);
}

/* One that leaves while it is waited for is not visited when it comes up. */
static void
test_leaves (Fixture *fixture, gconstpointer data)
{
  Visit to = new_visit ();
  int listener;

  make_folder (fixture, "vms/vm-a");
  visit (fixture, &to, NETD_OPEN_PORT, "vm-a");
  synchronize (fixture);
  write_config (fixture, "vm-b");
  listener = listen_at (fixture, "vms/vm-a/net.sock");
  synchronize (fixture);
  synchronize (fixture);
  g_assert_cmpint (to.fd, ==, -1);
  g_assert_false (has_visitor (listener));
  close (listener);
}

static void
test_links (Fixture *fixture, gconstpointer data)
{
  Visit to = new_visit ();
  Visit other = new_visit ();
  g_autofree char *log = NULL;
  int elsewhere;
  int listener;

  make_folder (fixture, "vms/vm-a");
  make_folder (fixture, "elsewhere");
  elsewhere = listen_at (fixture, "elsewhere/net.sock");
  /* The socket, and for the other VM its folder. */
  make_link (fixture, "vms/vm-a/net.sock", "../../elsewhere/net.sock");
  make_link (fixture, "vms/vm-b", "../elsewhere");
  visit (fixture, &to, NETD_OPEN_PORT, "vm-a");
  visit (fixture, &other, NETD_OPEN_PORT, "vm-b");
  synchronize (fixture);
  g_assert_cmpint (to.fd, ==, -1);
  g_assert_cmpint (other.fd, ==, -1);
  g_assert_false (has_visitor (elsewhere));

  remove_path (fixture, "vms/vm-a/net.sock");
  replace_file (fixture, "vms/vm-a/net.sock", "a file");
  synchronize (fixture);
  remove_path (fixture, "vms/vm-a/net.sock");
  listener = listen_at (fixture, "vms/vm-a/net.sock");
  TURN_UNTIL (fixture, to.fd >= 0);
  assert_connected (&to, listener);
  g_assert_false (has_visitor (elsewhere));
  close (listener);
  close (elsewhere);

  g_clear_pointer (&fixture->opener, netd_opener_free);
  close (fixture->child_end);
  fixture->child_end = -1;
  g_assert_cmpint (wait_for_warden (fixture, &log), ==, 1);
  g_assert_nonnull (strstr (log, "it is no socket"));
}

/* A link above the folders of VMs is the administrator's. */
static void
test_link_above (Fixture *fixture, gconstpointer data)
{
  g_autofree char *vms = path_of (fixture, "vms");
  g_autofree char *disk = path_of (fixture, "disk");
  int listener;

  g_assert_cmpint (g_rename (vms, disk), ==, 0);
  make_link (fixture, "vms", "disk");
  make_folder (fixture, "vms/vm-a");
  listener = listen_at (fixture, "vms/vm-a/net.sock");
  assert_visits (fixture, "vm-a", listener);
  close (listener);
}

static void
test_cancel (Fixture *fixture, gconstpointer data)
{
  Visit to = new_visit ();
  int listener;

  make_folder (fixture, "vms/vm-a");
  visit (fixture, &to, NETD_OPEN_PORT, "vm-a");
  synchronize (fixture);
  netd_opening_cancel (to.opening);
  synchronize (fixture);
  listener = listen_at (fixture, "vms/vm-a/net.sock");
  synchronize (fixture);
  g_assert_cmpint (to.fd, ==, -1);
  g_assert_false (has_visitor (listener));

  /* Its place is free again. Cancelled when it has been sent already, it comes to nothing. */
  visit (fixture, &to, NETD_OPEN_PORT, "vm-a");
  while (!has_visitor (listener))
    g_assert_cmpint (to.fd, ==, -1);
  netd_opening_cancel (to.opening);
  synchronize (fixture);
  g_assert_cmpint (to.fd, ==, -1);
  {
    int server = accept (listener, NULL, NULL);
    char byte;

    g_assert_cmpint (read (server, &byte, 1), ==, 0);
    close (server);
  }
  assert_visits (fixture, "vm-a", listener);
  close (listener);
}

static void
test_limits (Fixture *fixture, gconstpointer data)
{
  Visit many[NETD_WARDEN_METADATA_OPENINGS + 3];
  Visit ports[2] = { new_visit (), new_visit () };
  guint n_opened = 0;
  int metadata;
  int port;

  make_folder (fixture, "vms/m-a");
  for (guint i = 0; i < G_N_ELEMENTS (many); i++)
    visit (fixture, &many[i], NETD_OPEN_METADATA, "m-a");
  visit (fixture, &ports[0], NETD_OPEN_PORT, "m-a");
  visit (fixture, &ports[1], NETD_OPEN_PORT, "m-a");
  synchronize (fixture);
  metadata = listen_at (fixture, "vms/m-a/imds.sock");
  port = listen_at (fixture, "vms/m-a/net.sock");
  TURN_UNTIL (fixture, ports[0].fd >= 0 && many[NETD_WARDEN_METADATA_OPENINGS - 1].fd >= 0);
  synchronize (fixture);
  for (guint i = 0; i < G_N_ELEMENTS (many); i++)
    {
      n_opened += many[i].fd >= 0;
      g_assert_true (many[i].fd >= 0 || i >= NETD_WARDEN_METADATA_OPENINGS);
      if (many[i].fd >= 0)
        close (many[i].fd);
    }
  g_assert_cmpuint (n_opened, ==, NETD_WARDEN_METADATA_OPENINGS);
  assert_connected (&ports[0], port);
  g_assert_cmpint (ports[1].fd, ==, -1);
  g_assert_false (has_visitor (port));
  close (metadata);
  close (port);
}

/* From a half that has been taken over. */
static void
test_garbage (Fixture *fixture, gconstpointer data)
{
  NetdOpenMessage message = { .type = NETD_MESSAGE_OPEN, .token = 77, .kind = 7, .vm = "vm-a" };
  g_autofree char *large = g_malloc0 (60000);
  int raw = fixture->channel[1];
  int listener;

  make_folder (fixture, "vms/vm-a");
  listener = listen_at (fixture, "vms/vm-a/net.sock");
  g_assert_cmpint (send (raw, &message, sizeof message, 0), >, 0);
  message.type = NETD_MESSAGE_OPENED;
  g_assert_cmpint (send (raw, &message, sizeof message, 0), >, 0);
  message.type = 99;
  g_assert_cmpint (send (raw, &message, sizeof message, 0), >, 0);
  g_assert_cmpint (send (raw, &message, 4, 0), ==, 4);
  g_assert_cmpint (send (raw, &message, sizeof message - 1, 0), >, 0);
  g_assert_cmpint (send (raw, large, 60000, 0), ==, 60000);
  message.type = NETD_MESSAGE_CANCEL;
  message.token = 123456;
  g_assert_cmpint (send (raw, &message, sizeof message, 0), >, 0);
  message.type = NETD_MESSAGE_OPEN;
  message.kind = NETD_OPEN_PORT;
  memset (message.vm, 'v', sizeof message.vm);
  g_assert_cmpint (send (raw, &message, sizeof message, 0), >, 0);
  synchronize (fixture);
  g_assert_false (has_visitor (listener));
  assert_visits (fixture, "vm-a", listener);
  close (listener);
}

static guint
count_descriptors (pid_t pid)
{
  g_autofree char *path = g_strdup_printf ("/proc/%d/fd", (int) pid);
  g_autoptr (GDir) folder = g_dir_open (path, 0, NULL);
  guint n = 0;

  g_assert_nonnull (folder);
  while (g_dir_read_name (folder) != NULL)
    n++;
  return n;
}

/* Asks for one after the other and takes none of them; gives up when the warden does not listen any
 * more. */
static void
ask_without_end (Fixture *fixture, const char *vm_id, guint n)
{
  NetdOpenMessage message = { .type = NETD_MESSAGE_OPEN, .kind = NETD_OPEN_METADATA };
  struct pollfd room = { .fd = fixture->channel[1], .events = POLLOUT };

  g_strlcpy (message.vm, vm_id, sizeof message.vm);
  for (guint i = 0; i < n; i++)
    {
      message.token = 100000 + i;
      if (poll (&room, 1, 500) != 1)
        return;
      g_assert_cmpint (send (fixture->channel[1], &message, sizeof message, 0), >, 0);
    }
}

/* From a half that has been taken over: what it does not take is not opened for it in advance. */
static void
test_not_taken (Fixture *fixture, gconstpointer data)
{
  int listener;
  int port;

  make_folder (fixture, "vms/m-a");
  port = listen_at (fixture, "vms/m-a/net.sock");
  listener = bind_at (fixture, "vms/m-a/imds.sock");
  g_assert_cmpint (listen (listener, 4096), ==, 0);
  synchronize (fixture);
  ask_without_end (fixture, "m-a", 900);
  g_assert_cmpuint (count_descriptors (fixture->warden), <, 200);
  synchronize (fixture);
  assert_visits (fixture, "m-a", port);
  close (listener);
  close (port);
}

/* --- Name servers --- */

#define AWAIT_RESOLVERS(fixture, expected)                                                         \
  G_STMT_START                                                                                     \
  {                                                                                                \
    TURN_UNTIL ((fixture), g_strcmp0 ((fixture)->resolvers, (expected)) == 0);                     \
  }                                                                                                \
  G_STMT_END

static void
test_resolver_file (Fixture *fixture, gconstpointer data)
{
  g_autofree char *path = path_of (fixture, "etc/resolv.conf");
  guint n;

  AWAIT_RESOLVERS (fixture, "nameserver 192.0.2.1\n");
  replace_file (fixture, "etc/resolv.conf", "nameserver 192.0.2.2\n");
  AWAIT_RESOLVERS (fixture, "nameserver 192.0.2.2\n");
  overwrite_file (fixture, "etc/resolv.conf", "nameserver 192.0.2.3\n");
  AWAIT_RESOLVERS (fixture, "nameserver 192.0.2.3\n");

  /* The same again is no news. */
  n = fixture->n_resolvers;
  replace_file (fixture, "etc/resolv.conf", "nameserver 192.0.2.3\n");
  replace_file (fixture, "etc/other", "nameserver 192.0.2.4\n");
  synchronize (fixture);
  g_assert_cmpuint (fixture->n_resolvers, ==, n);

  remove_path (fixture, "etc/resolv.conf");
  AWAIT_RESOLVERS (fixture, "");
  replace_file (fixture, "etc/resolv.conf", "nameserver 192.0.2.5\n");
  AWAIT_RESOLVERS (fixture, "nameserver 192.0.2.5\n");
  g_assert_cmpint (g_chmod (path, 0644), ==, 0);
  overwrite_file (fixture, "etc/resolv.conf", "");
  AWAIT_RESOLVERS (fixture, "");
}

static void
test_resolver_links (Fixture *fixture, gconstpointer data)
{
  make_folder (fixture, "etc/a");
  replace_file (fixture, "etc/a/stub", "nameserver 192.0.2.10\n");
  make_link (fixture, "etc/a/resolv", "stub");
  make_link (fixture, "etc/resolv.conf", "a/resolv");
  AWAIT_RESOLVERS (fixture, "nameserver 192.0.2.10\n");
  /* Where the link leads, in both ways. */
  replace_file (fixture, "etc/a/stub", "nameserver 192.0.2.11\n");
  AWAIT_RESOLVERS (fixture, "nameserver 192.0.2.11\n");
  overwrite_file (fixture, "etc/a/stub", "nameserver 192.0.2.12\n");
  AWAIT_RESOLVERS (fixture, "nameserver 192.0.2.12\n");
  /* The link in between. */
  replace_file (fixture, "etc/a/full", "nameserver 192.0.2.13\n");
  make_link (fixture, "etc/a/resolv", "full");
  AWAIT_RESOLVERS (fixture, "nameserver 192.0.2.13\n");
  /* To a service that is not up yet. */
  make_link (fixture, "etc/resolv.conf", "b/run/stub");
  AWAIT_RESOLVERS (fixture, "");
  make_folder (fixture, "etc/b/run");
  replace_file (fixture, "etc/b/run/stub", "nameserver 192.0.2.14\n");
  AWAIT_RESOLVERS (fixture, "nameserver 192.0.2.14\n");
  /* Going round in circles. */
  make_link (fixture, "etc/resolv.conf", "resolv.conf");
  synchronize (fixture);
  g_assert_cmpstr (fixture->resolvers, ==, "nameserver 192.0.2.14\n");
  make_link (fixture, "etc/resolv.conf", "a/stub");
  AWAIT_RESOLVERS (fixture, "nameserver 192.0.2.12\n");
}

static void
test_resolver_text (Fixture *fixture, gconstpointer data)
{
  g_autoptr (GString) text = g_string_new (NULL);

  /* Of a file that is too long, whole lines. */
  while (text->len < 2 * NETD_RESOLVER_MAX)
    g_string_append (text, "# nameserver 192.0.2.1, or so they say\n");
  replace_file (fixture, "etc/resolv.conf", text->str);
  TURN_UNTIL (fixture, fixture->resolvers != NULL && fixture->resolvers[0] == '#');
  g_assert_cmpuint (strlen (fixture->resolvers), <, NETD_RESOLVER_MAX);
  g_assert_cmpuint (strlen (fixture->resolvers), >, NETD_RESOLVER_MAX - 50);
  g_assert_true (g_str_has_prefix (text->str, fixture->resolvers));
  g_assert_true (g_str_has_suffix (fixture->resolvers, "say\n"));

  /* Interfaces have numbers on the other side: that of the loopback is 1 in every namespace. */
  replace_file (fixture, "etc/resolv.conf", "nameserver fe80::1%lo\n");
  AWAIT_RESOLVERS (fixture, "nameserver fe80::1%1\n");

  /* A folder in its place, or something that never ends, changes nothing. */
  remove_path (fixture, "etc/resolv.conf");
  AWAIT_RESOLVERS (fixture, "");
  replace_file (fixture, "etc/resolv.conf", "nameserver 192.0.2.20\n");
  AWAIT_RESOLVERS (fixture, "nameserver 192.0.2.20\n");
  {
    g_autofree char *path = path_of (fixture, "etc/resolv.conf");
    g_autofree char *fifo = path_of (fixture, "etc/fifo");

    g_assert_cmpint (mkfifo (fifo, 0600), ==, 0);
    g_assert_cmpint (g_rename (fifo, path), ==, 0);
  }
  synchronize (fixture);
  g_assert_cmpstr (fixture->resolvers, ==, "nameserver 192.0.2.20\n");
}

/* Without the kernel's help everything is found all the same, later. */
static void
test_unwatched (Fixture *fixture, gconstpointer data)
{
  Visit to = new_visit ();
  int listener;

  if (!fixture->is_unwatched)
    {
      g_test_skip ("watches cannot be forbidden here");
      return;
    }
  AWAIT_RESOLVERS (fixture, "nameserver 192.0.2.1\n");
  visit (fixture, &to, NETD_OPEN_PORT, "vm-a");
  synchronize (fixture);
  make_folder (fixture, "vms/vm-a");
  listener = listen_at (fixture, "vms/vm-a/net.sock");
  replace_file (fixture, "etc/resolv.conf", "nameserver 192.0.2.2\n");
  TURN_UNTIL (fixture, to.fd >= 0);
  assert_connected (&to, listener);
  AWAIT_RESOLVERS (fixture, "nameserver 192.0.2.2\n");
  close (listener);
}

/* --- The end --- */

static void
assert_ends (Fixture *fixture, int status, const char *in_log)
{
  g_autofree char *log = NULL;

  g_assert_cmpint (wait_for_warden (fixture, &log), ==, status);
  if (in_log != NULL && strstr (log, in_log) == NULL)
    g_test_message ("log: %s", log);
  g_assert_true (in_log == NULL || strstr (log, in_log) != NULL);
  g_assert_true (in_log != NULL || log[0] == '\0');
}

static void
test_child_exits (Fixture *fixture, gconstpointer data)
{
  g_assert_cmpint (write (fixture->child_end, "\3", 1), ==, 1);
  assert_ends (fixture, 1, "has ended with status 3");
  netd_loop_run (fixture->loop);
}

static void
test_child_killed (Fixture *fixture, gconstpointer data)
{
  g_assert_cmpint (write (fixture->child_end, "k", 1), ==, 1);
  assert_ends (fixture, 1, "ended by signal 9");
}

static void
test_told_to_end (Fixture *fixture, gconstpointer data)
{
  /* It is up when it answers; before that the signal would just end it. */
  synchronize (fixture);
  g_assert_cmpint (kill (fixture->warden, GPOINTER_TO_INT (data)), ==, 0);
  /* The sandboxed half takes the end of the channel for its own. */
  netd_loop_run (fixture->loop);
  close (fixture->child_end);
  fixture->child_end = -1;
  assert_ends (fixture, 0, NULL);
}

static void
test_told_to_end_by (Fixture *fixture, gconstpointer data)
{
  test_told_to_end (fixture, GINT_TO_POINTER (SIGTERM));
}

static void
test_interrupted (Fixture *fixture, gconstpointer data)
{
  test_told_to_end (fixture, GINT_TO_POINTER (SIGINT));
}

/* It does not wait for ever. */
static void
test_child_stays (Fixture *fixture, gconstpointer data)
{
  synchronize (fixture);
  g_assert_cmpint (kill (fixture->warden, SIGTERM), ==, 0);
  assert_ends (fixture, 0, "does not end by itself");
}

/* --- The opener by itself --- */

static void
send_with_descriptor (int channel, const void *message, gsize length, int fd)
{
  struct iovec part = { (void *) message, length };
  union
  {
    char space[CMSG_SPACE (sizeof (int))];
    struct cmsghdr align;
  } control = { 0 };
  struct msghdr header = {
    .msg_iov = &part,
    .msg_iovlen = 1,
    .msg_control = &control,
    .msg_controllen = sizeof control,
  };
  struct cmsghdr *rights = CMSG_FIRSTHDR (&header);

  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN (sizeof fd);
  memcpy (CMSG_DATA (rights), &fd, sizeof fd);
  g_assert_cmpint (sendmsg (channel, &header, 0), ==, (gssize) length);
}

static void
never_cb (int fd, gpointer user_data)
{
  g_assert_not_reached ();
}

static void
never_resolvers_cb (const char *text, gpointer user_data)
{
  g_assert_not_reached ();
}

/* What makes no sense is passed over, and descriptors in it are closed. */
static void
test_opener_garbage (void)
{
  NetdOpenMessage message = { .type = NETD_MESSAGE_OPENED, .token = 4711 };
  NetdLoop *loop = netd_loop_new ();
  NetdOpener *opener;
  Visit to = new_visit ();
  int channel[2];
  int pipe_ends[2];
  char byte;

  g_assert_cmpint (socketpair (AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, channel), ==, 0);
  g_assert_cmpint (pipe2 (pipe_ends, O_CLOEXEC), ==, 0);
  opener = netd_opener_new (loop, channel[1], never_resolvers_cb, NULL);
  netd_opener_open (opener, NETD_OPEN_PORT, "other", never_cb, NULL);
  to.opening = netd_opener_open (opener, NETD_OPEN_PORT, "vm", opened_cb, &to);
  g_assert_cmpint (recv (channel[0], &message, sizeof message, 0), ==, sizeof message);
  g_assert_cmpint (recv (channel[0], &message, sizeof message, 0), ==, sizeof message);
  g_assert_cmpstr (message.vm, ==, "vm");
  g_assert_cmpint (message.type, ==, NETD_MESSAGE_OPEN);

  /* Without a descriptor; with a token that nobody knows; of another size; of another type. */
  message.type = NETD_MESSAGE_OPENED;
  g_assert_cmpint (send (channel[0], &message, sizeof message, 0), >, 0);
  message.token += 1000;
  send_with_descriptor (channel[0], &message, sizeof message, pipe_ends[1]);
  message.token -= 1000;
  send_with_descriptor (channel[0], &message, sizeof message - 1, pipe_ends[1]);
  message.type = NETD_MESSAGE_RESOLVERS;
  send_with_descriptor (channel[0], &message, sizeof message, pipe_ends[1]);
  g_assert_cmpint (send (channel[0], "x", 1, 0), ==, 1);
  message.type = 0;
  g_assert_cmpint (send (channel[0], &message, sizeof message, 0), >, 0);
  /* And then the right one. */
  message.type = NETD_MESSAGE_OPENED;
  send_with_descriptor (channel[0], &message, sizeof message, pipe_ends[0]);
  while (to.fd < 0)
    netd_loop_turn (loop, 1000);
  close (pipe_ends[1]);
  g_assert_cmpint (read (to.fd, &byte, 1), ==, 0);
  close (to.fd);

  close (channel[0]);
  netd_loop_run (loop);
  netd_opener_free (opener);
  netd_loop_free (loop);
  close (pipe_ends[0]);
}

/* Leaves the process without a descriptor. Returns how many were taken for that. */
static guint
use_up_descriptors (int *taken, guint most)
{
  guint n = 0;

  while (n < most && (taken[n] = fcntl (STDERR_FILENO, F_DUPFD_CLOEXEC, 0)) >= 0)
    n++;
  g_assert_cmpuint (n, <, most);
  return n;
}

/* A descriptor that could not be taken is asked for again, when there is room: a VM that comes up while
 * others use up everything has its network in the end. */
static void
test_opener_no_descriptors (void)
{
  struct rlimit before;
  struct rlimit few;
  NetdOpenMessage message;
  NetdOpenMessage again = { 0 };
  NetdLoop *loop = netd_loop_new ();
  NetdOpener *opener;
  Visit to = new_visit ();
  int taken[64];
  int channel[2];
  guint n;

  g_assert_cmpint (getrlimit (RLIMIT_NOFILE, &before), ==, 0);
  g_assert_cmpint (socketpair (AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, channel), ==, 0);
  opener = netd_opener_new (loop, channel[1], NULL, NULL);
  to.opening = netd_opener_open (opener, NETD_OPEN_METADATA, "vm", opened_cb, &to);
  g_assert_cmpint (recv (channel[0], &message, sizeof message, 0), ==, sizeof message);
  message.type = NETD_MESSAGE_OPENED;

  few = (struct rlimit){ 64, before.rlim_max };
  g_assert_cmpint (setrlimit (RLIMIT_NOFILE, &few), ==, 0);
  n = use_up_descriptors (taken, G_N_ELEMENTS (taken));
  send_with_descriptor (channel[0], &message, sizeof message, STDERR_FILENO);
  netd_loop_turn (loop, 1000);
  g_assert_cmpint (to.fd, ==, -1);
  while (n > 0)
    close (taken[--n]);
  while (recv (channel[0], &again, sizeof again, 0) < 0)
    netd_loop_turn (loop, 10000);
  g_assert_cmpint (again.type, ==, NETD_MESSAGE_OPEN);
  g_assert_cmpuint (again.token, ==, message.token);
  g_assert_cmpint (again.kind, ==, NETD_OPEN_METADATA);
  g_assert_cmpstr (again.vm, ==, "vm");
  send_with_descriptor (channel[0], &message, sizeof message, STDERR_FILENO);
  while (to.fd < 0)
    netd_loop_turn (loop, 10000);
  close (to.fd);

  g_assert_cmpint (setrlimit (RLIMIT_NOFILE, &before), ==, 0);
  netd_opener_free (opener);
  netd_loop_free (loop);
  close (channel[0]);
}

/* A warden that does not read for a while gets everything, in order, but what was cancelled. */
static void
test_opener_unsent (void)
{
  NetdLoop *loop = netd_loop_new ();
  NetdOpener *opener;
  NetdOpening *openings[3000];
  NetdOpenMessage message;
  guint n = 0;
  int channel[2];

  g_assert_cmpint (socketpair (AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, channel), ==, 0);
  opener = netd_opener_new (loop, channel[1], NULL, NULL);
  for (guint i = 0; i < G_N_ELEMENTS (openings); i++)
    {
      g_autofree char *vm_id = g_strdup_printf ("vm-%u", i);

      openings[i] = netd_opener_open (opener, NETD_OPEN_METADATA, vm_id, never_cb, NULL);
    }
  netd_opening_cancel (openings[G_N_ELEMENTS (openings) - 2]);
  while (n + 1 < G_N_ELEMENTS (openings))
    {
      gssize received = recv (channel[0], &message, sizeof message, 0);
      g_autofree char *vm_id = NULL;

      if (received < 0)
        {
          g_assert_cmpint (errno, ==, EAGAIN);
          netd_loop_turn (loop, 1000);
          continue;
        }
      vm_id = g_strdup_printf ("vm-%u", n == G_N_ELEMENTS (openings) - 2 ? n + 1 : n);
      g_assert_cmpint (received, ==, sizeof message);
      g_assert_cmpint (message.type, ==, NETD_MESSAGE_OPEN);
      g_assert_cmpint (message.kind, ==, NETD_OPEN_METADATA);
      g_assert_cmpstr (message.vm, ==, vm_id);
      n++;
    }
  netd_opening_cancel (openings[0]);
  g_assert_cmpint (recv (channel[0], &message, sizeof message, 0), ==, sizeof message);
  g_assert_cmpint (message.type, ==, NETD_MESSAGE_CANCEL);
  netd_opener_free (opener);
  netd_loop_free (loop);
  close (channel[0]);
}

#define ADD(name, data, func)                                                                      \
  g_test_add ("/netd/warden/" name, Fixture, data, set_up, func, tear_down)

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  ADD ("appears", NULL, test_appears);
  ADD ("parents-appear", NULL, test_parents_appear);
  ADD ("folder-replaced", NULL, test_folder_replaced);
  ADD ("bound-first", NULL, test_bound_first);
  ADD ("again", NULL, test_again);
  ADD ("backlog", NULL, test_backlog);
  ADD ("metadata", "m-a vm-b", test_metadata);
  ADD ("long-path", NULL, test_long_path);
  ADD ("not-named", NULL, test_not_named);
  ADD ("leaves", NULL, test_leaves);
  ADD ("links", NULL, test_links);
  ADD ("link-above", NULL, test_link_above);
  ADD ("cancel", NULL, test_cancel);
  ADD ("limits", "m-a", test_limits);
  ADD ("garbage", NULL, test_garbage);
  ADD ("not-taken", "m-a", test_not_taken);
  ADD ("resolver-file", NULL, test_resolver_file);
  ADD ("resolver-links", NULL, test_resolver_links);
  ADD ("resolver-text", NULL, test_resolver_text);
  g_test_add ("/netd/warden/unwatched", Fixture, NULL, set_up_unwatched, test_unwatched, tear_down);
  ADD ("child-exits", NULL, test_child_exits);
  ADD ("child-killed", NULL, test_child_killed);
  ADD ("told-to-end", NULL, test_told_to_end_by);
  ADD ("interrupted", NULL, test_interrupted);
  ADD ("child-stays", NULL, test_child_stays);
  g_test_add_func ("/netd/opener/garbage", test_opener_garbage);
  g_test_add_func ("/netd/opener/no-descriptors", test_opener_no_descriptors);
  g_test_add_func ("/netd/opener/unsent", test_opener_unsent);
  return g_test_run ();
}
