/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Reads what has to be known of a guest's quote request: the stage and the nonce.
 *
 * The text comes from a guest that may be hostile. It is walked once from front to back, without
 * recursion and without a tree: containers that are open are one bit each in a word, so that
 * neither depth nor size can cost more than the walk. All of it has to be well-formed JSON, though,
 * so that the same evidence is well-formed for an attestor that looks at more of it.
 */

#include "vmm-evidence.h"

#include <string.h>

#define MAX_DEPTH 32
/* The longest value that is taken over; a nonce has 64 characters. */
#define MAX_VALUE 256

/* What may come next. */
typedef enum
{
  EXPECT_VALUE,
  EXPECT_VALUE_OR_END, /* behind [ */
  EXPECT_KEY,          /* behind , in an object */
  EXPECT_KEY_OR_END,   /* behind { */
  EXPECT_COMMA_OR_END,
  EXPECT_NOTHING,
} Expectation;

typedef struct
{
  const char *at;
  const char *end;
  guint depth;
  guint32 objects; /* one bit per open container: whether it is an object */
  Expectation expect;
  char **member; /* where the value of the member of the outer object goes */
  char **stage;
  char **nonce;
  const char *wrong;
} Reader;

static gboolean
complain (Reader *reader, const char *wrong)
{
  if (reader->wrong == NULL)
    reader->wrong = wrong;
  return FALSE;
}

static gboolean
next_is (Reader *reader, const char *set)
{
  return reader->at < reader->end && *reader->at != '\0' && strchr (set, *reader->at) != NULL;
}

static void
skip_space (Reader *reader)
{
  while (next_is (reader, " \t\r\n"))
    reader->at++;
}

static gboolean
skip_escape (Reader *reader)
{
  if (reader->at == reader->end)
    return complain (reader, "a string does not end");
  if (next_is (reader, "\"\\/bfnrt"))
    {
      reader->at++;
      return TRUE;
    }
  if (*reader->at != 'u')
    return complain (reader, "an escape is unknown");

  reader->at++;
  for (guint i = 0; i < 4; i++, reader->at++)
    if (reader->at == reader->end || !g_ascii_isxdigit (*reader->at))
      return complain (reader, "an escape is unknown");
  return TRUE;
}

/* Leaves the text between the quotes, escapes as they are: none of the names and values that are
 * looked at has any. */
static gboolean
read_string (Reader *reader, const char **start, gsize *length)
{
  *start = ++reader->at;
  while (reader->at < reader->end && *reader->at != '"')
    {
      if ((guchar) *reader->at < 0x20)
        return complain (reader, "a string holds a control character");
      if (*reader->at++ == '\\' && !skip_escape (reader))
        return FALSE;
    }
  if (reader->at == reader->end)
    return complain (reader, "a string does not end");

  *length = (gsize) (reader->at - *start);
  reader->at++;
  if (g_utf8_validate_len (*start, *length, NULL))
    return TRUE;
  return complain (reader, "a string is not UTF-8");
}

static gboolean
skip_digits (Reader *reader)
{
  const char *start = reader->at;

  while (reader->at < reader->end && g_ascii_isdigit (*reader->at))
    reader->at++;
  return reader->at > start || complain (reader, "a number is malformed");
}

static gboolean
skip_number (Reader *reader)
{
  if (next_is (reader, "-"))
    reader->at++;
  if (next_is (reader, "0"))
    reader->at++;
  else if (!skip_digits (reader))
    return FALSE;
  if (next_is (reader, "."))
    {
      reader->at++;
      if (!skip_digits (reader))
        return FALSE;
    }
  if (!next_is (reader, "eE"))
    return TRUE;

  reader->at++;
  if (next_is (reader, "+-"))
    reader->at++;
  return skip_digits (reader);
}

static gboolean
skip_word (Reader *reader)
{
  static const char *const words[] = { "true", "false", "null" };

  for (guint i = 0; i < G_N_ELEMENTS (words); i++)
    {
      gsize length = strlen (words[i]);

      if ((gsize) (reader->end - reader->at) >= length
          && memcmp (reader->at, words[i], length) == 0)
        {
          reader->at += length;
          return TRUE;
        }
    }
  return complain (reader, "a value is malformed");
}

static gboolean
is_object (Reader *reader)
{
  return (reader->objects >> (reader->depth - 1) & 1) != 0;
}

static void
after_value (Reader *reader)
{
  reader->member = NULL;
  reader->expect = reader->depth == 0 ? EXPECT_NOTHING : EXPECT_COMMA_OR_END;
}

