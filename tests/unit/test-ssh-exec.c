/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Commands over ssh: with two real servers, and with one that misbehaves at every point. */
#include "vmm-ssh-exec.h"

#include <glib/gstdio.h>
#include <string.h>
#include <unistd.h>

#include "interfaces/vmm-error.h"
#include "ssh-guest.h"
#include "test-await.h"
#include "vmm-ssh-key.h"

/* Nothing here is to run into it. */
#define PATIENCE_MS (10 * 60 * 1000)
/* A limit that is run into. What misbehaves has to come to its point before, however busy this
 * machine is. */
#define LATE_MS 15000
#define WITHIN " within 15 s"
#define UNDECIDED "ssh 10.64.0.2:22: the guest's sshd did not say whether root may log in"

typedef struct
{
  char *folder;
  char *key_path;
  char *pin_path;
  SshGuest *guest;
} Fixture;

static void
set_up (Fixture *fixture, gconstpointer data)
{
  g_autofree char *pem = NULL;
  g_autofree char *line = NULL;

  fixture->folder = test_make_directory ();
  fixture->key_path = g_build_filename (fixture->folder, "ssh_key", NULL);
  fixture->pin_path = g_build_filename (fixture->folder, "ssh_host_key", NULL);
  g_assert_true (vmm_ssh_key_generate ("vm-manager@1a", &pem, &line, NULL));
  g_assert_true (g_file_set_contents (fixture->key_path, pem, -1, NULL));
  fixture->guest = ssh_guest_new (line);
}

/* Threads of ours, by the name that they are given. */
static guint
count_threads (void)
{
  g_autoptr (GDir) tasks = g_dir_open ("/proc/self/task", 0, NULL);
  const char *name;
  guint count = 0;

  while ((name = g_dir_read_name (tasks)) != NULL)
    {
      g_autofree char *path = g_strdup_printf ("/proc/self/task/%s/comm", name);
      g_autofree char *comm = NULL;

      if (g_file_get_contents (path, &comm, NULL, NULL) && g_str_equal (comm, "ssh\n"))
        count++;
    }
  return count;
}

static guint
count_sockets (void)
{
  g_autoptr (GDir) fds = g_dir_open ("/proc/self/fd", 0, NULL);
  const char *name;
  guint count = 0;

  while ((name = g_dir_read_name (fds)) != NULL)
    {
      g_autofree char *path = g_strdup_printf ("/proc/self/fd/%s", name);
      g_autofree char *target = g_file_read_link (path, NULL);

      if (target != NULL && g_str_has_prefix (target, "socket:"))
        count++;
    }
  return count;
}

static void
tear_down (Fixture *fixture, gconstpointer data)
{
  g_assert_cmpuint (count_threads (), ==, 0);
  ssh_guest_free (fixture->guest);
  g_free (fixture->key_path);
  g_free (fixture->pin_path);
  test_remove_directory (fixture->folder);
}

static void
begin_within (Fixture *fixture, const char *server, const char *const *words, guint setup_ms,
              GCancellable *cancellable, TestAwait *await)
{
  g_autoptr (GIOStream) stream = ssh_guest_connect (fixture->guest, server);
  VmmSshJob *job = vmm_ssh_job_new ();

  job->vm_id = g_strdup ("1a");
  job->host = g_strdup ("10.64.0.2");
  job->port = 22;
  job->key_path = g_strdup (fixture->key_path);
  job->pin_path = g_strdup (fixture->pin_path);
  job->command = vmm_ssh_quote (words);
  job->setup_ms = setup_ms;
  job->chatter_max = 1000;
  job->received_max = 64 * 1024 * 1024;
  vmm_ssh_exec_async (stream, job, cancellable, test_await_cb, await);
}

static void
begin (Fixture *fixture, const char *server, const char *const *words, GCancellable *cancellable,
       TestAwait *await)
{
  begin_within (fixture, server, words, PATIENCE_MS, cancellable, await);
}

