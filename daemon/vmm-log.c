/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The daemon's log.
 *
 * Lines are a message that never changes plus pairs of key and value, so that a line can be
 * searched for by either. One writer takes them, and what GLib and other libraries say as well: to
 * the journal with a field for each pair when stderr is the journal, else as key=value text. The
 * writer installs itself with the first line, so tests see what the daemon writes.
 *
 * An error of ours is a critical with the priority of an error: it never ends the program, not even
 * under G_DEBUG=fatal-warnings, while a critical of GLib's own still does. */

#include "config.h"

#include "vmm-log.h"

#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include "vmm-time.h"

/* Only for the writer: the pairs as text. Always the last field of our own lines. */
#define PAIRS_FIELD "VMM_PAIRS"
#define MAX_FIELDS 32

static gint verbose_log;

typedef struct
{
  GLogField fields[MAX_FIELDS];
  gsize n_fields;
  GPtrArray *owned;
} Line;

static const char *
level_name (GLogLevelFlags level)
{
  if (level & (G_LOG_LEVEL_ERROR | G_LOG_LEVEL_CRITICAL))
    return "ERROR";
  if (level & G_LOG_LEVEL_WARNING)
    return "WARN";
  if (level & G_LOG_LEVEL_DEBUG)
    return "DEBUG";
  return "INFO";
}

/* One character, or one byte that is no part of one, with what must not reach a terminal escaped.
 * Returns where the next one begins. */
static const char *
append_escaped (GString *out, const char *p)
{
  gunichar c = g_utf8_get_char_validated (p, -1);
  const char *next;

  if (c == (gunichar) -1 || c == (gunichar) -2)
    {
      g_string_append_printf (out, "\\x%02x", (guchar) *p);
      return p + 1;
    }
  next = g_utf8_next_char (p);
  if (c == '\n')
    g_string_append (out, "\\n");
  else if (c == '\r')
    g_string_append (out, "\\r");
  else if (c == '\t')
    g_string_append (out, "\\t");
  else if (c < 0x80 && g_ascii_iscntrl ((char) c))
    g_string_append_printf (out, "\\x%02x", c);
  else if (!g_unichar_isprint (c) || c == 0x2028 || c == 0x2029)
    g_string_append_printf (out, c > 0xffff ? "\\U%08x" : "\\u%04x", c);
  else
    g_string_append_len (out, p, next - p);
  return next;
}

static gboolean
needs_quotes (const char *text)
{
  if (text[0] == '\0')
    return TRUE;
  for (const char *p = text; *p != '\0'; p++)
    if (!g_ascii_isgraph (*p) || *p == '"' || *p == '=' || *p == '\\')
      return TRUE;
  return FALSE;
}

static void
append_value (GString *out, const char *text)
{
  if (!needs_quotes (text))
    {
      g_string_append (out, text);
      return;
    }
  g_string_append_c (out, '"');
  for (const char *p = text; *p != '\0';)
    {
      if (*p == '"' || *p == '\\')
        g_string_append_c (out, '\\');
      p = append_escaped (out, p);
    }
  g_string_append_c (out, '"');
}

/* One write, so that lines of two processes on one stream stay whole. */
static void
write_line (const char *text, gsize length)
{
  while (length > 0)
    {
      ssize_t written = write (STDERR_FILENO, text, length);

      /* There is nobody to tell. */
      if (written <= 0)
        return;
      text += written;
      length -= (gsize) written;
    }
}

static char *
dup_field (const GLogField *fields, gsize n_fields, const char *key)
{
  for (gsize i = 0; i < n_fields; i++)
    if (g_str_equal (fields[i].key, key))
      return fields[i].length < 0 ? g_strdup (fields[i].value)
                                  : g_strndup (fields[i].value, (gsize) fields[i].length);
  return NULL;
}

static GLogWriterOutput
write_text (GLogLevelFlags level, const GLogField *fields, gsize n_fields)
{
  g_autofree char *message = dup_field (fields, n_fields, "MESSAGE");
  g_autofree char *domain = dup_field (fields, n_fields, "GLIB_DOMAIN");
  g_autofree char *pairs = dup_field (fields, n_fields, PAIRS_FIELD);
  g_autofree char *now = vmm_time_to_text (g_get_real_time ());
  g_autoptr (GString) line = g_string_new (NULL);

  g_string_append_printf (line, "time=%s level=%s msg=", now, level_name (level));
  append_value (line, message != NULL ? message : "");
  if (pairs != NULL)
    g_string_append (line, pairs);
  else if (domain != NULL && !g_str_equal (domain, G_LOG_DOMAIN))
    {
      g_string_append (line, " domain=");
      append_value (line, domain);
    }
  g_string_append_c (line, '\n');
  write_line (line->str, line->len);
  return G_LOG_WRITER_HANDLED;
}

