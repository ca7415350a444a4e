/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The key pair of a VM: its structure byte by byte, and what ssh-keygen makes of it. */
#include <string.h>

#include "interfaces/vmm-error.h"
#include "test-await.h"
#include "vmm-ssh-key.h"

#define COMMENT "vm-manager@1a2b3c4d"

typedef struct
{
  const guint8 *data;
  gsize left;
} Reader;

static guint32
read_uint32 (Reader *reader)
{
  guint32 value;

  g_assert_cmpuint (reader->left, >=, sizeof value);
  memcpy (&value, reader->data, sizeof value);
  reader->data += sizeof value;
  reader->left -= sizeof value;
  return GUINT32_FROM_BE (value);
}

static Reader
read_string (Reader *reader)
{
  gsize size = read_uint32 (reader);
  Reader string = { reader->data, size };

  g_assert_cmpuint (reader->left, >=, size);
  reader->data += size;
  reader->left -= size;
  return string;
}

static void
assert_text (Reader string, const char *text)
{
  g_assert_cmpmem (string.data, string.left, text, strlen (text));
}

static guint8 *
decode_pem (const char *pem, gsize *size)
{
  static const char begin[] = "-----BEGIN OPENSSH PRIVATE KEY-----\n";
  static const char end[] = "\n-----END OPENSSH PRIVATE KEY-----\n";
  g_autofree char *body = NULL;

  g_assert_true (g_str_has_prefix (pem, begin));
  g_assert_true (g_str_has_suffix (pem, end));
  body = g_strndup (pem + strlen (begin), strlen (pem) - strlen (begin) - strlen (end));
  return g_base64_decode (body, size);
}

static void
check_private (Reader section, Reader public)
{
  guint32 first = read_uint32 (&section);
  Reader key;
  Reader pair;

  g_assert_cmpuint (section.left % 8, ==, 4);
  g_assert_cmpuint (read_uint32 (&section), ==, first);
  assert_text (read_string (&section), "ssh-ed25519");
  key = read_string (&section);
  g_assert_cmpmem (key.data, key.left, public.data, public.left);
  pair = read_string (&section);
  g_assert_cmpuint (pair.left, ==, 64);
  g_assert_cmpmem (pair.data + 32, 32, public.data, 32);
  assert_text (read_string (&section), COMMENT);
  g_assert_cmpuint (section.left, <, 8);
  for (guint8 i = 0; i < section.left; i++)
    g_assert_cmpuint (section.data[i], ==, i + 1);
}

static void
test_structure (void)
{
  g_autofree char *pem = NULL;
  g_autofree char *line = NULL;
  g_autofree guint8 *data = NULL;
  g_autofree guint8 *blob = NULL;
  g_auto (GStrv) words = NULL;
  g_autoptr (GError) error = NULL;
  gsize blob_size;
  Reader reader = { NULL, 0 };
  Reader public;

  g_assert_true (vmm_ssh_key_generate (COMMENT, &pem, &line, &error));
  g_assert_no_error (error);

  words = g_strsplit (line, " ", -1);
  g_assert_cmpuint (g_strv_length (words), ==, 3);
  g_assert_cmpstr (words[0], ==, "ssh-ed25519");
  g_assert_cmpstr (words[2], ==, COMMENT);
  blob = g_base64_decode (words[1], &blob_size);

  data = decode_pem (pem, &reader.left);
  reader.data = data;
  g_assert_cmpmem (reader.data, 15, "openssh-key-v1", 15);
  reader.data += 15;
  reader.left -= 15;
  assert_text (read_string (&reader), "none");
  assert_text (read_string (&reader), "none");
  assert_text (read_string (&reader), "");
  g_assert_cmpuint (read_uint32 (&reader), ==, 1);
  public = read_string (&reader);
  g_assert_cmpmem (public.data, public.left, blob, blob_size);
  assert_text (read_string (&public), "ssh-ed25519");
  public = read_string (&public);
  g_assert_cmpuint (public.left, ==, 32);
  check_private (read_string (&reader), public);
  g_assert_cmpuint (reader.left, ==, 0);
}

static void
test_unlike (void)
{
  g_autofree char *first_pem = NULL;
  g_autofree char *first_line = NULL;
  g_autofree char *second_pem = NULL;
  g_autofree char *second_line = NULL;

  g_assert_true (vmm_ssh_key_generate (COMMENT, &first_pem, &first_line, NULL));
  g_assert_true (vmm_ssh_key_generate (COMMENT, &second_pem, &second_line, NULL));
  g_assert_cmpstr (first_pem, !=, second_pem);
  g_assert_cmpstr (first_line, !=, second_line);
}

static void
test_keygen (void)
{
  g_autofree char *keygen = g_find_program_in_path ("ssh-keygen");
  g_autofree char *pem = NULL;
  g_autofree char *line = NULL;
  g_autofree char *path = NULL;
  g_autofree char *output = NULL;
  g_autofree char *expected = NULL;
  g_autoptr (GSubprocess) child = NULL;
  g_autoptr (GAsyncResult) result = NULL;
  g_autoptr (GError) error = NULL;
  TestAwait await = TEST_AWAIT_INIT;
  char *directory;

  if (keygen == NULL)
    {
      g_test_skip ("ssh-keygen is not installed");
      return;
    }
  directory = test_make_directory ();
  path = g_build_filename (directory, "ssh_key", NULL);
  g_assert_true (vmm_ssh_key_generate (COMMENT, &pem, &line, NULL));
  g_assert_true (g_file_set_contents_full (path, pem, -1, G_FILE_SET_CONTENTS_NONE, 0600, &error));
  child = g_subprocess_new (G_SUBPROCESS_FLAGS_STDOUT_PIPE, &error, keygen, "-y", "-f", path, NULL);
  g_assert_no_error (error);
  g_subprocess_communicate_utf8_async (child, NULL, NULL, test_await_cb, &await);
  result = test_await (&await);
  g_assert_true (g_subprocess_communicate_utf8_finish (child, result, &output, NULL, &error));
  g_assert_true (g_subprocess_get_successful (child));
  expected = g_strconcat (line, "\n", NULL);
  g_assert_cmpstr (output, ==, expected);
  test_remove_directory (directory);
}

static void
test_bad_comment (void)
{
  g_autofree char *lengthy = g_strnfill (257, 'a');
  const char *comments[] = { "", "two\nlines", "tab\there", "\xc3\xa9", "del\x7f", lengthy };

  for (guint i = 0; i < G_N_ELEMENTS (comments); i++)
    {
      g_autofree char *pem = NULL;
      g_autofree char *line = NULL;
      g_autoptr (GError) error = NULL;

      g_assert_false (vmm_ssh_key_generate (comments[i], &pem, &line, &error));
      g_assert_error (error, VMM_ERROR, VMM_ERROR_INVALID_REQUEST);
      g_assert_null (pem);
      g_assert_null (line);
    }
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, G_TEST_OPTION_ISOLATE_DIRS, NULL);
  g_test_add_func ("/ssh-key/structure", test_structure);
  g_test_add_func ("/ssh-key/unlike", test_unlike);
  g_test_add_func ("/ssh-key/keygen", test_keygen);
  g_test_add_func ("/ssh-key/bad-comment", test_bad_comment);
  return g_test_run ();
}
