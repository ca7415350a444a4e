/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The catalogue: pairs, versions, policies, what is skipped. */

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <glib/gstdio.h>

#include "interfaces/vmm-error.h"
#include "test-await.h"
#include "vmm-images.h"
#include "vmm-json.h"
#include "vmm-log.h"

typedef struct
{
  char *directory;
  VmmImages *images;
} Fixture;

static void
set_up (Fixture *fixture, gconstpointer data)
{
  fixture->directory = test_make_directory ();
  fixture->images = vmm_images_new (fixture->directory);
}

static void
tear_down (Fixture *fixture, gconstpointer data)
{
  g_clear_object (&fixture->images);
  test_remove_directory (fixture->directory);
}

static void
write_file (Fixture *fixture, const char *name, const char *content)
{
  g_autofree char *path = g_build_filename (fixture->directory, name, NULL);
  g_autofree char *folder = g_path_get_dirname (path);

  g_assert_no_errno (g_mkdir_with_parents (folder, 0755));
  g_assert_true (g_file_set_contents (path, content, -1, NULL));
}

static void
add_image (Fixture *fixture, const char *stem)
{
  g_autofree char *uki = g_strconcat (stem, ".efi", NULL);
  g_autofree char *disk = g_strconcat (stem, ".raw", NULL);

  write_file (fixture, uki, "uki");
  write_file (fixture, disk, "disk");
}

static void
scan (Fixture *fixture)
{
  g_autoptr (GError) error = NULL;

  g_assert_true (vmm_images_scan (fixture->images, &error));
  g_assert_no_error (error);
}

static const VmmImage *
lookup (Fixture *fixture, const char *reference)
{
  g_autoptr (GError) error = NULL;
  const VmmImage *image = vmm_images_lookup (fixture->images, reference, &error);

  g_assert_no_error (error);
  g_assert_nonnull (image);
  return image;
}

/* References in the order of the list. */
static char *
listed (Fixture *fixture)
{
  g_autoptr (JsonNode) node = vmm_images_to_json (fixture->images);
  JsonArray *array = json_node_get_array (node);
  GString *text = g_string_new (NULL);

  for (guint i = 0; i < json_array_get_length (array); i++)
    {
      JsonObject *object = json_array_get_object_element (array, i);

      g_string_append_printf (text, "%s_%s ", json_object_get_string_member (object, "id"),
                              json_object_get_string_member (object, "version"));
    }
  g_assert_cmpuint (json_array_get_length (array), ==, vmm_images_get_n_images (fixture->images));
  return g_string_free (text, FALSE);
}

static void
test_version_order (void)
{
  static const struct
  {
    const char *low;
    const char *high;
  } cases[] = {
    { "0.9.0", "0.10.0" },
    { "0.9.0-rc1", "0.9.0" },
    { "0.9.0-rc1", "0.9.0-rc2" },
    { "0.9.0-rc1", "0.9.1-rc1" },
    { "1.0", "1.0.1" },
    { "1", "2" },
    { "9", "10" },
    { "1.2.3", "1.2.10" },
    { "1.35.9", "1.36.0" },
    { "99999999999999999999", "100000000000000000000" },
    { "1.a", "1.b" },
    { "1.9-x", "1.10" },
    { "1.9", "1.10-x" },
    { "", "1" },
    { "rc", "rc1" },
  };
  static const char *const equal[][2] = {
    { "1.0", "1.0.0" }, { "1", "1.0.0" }, { "01.2", "1.02" }, { "1.2-a", "1.2-a" },
    { "", "" },         { "", "0" },      { "1.", "1" },
  };

  for (guint i = 0; i < G_N_ELEMENTS (cases); i++)
    {
      g_test_message ("%s < %s", cases[i].low, cases[i].high);
      g_assert_cmpint (vmm_version_compare (cases[i].low, cases[i].high), <, 0);
      g_assert_cmpint (vmm_version_compare (cases[i].high, cases[i].low), >, 0);
    }
  for (guint i = 0; i < G_N_ELEMENTS (equal); i++)
    {
      g_assert_cmpint (vmm_version_compare (equal[i][0], equal[i][1]), ==, 0);
      g_assert_cmpint (vmm_version_compare (equal[i][1], equal[i][0]), ==, 0);
    }
}