/* Our lines with their pairs in the message too: few readers of a journal show further fields. */
static GLogWriterOutput
write_journal (GLogLevelFlags level, const GLogField *fields, gsize n_fields)
{
  GLogField own[MAX_FIELDS];
  g_autofree char *message = dup_field (fields, n_fields, "MESSAGE");
  g_autofree char *text = NULL;

  if (n_fields == 0 || n_fields > MAX_FIELDS
      || !g_str_equal (fields[n_fields - 1].key, PAIRS_FIELD))
    return g_log_writer_journald (level, fields, n_fields, NULL);

  text = g_strconcat (message, fields[n_fields - 1].value, NULL);
  for (gsize i = 0; i < n_fields - 1; i++)
    {
      own[i] = fields[i];
      if (g_str_equal (own[i].key, "MESSAGE"))
        own[i].value = text;
    }
  return g_log_writer_journald (level, own, n_fields - 1, NULL);
}

static gboolean
is_dropped (GLogLevelFlags level, const GLogField *fields, gsize n_fields)
{
  g_autofree char *domain = dup_field (fields, n_fields, "GLIB_DOMAIN");

  /* The plugins' domains begin like their files. */
  if (domain != NULL && (g_str_equal (domain, G_LOG_DOMAIN) || g_str_has_prefix (domain, "vmm-")))
    return (level & G_LOG_LEVEL_DEBUG) != 0 && !g_atomic_int_get (&verbose_log);
  return g_log_writer_default_would_drop (level, domain);
}

static GLogWriterOutput
log_writer (GLogLevelFlags level, const GLogField *fields, gsize n_fields, gpointer user_data)
{
  if (is_dropped (level, fields, n_fields))
    return G_LOG_WRITER_HANDLED;
  if (g_log_writer_is_journald (STDERR_FILENO)
      && write_journal (level, fields, n_fields) == G_LOG_WRITER_HANDLED)
    return G_LOG_WRITER_HANDLED;
  return write_text (level, fields, n_fields);
}

static void
install_writer (void)
{
  static gsize installed = 0;

  if (g_once_init_enter (&installed))
    {
      g_log_set_writer_func (log_writer, NULL, NULL);
      g_once_init_leave (&installed, 1);
    }
}

void
vmm_log_init (gboolean verbose)
{
  g_atomic_int_set (&verbose_log, verbose);
  install_writer ();
}

static void
add_field (Line *line, const char *key, const char *value)
{
  if (line->n_fields < MAX_FIELDS)
    line->fields[line->n_fields++] = (GLogField){ key, value, -1 };
}

/* "lastError" → VMM_LAST_ERROR */
static char *
journal_key (const char *key)
{
  GString *name = g_string_new ("VMM_");

  for (const char *p = key; *p != '\0'; p++)
    {
      if (g_ascii_isupper (*p) && p > key && g_ascii_islower (p[-1]))
        g_string_append_c (name, '_');
      g_string_append_c (name, g_ascii_isalnum (*p) ? g_ascii_toupper (*p) : '_');
    }
  return g_string_free (name, FALSE);
}

static void
write_pairs (GLogLevelFlags level, const char *priority, const char *message, va_list args)
{
  g_autoptr (GString) pairs = g_string_new (NULL);
  Line line = { .owned = g_ptr_array_new_with_free_func (g_free) };
  const char *key;

  add_field (&line, "PRIORITY", priority);
  add_field (&line, "MESSAGE", message);
  add_field (&line, "GLIB_DOMAIN", G_LOG_DOMAIN);
  while ((key = va_arg (args, const char *)) != NULL)
    {
      const char *value = va_arg (args, const char *);
      char *field;

      if (value == NULL)
        continue;
      g_string_append_printf (pairs, " %s=", key);
      append_value (pairs, value);
      field = journal_key (key);
      g_ptr_array_add (line.owned, field);
      if (line.n_fields < MAX_FIELDS - 1)
        add_field (&line, field, value);
    }
  add_field (&line, PAIRS_FIELD, pairs->str);

  install_writer ();
  g_log_structured_array (level, line.fields, line.n_fields);
  g_ptr_array_unref (line.owned);
}

void
vmm_log_debug (const char *message, ...)
{
  va_list args;

  if (!g_atomic_int_get (&verbose_log))
    return;
  va_start (args, message);
  write_pairs (G_LOG_LEVEL_DEBUG, "7", message, args);
  va_end (args);
}

void
vmm_log_info (const char *message, ...)
{
  va_list args;

  va_start (args, message);
  write_pairs (G_LOG_LEVEL_INFO, "6", message, args);
  va_end (args);
}

void
vmm_log_warning (const char *message, ...)
{
  va_list args;

  va_start (args, message);
  write_pairs (G_LOG_LEVEL_WARNING, "4", message, args);
  va_end (args);
}

void
vmm_log_error (const char *message, ...)
{
  va_list args;

  va_start (args, message);
  write_pairs (G_LOG_LEVEL_CRITICAL, "3", message, args);
  va_end (args);
}

char *
vmm_log_escape (const char *text, gsize limit)
{
  GString *out = g_string_new (NULL);

  for (const char *p = text; *p != '\0';)
    {
      gsize length = out->len;

      p = append_escaped (out, p);
      /* Never cut inside of an escape or a character. */
      if (out->len > limit)
        {
          g_string_truncate (out, length);
          break;
        }
    }
  return g_string_free (out, FALSE);
}
