/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Options: ranks of the sources, types, checks, defaults, help. */

#include "vmm-options.h"

#include <string.h>
#include <unistd.h>

#include "test-await.h"

static VmmOptions *
parse (GError **error, const char *first, ...)
{
  g_autoptr (GPtrArray) words = g_ptr_array_new ();
  g_autofree char **argv = NULL;
  va_list args;
  int argc;

  g_ptr_array_add (words, (gpointer) "serve");
  va_start (args, first);
  for (const char *word = first; word != NULL; word = va_arg (args, const char *))
    g_ptr_array_add (words, (gpointer) word);
  va_end (args);
  argc = words->len;
  g_ptr_array_add (words, NULL);
  argv = (char **) g_ptr_array_free (g_steal_pointer (&words), FALSE);
  return vmm_options_parse (&argc, &argv, error);
}

#define PARSE(...) parse (&error, __VA_ARGS__, NULL)

static void
test_defaults (void)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (VmmOptions) options = parse (&error, NULL);
  g_autofree char *state = g_build_filename (g_getenv ("XDG_STATE_HOME"), "vm-manager", NULL);
  g_autofree char *images = g_build_filename (state, "images", NULL);
  g_autofree char *socket =
      g_build_filename (g_getenv ("XDG_RUNTIME_DIR"), "vm-manager", "api.sock", NULL);

  g_assert_no_error (error);
  g_assert_cmpstr (vmm_options_get_string (options, "listen"), ==, "127.0.0.1:8080");
  g_assert_cmpstr (vmm_options_get_string (options, "state-dir"), ==, state);
  g_assert_cmpstr (vmm_options_get_string (options, "image-dir"), ==, images);
  g_assert_cmpstr (vmm_options_get_string (options, "listen-unix"), ==, socket);
  g_assert_cmpstr (vmm_options_get_string (options, "launcher"), ==, "auto");
  g_assert_cmpstr (vmm_options_get_string (options, "attestation"), ==, "auto");
  g_assert_cmpstr (vmm_options_get_string (options, "ovmf-code"), ==, NULL);
  g_assert_cmpint (vmm_options_get_duration (options, "boot-timeout"), ==, 240 * G_USEC_PER_SEC);
  g_assert_cmpint (vmm_options_get_int (options, "metrics-guest-series-limit"), ==, 1000);
  g_assert_true (vmm_options_get_boolean (options, "detach-vms-on-exit"));
  g_assert_false (vmm_options_get_boolean (options, "allow-anonymous"));
  g_assert_false (vmm_options_is_set (options, "boot-timeout"));
  g_assert_false (vmm_options_wants_help (options));
}

static void
test_folders (void)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (VmmOptions) service = NULL;
  g_autoptr (VmmOptions) homeless = NULL;
  g_autofree char *home = g_strdup (g_getenv ("HOME"));

  g_setenv ("STATE_DIRECTORY", "/var/lib/one:/var/lib/two", TRUE);
  g_setenv ("RUNTIME_DIRECTORY", "/run/one", TRUE);
  service = parse (&error, NULL);
  g_assert_cmpstr (vmm_options_get_string (service, "state-dir"), ==, "/var/lib/one");
  g_assert_cmpstr (vmm_options_get_string (service, "listen-unix"), ==, "/run/one/api.sock");
  g_unsetenv ("STATE_DIRECTORY");
  g_unsetenv ("RUNTIME_DIRECTORY");

  g_unsetenv ("XDG_STATE_HOME");
  g_unsetenv ("XDG_RUNTIME_DIR");
  g_unsetenv ("HOME");
  homeless = parse (&error, NULL);
  g_assert_cmpstr (vmm_options_get_string (homeless, "state-dir"), ==, "/var/lib/vm-manager");
  g_assert_cmpstr (vmm_options_get_string (homeless, "listen-unix"), ==,
                   geteuid () == 0 ? "/run/vm-manager/api.sock" : NULL);
  g_setenv ("HOME", home, TRUE);
}