static VmmSshResult *
finish (TestAwait *await, GError **error)
{
  g_autoptr (GAsyncResult) result = test_await (await);

  return vmm_ssh_exec_finish (result, error);
}

static VmmSshResult *
run (Fixture *fixture, const char *server, const char *const *words, GError **error)
{
  TestAwait await = TEST_AWAIT_INIT;

  begin (fixture, server, words, NULL, &await);
  return finish (&await, error);
}

#define WORDS(...) ((const char *const[]){ __VA_ARGS__, NULL })

static void
assert_run (Fixture *fixture, const char *server, const char *const *words, const char *out,
            const char *err, gint64 exit_code)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (VmmSshResult) result = run (fixture, server, words, &error);

  g_assert_no_error (error);
  g_assert_cmpstr (result->stdout_text, ==, out);
  g_assert_cmpstr (result->stderr_text, ==, err);
  g_assert_cmpint (result->exit_code, ==, exit_code);
}

static void
assert_fails (Fixture *fixture, const char *server, const char *pattern)
{
  guint sockets = count_sockets ();
  g_autoptr (GError) error = NULL;
  g_autoptr (VmmSshResult) result = run (fixture, server, WORDS ("true"), &error);

  g_assert_null (result);
  g_assert_error (error, VMM_ERROR, VMM_ERROR_INTERNAL);
  if (!g_pattern_match_simple (pattern, error->message))
    g_error ("%s: '%s' is not like '%s'", server, error->message, pattern);
  g_assert_true (g_utf8_validate (error->message, -1, NULL));
  g_assert_cmpuint (strlen (error->message), <, 600);
  g_assert_cmpuint (count_sockets (), ==, sockets);
}

static gboolean
skip_without (Fixture *fixture, const char *server)
{
  const char *missing = ssh_guest_missing (fixture->guest, server);

  if (missing != NULL)
    g_test_skip (missing);
  return missing != NULL;
}

/* -- real servers ----------------------------------------------------------------------------- */

static void
test_quote (void)
{
  g_autofree char *text
      = vmm_ssh_quote (WORDS ("echo", "it's here", "$HOME", "", "a\nb", "'", "\\"));

  g_assert_cmpstr (text, ==, "'echo' 'it'\\''s here' '$HOME' '' 'a\nb' ''\\''' '\\'");
}

static void
test_run (Fixture *fixture, gconstpointer data)
{
  const char *server = data;

  if (skip_without (fixture, server))
    return;
  assert_run (fixture, server, WORDS ("echo", "it's here", "$HOME"), "it's here $HOME\n", "", 0);
  assert_run (fixture, server, WORDS ("printf", "[%s]", "a b", "", "\n", "*", "ü"),
              "[a b][][\n][*][ü]", "", 0);
  assert_run (fixture, server, WORDS ("sh", "-c", "echo out; echo err >&2; exit 3"), "out\n",
              "err\n", 3);
  assert_run (fixture, server, WORDS ("cat"), "", "", 0); /* nothing is on its stdin */
  assert_run (fixture, server, WORDS ("printf", "a\\000b\\377c"), "a\xef\xbf\xbd"
                                                                  "b\xef\xbf\xbd"
                                                                  "c",
              "", 0);
  assert_run (fixture, server, WORDS ("sh", "-c", "kill -KILL $PPID; sleep 0.1"), "", "", 137);
}

static void
test_long (Fixture *fixture, gconstpointer data)
{
  const char *server = data;
  g_autofree char *word = g_strnfill (7000, 'w'); /* dropbear takes 9000 bytes */
  g_autoptr (VmmSshResult) result = NULL;
  g_autoptr (GError) error = NULL;

  if (skip_without (fixture, server))
    return;
  assert_run (fixture, server, WORDS ("printf", "%s", word), word, "", 0);
  result = run (fixture, server,
                WORDS ("sh", "-c", "head -c 5000000 /dev/zero | tr '\\0' x; "
                                   "head -c 3000000 /dev/zero | tr '\\0' y >&2"),
                &error);
  g_assert_no_error (error);
  g_assert_cmpuint (strlen (result->stdout_text), ==, 5000000);
  g_assert_cmpuint (strspn (result->stdout_text, "x"), ==, 5000000);
  g_assert_cmpuint (strspn (result->stderr_text, "y"), ==, 3000000);
}

