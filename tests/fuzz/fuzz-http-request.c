/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The reader of requests against anything: a head that it takes is written so that it reads the same
 * again, and a body is the same in one piece and byte by byte. */

#include <string.h>

#include "fuzz.h"
#include "interfaces/vmm-error.h"
#include "vmm-http-body.h"
#include "vmm-http-head.h"
#include "vmm-http-peer.h"

#define LIMIT 4096

static void
check_head (VmmHttpHead *head)
{
  g_autoptr (GBytes) bytes = vmm_http_head_to_bytes (head);
  g_autoptr (VmmHttpHead) again = NULL;
  g_autoptr (GError) error = NULL;
  g_autofree char *problem = vmm_http_check_origin (TRUE, head->host, head->origin);
  gsize length, scanned = 0;
  const char *text = g_bytes_get_data (bytes, &length);

  g_assert_true (problem == NULL || g_utf8_validate (problem, -1, NULL));
  g_assert_true (head->target[0] == '/');
  g_assert_false (head->chunked && head->content_length >= 0);
  if (length > VMM_HTTP_MAX_HEAD)
    return;
  g_assert_cmpint (vmm_http_head_find_end (text, length, &scanned, &error), ==, (gssize) length);
  again = vmm_http_head_parse (text, length, &error);
  /* What is added may be one line too many. */
  if (again == NULL)
    {
      g_assert_nonnull (strstr (error->message, "header lines"));
      return;
    }
  g_assert_cmpstr (again->method, ==, head->method);
  g_assert_cmpstr (again->target, ==, head->target);
  g_assert_cmpstr (again->host, ==, head->host != NULL ? head->host : "localhost");
  g_assert_cmpstr (again->origin, ==, head->origin);
  g_assert_cmpstr (again->fields->str, ==, head->fields->str);
  g_assert_cmpint (again->content_length, ==, -1);
  g_assert_false (again->chunked || again->keep_alive);
}

static VmmHttpBodyState
feed (VmmHttpBody *body, const char *text, gsize length, gsize step, gsize *total)
{
  VmmHttpBodyState state = VMM_HTTP_BODY_MORE;

  *total = 0;
  while (state == VMM_HTTP_BODY_MORE && *total < length)
    {
      gsize used;

      state = vmm_http_body_feed (body, text + *total, MIN (step, length - *total), &used);
      *total += used;
      g_assert_true (used > 0 || state != VMM_HTTP_BODY_MORE);
    }
  return state;
}

static void
check_body (const char *text, gsize length, gint64 content_length)
{
  g_autoptr (VmmHttpBody) whole = vmm_http_body_new (content_length, LIMIT);
  g_autoptr (VmmHttpBody) slow = vmm_http_body_new (content_length, LIMIT);
  g_autoptr (GBytes) one = NULL;
  g_autoptr (GBytes) two = NULL;
  gsize used_at_once, used_slowly;
  VmmHttpBodyState state = feed (whole, text, length, MAX (length, 1), &used_at_once);

  g_assert_cmpint (feed (slow, text, length, 1, &used_slowly), ==, state);
  one = vmm_http_body_take (whole);
  two = vmm_http_body_take (slow);
  g_assert_cmpuint (g_bytes_get_size (one), <=, LIMIT);
  g_assert_true (g_bytes_equal (one, two));
  if (state == VMM_HTTP_BODY_DONE)
    g_assert_cmpuint (used_at_once, ==, used_slowly);
}

int
LLVMFuzzerTestOneInput (const uint8_t *data, size_t size)
{
  g_autoptr (GError) error = NULL;
  /* Exactly as large as the text, so that a sanitizer sees a read behind it. */
  g_autofree char *text = g_malloc (MAX (size, 1));
  g_autoptr (VmmHttpHead) head = NULL;
  gsize scanned = 0;
  gssize length;

  if (size > 0)
    memcpy (text, data, size);
  length = vmm_http_head_find_end (text, size, &scanned, &error);
  if (length > 0)
    head = vmm_http_head_parse (text, length, &error);
  if (head != NULL)
    {
      check_head (head);
      check_body (text + length, size - length,
                  head->chunked ? -1 : MIN (MAX (head->content_length, 0), LIMIT));
    }
  else if (length != 0)
    {
      g_assert_error (error, VMM_ERROR, VMM_ERROR_INVALID_REQUEST);
      g_assert_true (g_utf8_validate (error->message, -1, NULL));
    }
  check_body (text, size, -1);
  return 0;
}