static void
test_ranks (void)
{
  char *folder = test_make_directory ();
  g_autofree char *file = g_build_filename (folder, "conf", NULL);
  g_autofree char *flag = g_strconcat ("--config=", file, NULL);
  static const char text[] = "# comment\n[serve]\nstop-timeout=1s\nboot-timeout=2s\n"
                             "install-timeout = 3s\nallow-metrics=true\nlisten=\n";
  g_autoptr (GError) error = NULL;
  g_autoptr (VmmOptions) options = NULL;

  g_assert_true (g_file_set_contents (file, text, -1, NULL));
  g_setenv ("VM_MANAGER_BOOT_TIMEOUT", "20s", TRUE);
  g_setenv ("VM_MANAGER_INSTALL_TIMEOUT", "30s", TRUE);
  options = PARSE (flag, "--install-timeout=300s");
  g_assert_no_error (error);
  g_assert_cmpint (vmm_options_get_duration (options, "stop-timeout"), ==, G_USEC_PER_SEC);
  g_assert_cmpint (vmm_options_get_duration (options, "boot-timeout"), ==, 20 * G_USEC_PER_SEC);
  g_assert_cmpint (vmm_options_get_duration (options, "install-timeout"), ==,
                   300 * G_USEC_PER_SEC);
  g_assert_true (vmm_options_get_boolean (options, "allow-metrics"));
  g_assert_cmpstr (vmm_options_get_string (options, "listen"), ==, "");
  g_assert_true (vmm_options_is_set (options, "stop-timeout"));
  g_unsetenv ("VM_MANAGER_BOOT_TIMEOUT");
  g_unsetenv ("VM_MANAGER_INSTALL_TIMEOUT");
  test_remove_directory (folder);
}

/* An empty or unreadable variable is as good as none: the file is next. */
static void
test_bad_variables (void)
{
  char *folder = test_make_directory ();
  g_autofree char *file = g_build_filename (folder, "conf", NULL);
  g_autoptr (GError) error = NULL;
  g_autoptr (VmmOptions) options = NULL;

  g_assert_true (g_file_set_contents (file, "[serve]\nstop-timeout=1s\n", -1, NULL));
  g_setenv ("VM_MANAGER_CONFIG", file, TRUE);
  g_setenv ("VM_MANAGER_STOP_TIMEOUT", "soon", TRUE);
  g_setenv ("VM_MANAGER_LAUNCHER", "", TRUE);
  g_setenv ("VM_MANAGER_METRICS_ENABLED", "yes", TRUE);
  g_setenv ("VM_MANAGER_METRICS_GUEST_SERIES_LIMIT", "12x", TRUE);
  g_setenv ("VM_MANAGER_DETACH_VMS_ON_EXIT", "F", TRUE);
  options = parse (&error, NULL);
  g_assert_no_error (error);
  g_assert_cmpint (vmm_options_get_duration (options, "stop-timeout"), ==, G_USEC_PER_SEC);
  g_assert_cmpstr (vmm_options_get_string (options, "launcher"), ==, "auto");
  g_assert_true (vmm_options_get_boolean (options, "metrics-enabled"));
  g_assert_cmpint (vmm_options_get_int (options, "metrics-guest-series-limit"), ==, 1000);
  g_assert_false (vmm_options_get_boolean (options, "detach-vms-on-exit"));
  g_unsetenv ("VM_MANAGER_CONFIG");
  g_unsetenv ("VM_MANAGER_STOP_TIMEOUT");
  g_unsetenv ("VM_MANAGER_LAUNCHER");
  g_unsetenv ("VM_MANAGER_METRICS_ENABLED");
  g_unsetenv ("VM_MANAGER_METRICS_GUEST_SERIES_LIMIT");
  g_unsetenv ("VM_MANAGER_DETACH_VMS_ON_EXIT");
  test_remove_directory (folder);
}

