/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The program: a command's name leads to its function. */

#include "config.h"

#include <locale.h>
#include <malloc.h>
#include <string.h>

#include <glib/gi18n.h>
#include <gnutls/gnutls.h>

#include "vmm-log.h"
#include "vmm-serve.h"
#include "vmm-version.h"

/* gnutls would set itself up before main(), at nearly a megabyte; who needs it calls
 * gnutls_global_init() first, which is cheap when it was done. */
GNUTLS_SKIP_GLOBAL_INIT

typedef struct
{
  const char *name;
  const char *help; /* translatable */
  int (*run) (int argc, char **argv);
} Command;

static int
print_version (int argc, char **argv)
{
  g_print ("vm-manager version %s\n  commit: %s\n  built:  %s\n", vmm_version, vmm_version_commit,
           vmm_version_built);
  return 0;
}

static const Command commands[] = {
  { "serve", N_ ("run the daemon"), vmm_serve_main },
  { "version", N_ ("say which build this is"), print_version },
};

static int
print_usage (void)
{
  g_print ("%s\n  vm-manager [-v|--verbose] %s\n\n%s\n", _ ("Usage:"), _ ("COMMAND [--FLAG=VALUE...]"),
           _ ("Commands:"));
  for (guint i = 0; i < G_N_ELEMENTS (commands); i++)
    g_print ("  %-12s %s\n", commands[i].name, _ (commands[i].help));
  g_print ("\n%s\n", _ ("\"vm-manager COMMAND --help\" lists the flags of a command, each with its "
                        "variable and default."));
  return 0;
}

/* Takes -v and --verbose out, wherever they are before "--". */
static gboolean
take_verbose (int *argc, char **argv)
{
  gboolean verbose = FALSE;
  int kept = 0;

  for (int i = 0; i < *argc; i++)
    {
      if (strcmp (argv[i], "-v") == 0 || strcmp (argv[i], "--verbose") == 0)
        verbose = TRUE;
      else
        argv[kept++] = argv[i];
    }
  argv[kept] = NULL;
  *argc = kept;
  return verbose;
}

int
main (int argc, char **argv)
{
  g_autofree char *problem = NULL;

  /* One heap for all threads: the few that there are do not contend for it. */
  mallopt (M_ARENA_MAX, 1);
  setlocale (LC_ALL, "");
  bindtextdomain (GETTEXT_PACKAGE, LOCALE_DIR);
  bind_textdomain_codeset (GETTEXT_PACKAGE, "UTF-8");
  textdomain (GETTEXT_PACKAGE);
  vmm_log_init (take_verbose (&argc, argv));

  if (argc < 2 || strcmp (argv[1], "help") == 0 || strcmp (argv[1], "--help") == 0 ||
      strcmp (argv[1], "-h") == 0)
    return print_usage ();
  if (strcmp (argv[1], "--version") == 0)
    {
      g_print ("vm-manager version %s\n", vmm_version);
      return 0;
    }
  for (guint i = 0; i < G_N_ELEMENTS (commands); i++)
    if (strcmp (argv[1], commands[i].name) == 0)
      return commands[i].run (argc - 1, argv + 1);
  problem = argv[1][0] == '-'
                ? g_strdup_printf (_ ("unknown flag: %s"), argv[1])
                : g_strdup_printf (_ ("unknown command \"%s\" for \"vm-manager\""), argv[1]);
  g_printerr ("Error: %s; %s\n", problem, _ ("see \"vm-manager --help\""));
  return 1;
}