/* A GiB goes nowhere. */
static void
test_endless (Fixture *fixture, gconstpointer data)
{
  const char *server = data;
  g_autoptr (VmmSshResult) result = NULL;
  g_autoptr (GError) error = NULL;

  if (skip_without (fixture, server))
    return;
  result = run (fixture, server, WORDS ("cat", "/dev/zero"), &error);
  g_assert_null (result);
  g_assert_error (error, VMM_ERROR, VMM_ERROR_INTERNAL);
  g_assert_true (g_str_has_prefix (error->message, "ssh run: the command wrote more than 8 MiB"));
}

static void
test_pin (Fixture *fixture, gconstpointer data)
{
  g_autofree char *host_key = ssh_guest_dup_host_key (fixture->guest);
  g_autofree char *content = NULL;
  g_autofree char *after = NULL;
  GStatBuf status;

  if (skip_without (fixture, "openssh"))
    return;
  assert_run (fixture, "openssh", WORDS ("true"), "", "", 0);
  g_assert_true (g_file_get_contents (fixture->pin_path, &content, NULL, NULL));
  g_assert_true (g_str_has_suffix (content, "\n"));
  g_assert_cmpint (strncmp (content, host_key, strlen (host_key)), ==, 0);
  g_assert_cmpuint (strlen (content), ==, strlen (host_key) + 1);
  g_assert_cmpint (g_stat (fixture->pin_path, &status), ==, 0);
  g_assert_cmpuint (status.st_mode & 07777, ==, 0600);
  assert_run (fixture, "openssh", WORDS ("true"), "", "", 0);

  ssh_guest_rekey (fixture->guest);
  assert_fails (fixture, "openssh",
                "ssh 10.64.0.2:22: host key of vm 1a changed: SHA256:* is pinned and the guest "
                "shows SHA256:*; if it was meant to get a new one, remove */ssh_host_key");
  g_assert_true (g_file_get_contents (fixture->pin_path, &after, NULL, NULL));
  g_assert_cmpstr (after, ==, content);
  g_assert_cmpint (g_unlink (fixture->pin_path), ==, 0);
  assert_run (fixture, "openssh", WORDS ("true"), "", "", 0);
}

/* A guest with several keys goes on being known by the one that is pinned. */
static void
test_pinned_type (Fixture *fixture, gconstpointer data)
{
  g_autofree char *path = g_build_filename (fixture->guest->folder, "host_ecdsa.pub", NULL);
  g_autofree char *line = NULL;

  if (skip_without (fixture, "openssh"))
    return;
  g_assert_true (g_file_get_contents (path, &line, NULL, NULL));
  *strrchr (line, ' ') = '\0'; /* the comment */
  g_assert_true (g_file_set_contents (fixture->pin_path, line, -1, NULL));
  assert_run (fixture, "openssh", WORDS ("echo", "known"), "known\n", "", 0);
}

static void
test_keys (Fixture *fixture, gconstpointer data)
{
  g_autofree char *pem = NULL;
  g_autofree char *line = NULL;

  if (skip_without (fixture, "openssh"))
    return;
  g_assert_true (vmm_ssh_key_generate ("stranger", &pem, &line, NULL));
  g_assert_true (g_file_set_contents (fixture->key_path, pem, -1, NULL));
  assert_fails (fixture, "openssh",
                "ssh 10.64.0.2:22: the guest does not let root in with the key*");
  /* It has let nobody in. */
  g_assert_false (g_file_test (fixture->pin_path, G_FILE_TEST_EXISTS));

  g_assert_true (g_file_set_contents (fixture->key_path, "no key", -1, NULL));
  assert_fails (fixture, "openssh", "ssh 10.64.0.2:22: */ssh_key is no private key*");
  g_assert_cmpint (g_unlink (fixture->key_path), ==, 0);
  assert_fails (fixture, "openssh", "ssh 10.64.0.2:22: *ssh_key*");
}