typedef struct
{
  const char *flag;
  const char *message;
} Wrong;

static const Wrong wrong[] = {
  { "--bogus", "Unknown option --bogus; see \"vm-manager serve --help\"" },
  { "--bogus=1", "Unknown option --bogus=1; see \"vm-manager serve --help\"" },
  { "word", "unexpected argument \"word\"; see \"vm-manager serve --help\"" },
  { "--stop-timeout=soon", "--stop-timeout: \"soon\" is not a duration such as 30s, 5m or 1h30m" },
  { "--stop-timeout=0s", "--stop-timeout: \"0s\" must be more than 0s" },
  { "--stop-timeout=-1s", NULL },
  { "--notify-port=-1", "--notify-port: -1 is not a vsock port" },
  { "--notify-port=4294967296", "--notify-port: 4294967296 is not a vsock port" },
  { "--notify-port=x", "--notify-port: \"x\" is not a number" },
  { "--metrics-guest-series-limit=-5", "--metrics-guest-series-limit: -5 must be at least 1" },
  { "--default-network=", "--default-network: name required" },
  { "--default-network=No_Name", "--default-network: name \"No_Name\" must be a DNS label" },
  { "--network-subnet=10.0.0.0", NULL },
  { "--network-subnet=10.0.0.0/8", NULL },
  { "--network-subnet=fd00::/64", NULL },
  { "--metrics-enabled=maybe", "--metrics-enabled: \"maybe\" is not true or false" },
  { "--config=/nonexistent/file", NULL },
};

static void
test_wrong_flags (void)
{
  for (guint i = 0; i < G_N_ELEMENTS (wrong); i++)
    {
      g_autoptr (GError) error = NULL;
      g_autoptr (VmmOptions) options = PARSE (wrong[i].flag);
      g_autofree char *name = g_strndup (wrong[i].flag, strcspn (wrong[i].flag, "="));

      g_test_message ("%s", wrong[i].flag);
      g_assert_null (options);
      g_assert_nonnull (error);
      if (wrong[i].message != NULL)
        g_assert_cmpstr (error->message, ==, wrong[i].message);
      else if (strcmp (name, "--config") != 0)
        g_assert_true (g_str_has_prefix (error->message, name));
    }
}

static void
test_wrong_files (void)
{
  static const Wrong files[] = {
    { "[serve]\nstop-timeout=soon\n", ": stop-timeout: \"soon\" is not a duration" },
    { "[serve]\nmetrics-enabled=perhaps\n", ": metrics-enabled: \"perhaps\" is not true or false" },
    { "stop-timeout=1s\n", "configuration file " },
    { "[serve\n", "configuration file " },
  };
  char *folder = test_make_directory ();
  g_autofree char *file = g_build_filename (folder, "conf", NULL);
  g_autofree char *flag = g_strconcat ("--config=", file, NULL);

  for (guint i = 0; i < G_N_ELEMENTS (files); i++)
    {
      g_autoptr (GError) error = NULL;

      g_assert_true (g_file_set_contents (file, files[i].flag, -1, NULL));
      g_assert_null (PARSE (flag));
      g_assert_nonnull (strstr (error->message, file));
      g_assert_nonnull (strstr (error->message, files[i].message));
    }
  {
    g_autoptr (GError) error = NULL;
    g_autoptr (VmmOptions) options = NULL;

    /* What a newer version may know is no error. */
    g_assert_true (g_file_set_contents (file, "[serve]\nnew=1\n[more]\na=b\n", -1, NULL));
    options = PARSE (flag);
    g_assert_no_error (error);
  }
  test_remove_directory (folder);
}

