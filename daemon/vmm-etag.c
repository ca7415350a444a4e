/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Entity tags (RFC 9110 8.8.3).
 *
 * The list of all VMs is asked for again and again and seldom changes. Its tag must cost less than
 * writing the list does, so it is no cryptographic hash: two lanes of 64 x 64 -> 128 bit products,
 * with secrets of this process so that a guest can't prepare texts of one tag. */

#include "config.h"

#include "vmm-etag.h"

#include <string.h>

#include "vmm-random.h"

typedef unsigned __int128 Product;

static const guint64 *
get_secrets (void)
{
  static guint64 secrets[4];
  static gsize once = 0;

  if (g_once_init_enter (&once))
    {
      if (!vmm_random_fill (secrets, sizeof secrets, NULL))
        for (guint i = 0; i < G_N_ELEMENTS (secrets); i++)
          secrets[i] = ((guint64) g_random_int () << 32) | g_random_int ();
      g_once_init_leave (&once, 1);
    }
  return secrets;
}

static guint64
mix (guint64 a, guint64 b)
{
  Product product = (Product) a * b;

  return (guint64) product ^ (guint64) (product >> 64);
}

char *
vmm_etag_new (GBytes *body)
{
  const guint64 *secrets = get_secrets ();
  gsize length;
  const guint8 *data = g_bytes_get_data (body, &length);
  guint64 left = secrets[0] ^ length;
  guint64 right = secrets[1];

  for (gsize i = 0; i < length; i += 16)
    {
      guint64 words[2] = { 0, 0 };

      memcpy (words, data + i, MIN (length - i, sizeof words));
      left = mix (words[0] ^ left, words[1] ^ secrets[2]);
      right = mix (words[0] ^ secrets[3], words[1] ^ right);
    }
  return g_strdup_printf ("\"%016" G_GINT64_MODIFIER "x%016" G_GINT64_MODIFIER "x\"",
                          mix (left ^ secrets[3], secrets[0]), mix (right ^ secrets[2], secrets[1]));
}

gboolean
vmm_etag_matches (const char *if_none_match, const char *etag)
{
  g_auto (GStrv) tags = NULL;

  if (if_none_match == NULL)
    return FALSE;
  tags = g_strsplit (if_none_match, ",", 64);
  for (guint i = 0; tags[i] != NULL; i++)
    {
      const char *tag = g_strstrip (tags[i]);

      if (g_str_has_prefix (tag, "W/"))
        tag += strlen ("W/");
      if (strcmp (tag, "*") == 0 || strcmp (tag, etag) == 0)
        return TRUE;
    }
  return FALSE;
}