/* Neither the user's configuration nor his agent has a say. */
static void
test_no_configuration (Fixture *fixture, gconstpointer data)
{
  g_autofree char *folder = g_build_filename (fixture->folder, ".ssh", NULL);
  g_autofree char *config = g_build_filename (folder, "config", NULL);
  g_autofree char *known = g_build_filename (folder, "known_hosts", NULL);
  g_autofree char *home = g_strdup (g_getenv ("HOME"));

  if (skip_without (fixture, "openssh"))
    return;
  g_assert_cmpint (g_mkdir (folder, 0700), ==, 0);
  g_assert_true (g_file_set_contents (config, "Host *\n  ProxyCommand false\n  User nobody\n"
                                              "  Ciphers 3des-cbc\n",
                                      -1, NULL));
  g_assert_true (g_file_set_contents (known, "10.64.0.2 ssh-ed25519 AAAA\n", -1, NULL));
  g_setenv ("HOME", fixture->folder, TRUE);
  g_setenv ("SSH_AUTH_SOCK", "/nonexistent/agent", TRUE);
  assert_run (fixture, "openssh", WORDS ("echo", "in"), "in\n", "", 0);
  g_unsetenv ("HOME");
  assert_run (fixture, "openssh", WORDS ("echo", "homeless"), "homeless\n", "", 0);
  g_setenv ("HOME", home, TRUE);
  g_unsetenv ("SSH_AUTH_SOCK");
}

/* Side by side, and first ones all of them: one key is pinned. */
static void
test_many (Fixture *fixture, gconstpointer data)
{
  enum
  {
    N = 100,
  };
  TestAwait awaits[N];

  if (skip_without (fixture, "dropbear"))
    return;
  for (guint i = 0; i < N; i++)
    {
      g_autofree char *number = g_strdup_printf ("%u", i);

      awaits[i] = (TestAwait) TEST_AWAIT_INIT;
      begin (fixture, "dropbear", WORDS ("echo", number), NULL, &awaits[i]);
    }
  for (guint i = 0; i < N; i++)
    {
      g_autofree char *line = g_strdup_printf ("%u\n", i);
      g_autoptr (GError) error = NULL;
      g_autoptr (VmmSshResult) result = finish (&awaits[i], &error);

      g_assert_no_error (error);
      g_assert_cmpstr (result->stdout_text, ==, line);
    }
}

/* -- misbehaving ones ------------------------------------------------------------------------- */

static const struct
{
  const char *behaviour;
  const char *pattern;
} failures[] = {
  { "closing", "ssh 10.64.0.2:22: the connection ended*" },
  { "line", "ssh 10.64.0.2:22: *too large banner*" },
  { "lines", "ssh 10.64.0.2:22: the guest sent more than 1 MiB without letting root in" },
  { "garbage", "ssh 10.64.0.2:22: *" },
  { "huge-packet", "ssh 10.64.0.2:22: *" },
  { "auth-denying", "ssh 10.64.0.2:22: the guest does not let root in*" },
  { "auth-partial", "ssh 10.64.0.2:22: the guest does not let root in*" },
  { "auth-banners", "ssh 10.64.0.2:22: the guest sent more than 1 MiB without letting root in" },
  { "auth-leaving", "ssh 10.64.0.2:22: *go\\x1b*away!!!*" },
  { "session-refusing", "ssh session: the guest opens none*" },
  { "command-refusing", "ssh run: the guest refuses the command*" },
  { "command-closing", "ssh run: *" },
  { "flooding", "ssh run: the command wrote more than 8 MiB: *" },
  { "flooding-errors", "ssh run: the command wrote more than 8 MiB: *" },
  { "overflowing", "ssh run: the command wrote more than 8 MiB: *" },
  { "chatty", "ssh run: the guest sent more than 1000 packets without output" },
  { "ignorable", "ssh run: the guest sent more than 64 MiB" },
  { "statusless", "ssh run: the session ended without the command's exit status" },
  { "breaking", "ssh run: the connection ended*" },
};