static void
test_flags (void)
{
  g_autoptr (GError) error = NULL;
  g_autofree char *here = g_get_current_dir ();
  g_autofree char *relative = g_build_filename (here, "state", NULL);
  g_autoptr (VmmOptions) options =
      PARSE ("--allow-anonymous", "--metrics-enabled=false", "--state-dir", "state", "--listen-unix=",
             "--metrics-guest-series-limit=0", "--attestation=", "--image-dir=/a/../b/", "--config=");

  g_assert_no_error (error);
  g_assert_true (vmm_options_get_boolean (options, "allow-anonymous"));
  g_assert_false (vmm_options_get_boolean (options, "metrics-enabled"));
  g_assert_cmpstr (vmm_options_get_string (options, "state-dir"), ==, relative);
  g_assert_cmpstr (vmm_options_get_string (options, "image-dir"), ==, "/b");
  g_assert_cmpstr (vmm_options_get_string (options, "listen-unix"), ==, "");
  g_assert_cmpstr (vmm_options_get_string (options, "attestation"), ==, "auto");
  g_assert_cmpint (vmm_options_get_int (options, "metrics-guest-series-limit"), ==, 1000);
}

typedef struct
{
  const char *help;
  guint n;
} Seen;

static void
visit_cb (const char *flag, const char *variable, const char *fallback, const char *help,
          gpointer user_data)
{
  Seen *seen = user_data;
  g_autofree char *dashed = g_strconcat ("  --", flag, "=", NULL);
  g_autofree char *dollar = g_strconcat ("[$", variable, ", default: ", fallback, NULL);

  g_assert_nonnull (strstr (seen->help, dashed));
  g_assert_nonnull (strstr (seen->help, dollar));
  g_assert_nonnull (strstr (seen->help, help));
  seen->n++;
}

static void
test_help (void)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (VmmOptions) options = PARSE ("--help");
  g_autofree char *help = vmm_options_format_help ();
  Seen seen = { help, 0 };

  g_assert_no_error (error);
  g_assert_true (vmm_options_wants_help (options));
  vmm_options_foreach (visit_cb, &seen);
  g_assert_cmpuint (seen.n, >, 20);
}

static void
test_for_test (void)
{
  static const char *const good[] = { "listen", "", "boot-timeout", "7s", NULL };
  static const char *const unknown[] = { "bogus", "", NULL };
  static const char *const bad[] = { "boot-timeout", "x", NULL };
  static const char *const bytes[] = { "launcher", "\xff", NULL };
  g_autoptr (GError) error = NULL;
  g_autoptr (VmmOptions) options = vmm_options_new_for_test (good, &error);

  g_assert_no_error (error);
  g_assert_cmpint (vmm_options_get_duration (options, "boot-timeout"), ==, 7 * G_USEC_PER_SEC);
  g_assert_null (vmm_options_new_for_test (unknown, &error));
  g_assert_nonnull (error);
  g_clear_error (&error);
  g_assert_null (vmm_options_new_for_test (bad, &error));
  g_assert_nonnull (error);
  g_clear_error (&error);
  g_assert_null (vmm_options_new_for_test (bytes, &error));
  g_assert_cmpstr (error->message, ==, "--launcher: not valid UTF-8");
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, G_TEST_OPTION_ISOLATE_DIRS, NULL);
  g_setenv ("XDG_STATE_HOME", "/nowhere/state", TRUE);
  g_setenv ("XDG_RUNTIME_DIR", "/nowhere/run", TRUE);
  g_unsetenv ("STATE_DIRECTORY");
  g_unsetenv ("RUNTIME_DIRECTORY");

  g_test_add_func ("/options/defaults", test_defaults);
  g_test_add_func ("/options/ranks", test_ranks);
  g_test_add_func ("/options/bad-variables", test_bad_variables);
  g_test_add_func ("/options/wrong-flags", test_wrong_flags);
  g_test_add_func ("/options/wrong-files", test_wrong_files);
  g_test_add_func ("/options/flags", test_flags);
  g_test_add_func ("/options/help", test_help);
  g_test_add_func ("/options/for-test", test_for_test);
  /* Changes the surroundings: last. */
  g_test_add_func ("/options/folders", test_folders);

  return g_test_run ();
}