static gboolean
open_container (Reader *reader)
{
  gboolean object = *reader->at++ == '{';

  if (reader->member != NULL)
    return complain (reader, "stage and nonce must be strings");
  if (reader->depth == MAX_DEPTH)
    return complain (reader, "it is nested too deeply");

  reader->objects &= ~(1u << reader->depth);
  reader->objects |= (guint32) object << reader->depth;
  reader->depth++;
  reader->expect = object ? EXPECT_KEY_OR_END : EXPECT_VALUE_OR_END;
  return TRUE;
}

static gboolean
close_container (Reader *reader)
{
  if (*reader->at++ != (is_object (reader) ? '}' : ']'))
    return complain (reader, "brackets do not match");

  reader->depth--;
  after_value (reader);
  return TRUE;
}

static gboolean
read_string_value (Reader *reader)
{
  const char *start;
  gsize length;

  if (!read_string (reader, &start, &length))
    return FALSE;
  if (reader->member != NULL && length > MAX_VALUE)
    return complain (reader, "stage or nonce is too long");
  if (reader->member != NULL)
    *reader->member = g_strndup (start, length);
  after_value (reader);
  return TRUE;
}

static gboolean
read_value (Reader *reader)
{
  gboolean good;

  if (next_is (reader, "{["))
    return open_container (reader);
  if (next_is (reader, "\""))
    return read_string_value (reader);
  if (reader->member != NULL)
    return complain (reader, "stage and nonce must be strings");

  good = next_is (reader, "-0123456789") ? skip_number (reader) : skip_word (reader);
  after_value (reader);
  return good;
}

static gboolean
read_key (Reader *reader)
{
  const char *start;
  gsize length;

  if (!next_is (reader, "\""))
    return complain (reader, "a member has no name");
  if (!read_string (reader, &start, &length))
    return FALSE;
  skip_space (reader);
  if (!next_is (reader, ":"))
    return complain (reader, "a member has no value");
  reader->at++;

  if (reader->depth == 1 && length == 5 && memcmp (start, "stage", 5) == 0)
    reader->member = reader->stage;
  else if (reader->depth == 1 && length == 5 && memcmp (start, "nonce", 5) == 0)
    reader->member = reader->nonce;
  if (reader->member != NULL && *reader->member != NULL)
    return complain (reader, "stage or nonce is given twice");
  reader->expect = EXPECT_VALUE;
  return TRUE;
}

static gboolean
read_next (Reader *reader)
{
  switch (reader->expect)
    {
    case EXPECT_VALUE:
      return read_value (reader);
    case EXPECT_VALUE_OR_END:
      return next_is (reader, "]") ? close_container (reader) : read_value (reader);
    case EXPECT_KEY:
      return read_key (reader);
    case EXPECT_KEY_OR_END:
      return next_is (reader, "}") ? close_container (reader) : read_key (reader);
    case EXPECT_COMMA_OR_END:
      if (next_is (reader, "}]"))
        return close_container (reader);
      if (!next_is (reader, ","))
        return complain (reader, "a comma is missing");
      reader->at++;
      reader->expect = is_object (reader) ? EXPECT_KEY : EXPECT_VALUE;
      return TRUE;
    case EXPECT_NOTHING:
    default:
      return complain (reader, "something follows the object");
    }
}

gboolean
vmm_evidence_read (const char *text, gsize length, char **stage, char **nonce, char **reason)
{
  g_autofree char *found_stage = NULL;
  g_autofree char *found_nonce = NULL;
  Reader reader
      = { .at = text, .end = text + length, .stage = &found_stage, .nonce = &found_nonce };
  gboolean good = length <= VMM_EVIDENCE_MAX_BYTES || complain (&reader, "it is too large");

  if (good)
    skip_space (&reader);
  if (good && !next_is (&reader, "{"))
    good = complain (&reader, "it is not a JSON object");
  while (good && reader.at < reader.end)
    {
      good = read_next (&reader);
      skip_space (&reader);
    }
  if (good && reader.expect != EXPECT_NOTHING)
    good = complain (&reader, "it is cut off");
  if (!good)
    {
      *reason = g_strdup (reader.wrong);
      return FALSE;
    }

  *stage = found_stage != NULL ? g_steal_pointer (&found_stage) : g_strdup ("");
  *nonce = found_nonce != NULL ? g_steal_pointer (&found_nonce) : g_strdup ("");
  return TRUE;
}