static void
test_pairs (Fixture *fixture, gconstpointer data)
{
  g_autofree char *names = NULL;
  g_autofree char *uki = g_build_filename (fixture->directory, "my_base_0.1.0.efi", NULL);
  g_autofree char *folder = g_build_filename (fixture->directory, "dir_1.efi", NULL);
  g_autofree char *gone = g_build_filename (fixture->directory, "gone_1.efi", NULL);
  g_autofree char *pipe = g_build_filename (fixture->directory, "pipe_1.efi", NULL);
  const VmmImage *image;

  add_image (fixture, "my_base_0.1.0");
  add_image (fixture, "b_0.9.0");
  add_image (fixture, "b_0.10.0");
  add_image (fixture, "b_0.10.0-rc1");
  add_image (fixture, "a_1");
  /* None of these is an image. */
  add_image (fixture, "nounderscore");
  add_image (fixture, "_1.0");
  add_image (fixture, "noversion_");
  write_file (fixture, "lone_1.raw", "disk");
  write_file (fixture, "half_1.efi", "uki");
  write_file (fixture, "dir_1.raw", "disk");
  g_assert_no_errno (g_mkdir (folder, 0755));
  write_file (fixture, "gone_1.raw", "disk");
  g_assert_no_errno (symlink ("/nonexistent/gone_1.efi", gone));
  write_file (fixture, "pipe_1.raw", "disk");
  g_assert_no_errno (mkfifo (pipe, 0644));
  scan (fixture);

  names = listed (fixture);
  g_assert_cmpstr (names, ==, "a_1 b_0.10.0 b_0.10.0-rc1 b_0.9.0 my_base_0.1.0 ");
  image = lookup (fixture, "my_base");
  g_assert_cmpstr (image->id, ==, "my_base");
  g_assert_cmpstr (image->version, ==, "0.1.0");
  g_assert_cmpstr (image->reference, ==, "my_base_0.1.0");
  g_assert_cmpstr (image->uki, ==, uki);
  g_assert_true (g_str_has_suffix (image->disk, "/my_base_0.1.0.raw"));
  g_assert_null (image->sysupdate_dir);
  g_assert_null (image->policy);
  g_assert_cmpuint (g_strv_length (image->kubernetes_versions), ==, 0);
}

