/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The files of an image folder that somebody wrote: the manifest of the Kubernetes versions and a
 * policy. Input: the manifest, a zero byte, the policy. Whatever they are, the image stays, its
 * versions are names in order, and a policy is passed on whole or not at all. */

#include "vmm-images.h"

#include <string.h>

#include <glib/gstdio.h>

#include "fuzz.h"
#include "test-await.h"
#include "vmm-json.h"

static char *folder, *manifest, *policy;
static VmmImages *images;

static void
write_file (const char *path, const void *content, gsize length)
{
  FILE *file = g_fopen (path, "we");

  g_assert_nonnull (file);
  g_assert_cmpuint (fwrite (content, 1, length, file), ==, length);
  g_assert_cmpint (fclose (file), ==, 0);
}

int
LLVMFuzzerInitialize (int *argc, char ***argv)
{
  g_autofree char *updates = NULL;

  folder = test_make_directory ();
  updates = g_build_filename (folder, "sysupdate", "kubernetes", NULL);
  g_assert_cmpint (g_mkdir_with_parents (updates, 0700), ==, 0);
  manifest = g_build_filename (updates, "SHA256SUMS", NULL);
  policy = g_build_filename (folder, "policy.json", NULL);
  for (guint i = 0; i < 2; i++)
    {
      g_autofree char *path = g_build_filename (folder, i == 0 ? "a_1.efi" : "a_1.raw", NULL);

      write_file (path, "x", 1);
    }
  images = vmm_images_new (folder);
  return 0;
}

static void
check_versions (GStrv versions)
{
  for (guint i = 0; versions[i] != NULL; i++)
    {
      g_assert_true (versions[i][0] != '\0' && strchr (versions[i], '/') == NULL);
      g_assert_true (g_utf8_validate (versions[i], -1, NULL));
      for (guint k = 0; k < i && i < 16; k++)
        {
          g_assert_cmpint (vmm_version_compare (versions[k], versions[i]), >=, 0);
          g_assert_cmpint (vmm_version_compare (versions[i], versions[k]), <=, 0);
          g_assert_cmpstr (versions[k], !=, versions[i]);
        }
    }
}

int
LLVMFuzzerTestOneInput (const uint8_t *data, size_t size)
{
  const uint8_t *end = memchr (data, 0, size);
  gsize length = end != NULL ? (gsize) (end - data) : size;
  gsize rest = end != NULL ? size - length - 1 : 0;
  g_autoptr (GError) error = NULL;
  const VmmImage *image;
  g_autoptr (JsonNode) shown = NULL;
  g_autofree char *text = NULL;

  write_file (manifest, data, length);
  write_file (policy, end != NULL ? end + 1 : data, rest);
  g_assert_true (vmm_images_scan (images, &error));
  g_assert_no_error (error);
  g_assert_cmpuint (vmm_images_get_n_images (images), ==, 1);
  image = vmm_images_lookup (images, "a_1", &error);
  g_assert_no_error (error);
  check_versions (image->kubernetes_versions);
  if (image->policy != NULL)
    {
      g_assert_cmpuint (strlen (image->policy), ==, rest);
      g_assert_cmpmem (image->policy, rest, end + 1, rest);
    }
  shown = vmm_images_to_json (images);
  text = vmm_json_to_text (shown, NULL);
  g_assert_true (g_utf8_validate (text, -1, NULL));
  return 0;
}

void
fuzz_finish (void)
{
  g_clear_object (&images);
  g_free (manifest);
  g_free (policy);
  test_remove_directory (folder);
}
