/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What the mini guest needs and a shell cannot do. */

#include "mini-helper.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const struct
{
  const char *name;
  int (*run) (int argc, char **argv);
} commands[] = {
  { "gpt", mini_gpt },
  { "notify", mini_notify },
  { "pcr-extend", mini_pcr_extend },
  { "pcr-read", mini_pcr_read },
};

int
mini_fail (const char *what)
{
  fprintf (stderr, "mini-helper: %s: %s\n", what, strerror (errno));
  return 1;
}

int
mini_usage (const char *text)
{
  fprintf (stderr, "Usage: mini-helper %s\n", text);
  return 2;
}

int
mini_write_all (int fd, const void *data, size_t size)
{
  const char *bytes = data;

  while (size > 0)
    {
      ssize_t n = write (fd, bytes, size);

      if (n < 0 && errno == EINTR)
        continue;
      if (n <= 0)
        return -1;
      bytes += n;
      size -= (size_t) n;
    }
  return 0;
}

int
main (int argc, char **argv)
{
  for (size_t i = 0; argc > 1 && i < sizeof commands / sizeof *commands; i++)
    if (strcmp (argv[1], commands[i].name) == 0)
      return commands[i].run (argc - 2, argv + 2);
  return mini_usage ("gpt|notify|pcr-extend|pcr-read ARGUMENTS");
}