static void
test_lookup (Fixture *fixture, gconstpointer data)
{
  g_autofree char *none = g_strdup_printf ("not found: no images in %s", fixture->directory);
  g_autoptr (GError) error = NULL;

  scan (fixture);
  g_assert_null (vmm_images_lookup (fixture->images, "", &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_NOT_FOUND);
  g_assert_cmpstr (error->message, ==, none);
  g_clear_error (&error);

  add_image (fixture, "b_2.0");
  add_image (fixture, "a_2.0.0");
  add_image (fixture, "a_1.9");
  scan (fixture);
  g_assert_cmpstr (lookup (fixture, "a_1.9")->reference, ==, "a_1.9");
  g_assert_cmpstr (lookup (fixture, "a")->reference, ==, "a_2.0.0");
  /* The highest version of all, and of equal ones the first id. */
  g_assert_cmpstr (lookup (fixture, NULL)->reference, ==, "a_2.0.0");
  g_assert_cmpstr (lookup (fixture, "")->reference, ==, "a_2.0.0");
  g_assert_null (vmm_images_lookup (fixture->images, "a_3", &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_NOT_FOUND);
  g_assert_cmpstr (error->message, ==, "not found: image \"a_3\"");
}

static void
test_kubernetes (Fixture *fixture, gconstpointer data)
{
  static const char *const expected[]
      = { "1.36.4", "1.36.0", "1.36.0-rc1", "1.9.10", "1.9.2", NULL };
  const VmmImage *image;

  add_image (fixture, "a_1");
  write_file (fixture, "sysupdate/kubernetes/SHA256SUMS",
              "aa  kubernetes_1.9.2.raw\n"
              "bb *kubernetes_1.36.0.raw\r\n"
              "\n"
              "kubernetes_0.0.1.raw\n"
              "cc  something_else.raw\n"
              "cc  kubernetes_.raw\n"
              "cc  kubernetes_1.2.3.tar\n"
              "cc  kubernetes_../../etc.raw\n"
              "dd  kubernetes_1.36.0.raw\n"
              "ee\tx\tkubernetes_1.36.4.raw\n"
              "ff  kubernetes_1.36.0-rc1.raw  \n"
              "11  kubernetes_1.9.10.raw");
  scan (fixture);
  image = lookup (fixture, NULL);
  g_assert_true (g_strv_equal ((const char *const *) image->kubernetes_versions, expected));
  g_assert_true (g_str_has_suffix (image->sysupdate_dir, "/sysupdate"));

  /* One that cannot be used is like none. */
  write_file (fixture, "sysupdate/kubernetes/SHA256SUMS", "aa  kubernetes_\377.raw\n");
  scan (fixture);
  g_assert_cmpuint (g_strv_length (lookup (fixture, NULL)->kubernetes_versions), ==, 0);
}

static const char *
policy_of (Fixture *fixture, const char *reference)
{
  scan (fixture);
  return lookup (fixture, reference)->policy;
}

static void
test_policy (Fixture *fixture, gconstpointer data)
{
  static const char shared_for_all[] = "{\"pcr11\": {\"a\": \"b\"}}";
  static const char shared_for_one[] = "{\"image_id\": \"a\", \"image_version\": \"1\"}";
  static const char own[] = "{ \"own\" :\n 1.50 }\n";

  add_image (fixture, "a_1");
  add_image (fixture, "b_1");
  g_assert_null (policy_of (fixture, "a"));

  write_file (fixture, "policy.json", shared_for_all);
  g_assert_cmpstr (policy_of (fixture, "a"), ==, shared_for_all);
  g_assert_cmpstr (policy_of (fixture, "b"), ==, shared_for_all);
  write_file (fixture, "policy.json", "{\"image_id\": \"\", \"image_version\": \"\"}");
  g_assert_nonnull (policy_of (fixture, "b"));
  write_file (fixture, "policy.json", shared_for_one);
  g_assert_cmpstr (policy_of (fixture, "a"), ==, shared_for_one);
  g_assert_null (policy_of (fixture, "b"));
  write_file (fixture, "policy.json", "{\"image_id\": \"a\", \"image_version\": \"2\"}");
  g_assert_null (policy_of (fixture, "a"));
  write_file (fixture, "policy.json", "{\"image_id\": 1}");
  g_assert_null (policy_of (fixture, "a"));
  write_file (fixture, "policy.json", "[]");
  g_assert_null (policy_of (fixture, "a"));
  write_file (fixture, "policy.json", "");
  g_assert_null (policy_of (fixture, "a"));

  /* Its own wins, whatever it says it is for, and stays as it is; a broken one does not. */
  write_file (fixture, "policy.json", shared_for_one);
  write_file (fixture, "a_1.policy.json", own);
  g_assert_cmpstr (policy_of (fixture, "a"), ==, own);
  write_file (fixture, "a_1.policy.json", "{\"own\": ");
  g_assert_cmpstr (policy_of (fixture, "a"), ==, shared_for_one);
}

static void
test_large_policy (Fixture *fixture, gconstpointer data)
{
  g_autofree char *space = g_strnfill (1024 * 1024, ' ');
  g_autofree char *large = g_strconcat ("{}", space, NULL);

  add_image (fixture, "a_1");
  write_file (fixture, "a_1.policy.json", large);
  g_assert_null (policy_of (fixture, "a"));
  large[1024 * 1024] = '\0';
  write_file (fixture, "a_1.policy.json", large);
  g_assert_nonnull (policy_of (fixture, "a"));
}

/* What is behind a zero byte would count for nothing. */
static void
test_zero_byte (Fixture *fixture, gconstpointer data)
{
  g_autofree char *path = g_build_filename (fixture->directory, "a_1.policy.json", NULL);

  add_image (fixture, "a_1");
  g_assert_true (g_file_set_contents (path, "{}\0{}", 5, NULL));
  g_assert_null (policy_of (fixture, "a"));
}

/* A mounted ConfigMap consists of links. */
static void
test_links (Fixture *fixture, gconstpointer data)
{
  g_autofree char *link = g_build_filename (fixture->directory, "policy.json", NULL);
  g_autofree char *fifo = g_build_filename (fixture->directory, "a_1.policy.json", NULL);

  add_image (fixture, "a_1");
  write_file (fixture, "..data/policy.json", "{\"linked\": true}");
  g_assert_no_errno (symlink ("..data/policy.json", link));
  g_assert_no_errno (mkfifo (fifo, 0600)); /* must not block */
  g_assert_cmpstr (policy_of (fixture, "a"), ==, "{\"linked\": true}");
}

static void
test_json (Fixture *fixture, gconstpointer data)
{
  g_autofree char *expected = NULL;
  g_autofree char *text = NULL;
  g_autofree char *bare_text = NULL;
  g_autofree char *bare_expected = NULL;
  g_autoptr (JsonNode) node = NULL;
  g_autoptr (JsonNode) bare = NULL;
  gsize length;

  add_image (fixture, "a_1");
  scan (fixture);
  bare = vmm_image_to_json (lookup (fixture, "a"));
  bare_text = vmm_json_to_text (bare, &length);
  bare_expected
      = g_strdup_printf ("{\n  \"id\": \"a\",\n  \"version\": \"1\",\n  \"uki\": \"%s/a_1.efi\",\n"
                         "  \"disk\": \"%s/a_1.raw\"\n}\n",
                         fixture->directory, fixture->directory);
  g_assert_cmpstr (bare_text, ==, bare_expected);

  write_file (fixture, "policy.json", "{\"z\":[1,2.5,null],\"a\":{\"b\":\"c\"}}");
  write_file (fixture, "sysupdate/kubernetes/SHA256SUMS",
              "aa  kubernetes_1.0.0.raw\nbb  kubernetes_1.1.0.raw\n");
  scan (fixture);
  node = vmm_image_to_json (lookup (fixture, "a"));
  text = vmm_json_to_line (node, &length);
  expected = g_strdup_printf (
      "{\"id\":\"a\",\"version\":\"1\",\"uki\":\"%s/a_1.efi\",\"disk\":\"%s/a_1.raw\","
      "\"sysupdateDir\":\"%s/sysupdate\",\"kubernetesVersions\":[\"1.1.0\",\"1.0.0\"],"
      "\"policy\":{\"z\":[1,2.5,null],\"a\":{\"b\":\"c\"}}}",
      fixture->directory, fixture->directory, fixture->directory);
  g_assert_cmpstr (text, ==, expected);
}

static void
test_rescan (Fixture *fixture, gconstpointer data)
{
  g_autofree char *moved = g_strconcat (fixture->directory, ".moved", NULL);
  g_autofree char *uki = g_build_filename (fixture->directory, "a_1.efi", NULL);
  g_autoptr (GError) error = NULL;

  add_image (fixture, "a_1");
  scan (fixture);
  add_image (fixture, "a_2");
  g_assert_cmpstr (lookup (fixture, NULL)->version, ==, "1");
  scan (fixture);
  g_assert_cmpstr (lookup (fixture, NULL)->version, ==, "2");

  /* A scan that fails leaves the list. */
  g_assert_no_errno (g_rename (fixture->directory, moved));
  g_assert_false (vmm_images_scan (fixture->images, &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_INTERNAL);
  g_assert_nonnull (strstr (error->message, fixture->directory));
  g_assert_cmpuint (vmm_images_get_n_images (fixture->images), ==, 2);
  g_assert_no_errno (g_rename (moved, fixture->directory));
  g_assert_no_errno (g_unlink (uki));
  scan (fixture);
  g_assert_cmpuint (vmm_images_get_n_images (fixture->images), ==, 1);
}

/* Links to one pair: files of their own would be written to disk one by one. */
static void
test_many (Fixture *fixture, gconstpointer data)
{
  static const char *const suffixes[] = { "efi", "raw" };

  add_image (fixture, "many_0");
  for (guint i = 1; i < 4200; i++)
    for (guint j = 0; j < G_N_ELEMENTS (suffixes); j++)
      {
        g_autofree char *from = g_strdup_printf ("%s/many_0.%s", fixture->directory, suffixes[j]);
        g_autofree char *to = g_strdup_printf ("%s/many_%u.%s", fixture->directory, i, suffixes[j]);

        g_assert_no_errno (link (from, to));
      }
  scan (fixture);
  g_assert_cmpuint (vmm_images_get_n_images (fixture->images), ==, 4096);
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, G_TEST_OPTION_ISOLATE_DIRS, NULL);
  vmm_log_init (FALSE);

#define ADD(path, function) g_test_add ("/images/" path, Fixture, NULL, set_up, function, tear_down)
  g_test_add_func ("/images/version-order", test_version_order);
  ADD ("pairs", test_pairs);
  ADD ("lookup", test_lookup);
  ADD ("kubernetes", test_kubernetes);
  ADD ("policy", test_policy);
  ADD ("large-policy", test_large_policy);
  ADD ("zero-byte", test_zero_byte);
  ADD ("links", test_links);
  ADD ("json", test_json);
  ADD ("rescan", test_rescan);
  ADD ("many", test_many);
#undef ADD
  return g_test_run ();
}