static void
test_failure (Fixture *fixture, gconstpointer data)
{
  guint i = GPOINTER_TO_UINT (data);

  assert_fails (fixture, failures[i].behaviour, failures[i].pattern);
}

static void
test_odd_successes (Fixture *fixture, gconstpointer data)
{
  g_autofree char *full = g_strnfill (VMM_SSH_OUTPUT_MAX, 'y');

  assert_run (fixture, "full", WORDS ("true"), full, "", 0);
  assert_run (fixture, "opening", WORDS ("true"), "still here", "", 0);
  assert_run (fixture, "huge-status", WORDS ("true"), "", "", 4294967295);
  assert_run (fixture, "killed", WORDS ("true"), "", "", 139);
  assert_run (fixture, "killed-oddly", WORDS ("true"), "", "", 128);
  assert_run (fixture, "breaking-late", WORDS ("true"), "all of it", "", 4);
  assert_run (fixture, "bytes", WORDS ("true"), "a\xef\xbf\xbd"
                                                "b\xef\xbf\xbd\xc3\xa4\xef\xbf\xbd\x1b\r\n",
              "\xef\xbf\xbd\xef\xbf\xbd", 0);
}

/* Where a peer can stall: what is said of it when its time is up. */
static const struct
{
  const char *behaviour;
  const char *message;
} stalls[] = {
  { "silent", "ssh 10.64.0.2:22: the guest's sshd did not answer" WITHIN },
  { "greeting", "ssh 10.64.0.2:22: the guest's sshd did not answer" WITHIN },
  { "auth-silent", UNDECIDED WITHIN },
  { "auth-asking", UNDECIDED WITHIN },
  { "auth-again", UNDECIDED WITHIN },
  { "session-silent", "ssh session: the guest's sshd did not open a session" WITHIN },
  { "command-silent", "ssh run: the guest's sshd did not start the command" WITHIN },
  { "hanging", NULL },
  { "deaf", NULL }, /* asks and asks, and takes no answer */
};
#define N_STALLS_BEFORE 7

static void
test_cancelled (Fixture *fixture, gconstpointer data)
{
  const char *behaviour = stalls[GPOINTER_TO_UINT (data)].behaviour;
  g_autoptr (GCancellable) cancellable = g_cancellable_new ();
  g_autoptr (VmmSshResult) result = NULL;
  g_autoptr (GError) error = NULL;
  TestAwait await = TEST_AWAIT_INIT;
  guint sockets = count_sockets ();

  begin (fixture, behaviour, WORDS ("true"), cancellable, &await);
  ssh_guest_await_reached (fixture->guest);
  g_assert_cmpuint (count_threads (), ==, 1);
  g_cancellable_cancel (cancellable);
  result = finish (&await, &error);
  g_assert_null (result);
  g_assert_error (error, G_IO_ERROR, G_IO_ERROR_CANCELLED);
  ssh_guest_await_left (fixture->guest);
  g_assert_cmpuint (count_sockets (), ==, sockets);
}

static void
test_cancelled_before (Fixture *fixture, gconstpointer data)
{
  g_autoptr (GCancellable) cancellable = g_cancellable_new ();
  g_autoptr (GError) error = NULL;
  TestAwait await = TEST_AWAIT_INIT;

  g_cancellable_cancel (cancellable);
  begin (fixture, "silent", WORDS ("true"), cancellable, &await);
  g_assert_null (finish (&await, &error));
  g_assert_error (error, G_IO_ERROR, G_IO_ERROR_CANCELLED);
}

