/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The order of versions in the catalogue.
 *
 * Components between dots are compared one by one; one that is missing is empty. Numbers compare as
 * numbers, of any length. A number against something that only begins with digits compares those
 * digits, and the one with less behind them is newer, so that 0.9.0 is newer than 0.9.0-rc1 and 1.0
 * equals 1.0.0. Everything else is the order of bytes.
 */

#include "config.h"

#include <string.h>

#include "vmm-images.h"

static gsize
count_digits (const char *text)
{
  return strspn (text, "0123456789");
}

/* Numbers of any length; none is zero. */
static int
compare_digits (const char *a, gsize n_a, const char *b, gsize n_b)
{
  int order;

  for (; n_a > 0 && *a == '0'; n_a--)
    a++;
  for (; n_b > 0 && *b == '0'; n_b--)
    b++;
  if (n_a != n_b)
    return n_a < n_b ? -1 : 1;
  order = strncmp (a, b, n_a);
  return (order > 0) - (order < 0);
}

static int
compare_components (const char *a, const char *b)
{
  const gsize digits_a = count_digits (a), digits_b = count_digits (b);
  const gsize rest_a = strlen (a) - digits_a, rest_b = strlen (b) - digits_b;
  const gboolean number_a = digits_a > 0 && rest_a == 0;
  const gboolean number_b = digits_b > 0 && rest_b == 0;
  int order;

  if (!number_a && !number_b)
    {
      order = strcmp (a, b);
      return (order > 0) - (order < 0);
    }

  order = compare_digits (a, digits_a, b, digits_b);
  if (order != 0 || rest_a == rest_b)
    return order;
  return rest_a < rest_b ? 1 : -1; /* 0 is newer than 0-rc1 */
}

int
vmm_version_compare (const char *a, const char *b)
{
  g_auto (GStrv) parts_a = NULL;
  g_auto (GStrv) parts_b = NULL;
  guint n_a, n_b;

  if (strcmp (a, b) == 0)
    return 0;

  parts_a = g_strsplit (a, ".", -1);
  parts_b = g_strsplit (b, ".", -1);
  n_a = g_strv_length (parts_a);
  n_b = g_strv_length (parts_b);
  for (guint i = 0; i < MAX (n_a, n_b); i++)
    {
      int order = compare_components (i < n_a ? parts_a[i] : "", i < n_b ? parts_b[i] : "");

      if (order != 0)
        return order;
    }
  return 0;
}