/* All at once: the limit is waited for a single time. */
static void
test_late (Fixture *fixture, gconstpointer data)
{
  TestAwait awaits[N_STALLS_BEFORE];

  for (guint i = 0; i < G_N_ELEMENTS (awaits); i++)
    {
      awaits[i] = (TestAwait) TEST_AWAIT_INIT;
      begin_within (fixture, stalls[i].behaviour, WORDS ("true"), LATE_MS, NULL, &awaits[i]);
    }
  for (guint i = 0; i < G_N_ELEMENTS (awaits); i++)
    {
      g_autoptr (GError) error = NULL;

      g_assert_null (finish (&awaits[i], &error));
      g_assert_error (error, VMM_ERROR, VMM_ERROR_INTERNAL);
      g_assert_cmpstr (error->message, ==, stalls[i].message);
    }
}

/* The limit is for what comes before a command runs. */
static void
test_lasting (Fixture *fixture, gconstpointer data)
{
  TestAwait await = TEST_AWAIT_INIT;
  g_autoptr (VmmSshResult) result = NULL;
  g_autoptr (GError) error = NULL;

  if (skip_without (fixture, "dropbear"))
    return;
  begin_within (fixture, "dropbear", WORDS ("sh", "-c", "sleep 16; echo done"), LATE_MS, NULL,
                &await);
  result = finish (&await, &error);
  g_assert_no_error (error);
  g_assert_cmpstr (result->stdout_text, ==, "done\n");
}

/* A key that changed counts for more than the hanging up that it leads to. */
static void
test_changed_and_gone (Fixture *fixture, gconstpointer data)
{
  g_assert_true (g_file_set_contents (fixture->pin_path, "ssh-ed25519 AAAA\n", -1, NULL));
  assert_fails (fixture, "auth-leaving", "ssh 10.64.0.2:22: host key of vm 1a changed: *");
  g_assert_true (g_file_set_contents (fixture->pin_path, "rubbish\n", -1, NULL));
  assert_fails (fixture, "hanging",
                "ssh 10.64.0.2:22: */ssh_host_key holds no host key: remove it*");
}

#define ADD(name, data, function)                                                                  \
  g_test_add ("/ssh-exec/" name, Fixture, data, set_up, function, tear_down)

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_add_func ("/ssh-exec/quote", test_quote);
  ADD ("openssh/run", "openssh", test_run);
  ADD ("openssh/long", "openssh", test_long);
  ADD ("openssh/endless", "openssh", test_endless);
  ADD ("dropbear/run", "dropbear", test_run);
  ADD ("dropbear/long", "dropbear", test_long);
  ADD ("dropbear/endless", "dropbear", test_endless);
  ADD ("pin", NULL, test_pin);
  ADD ("pinned-type", NULL, test_pinned_type);
  ADD ("keys", NULL, test_keys);
  ADD ("no-configuration", NULL, test_no_configuration);
  ADD ("many", NULL, test_many);
  for (guint i = 0; i < G_N_ELEMENTS (failures); i++)
    {
      g_autofree char *path = g_strconcat ("/ssh-exec/failure/", failures[i].behaviour, NULL);

      g_test_add (path, Fixture, GUINT_TO_POINTER (i), set_up, test_failure, tear_down);
    }
  ADD ("odd-successes", NULL, test_odd_successes);
  for (guint i = 0; i < G_N_ELEMENTS (stalls); i++)
    {
      g_autofree char *path = g_strconcat ("/ssh-exec/cancelled/", stalls[i].behaviour, NULL);

      g_test_add (path, Fixture, GUINT_TO_POINTER (i), set_up, test_cancelled, tear_down);
    }
  ADD ("cancelled/before", NULL, test_cancelled_before);
  ADD ("late", NULL, test_late);
  ADD ("lasting", NULL, test_lasting);
  ADD ("changed-and-gone", NULL, test_changed_and_gone);
  return g_test_run ();
}
