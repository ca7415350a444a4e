/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Points in time and durations as texts.
 *
 * Inside the daemon both are 64-bit microseconds. Records, the API and the log show points in time
 * as RFC 3339 in UTC; options, messages and the log show durations in the compact form of "1h30m".
 */

#include "config.h"

#include "vmm-time.h"

#include <string.h>
#include <time.h>

/* The first and the last second that RFC 3339 can name: years 1 and 9999. */
#define FIRST_SECOND G_GINT64_CONSTANT (-62135596800)
#define LAST_SECOND G_GINT64_CONSTANT (253402300799)

char *
vmm_time_to_text (gint64 real_time_us)
{
  gint64 seconds = real_time_us / G_USEC_PER_SEC;
  int micro = (int) (real_time_us % G_USEC_PER_SEC);
  time_t when;
  struct tm tm;
  char fraction[8] = "";

  if (micro < 0)
    {
      micro += G_USEC_PER_SEC;
      seconds--;
    }
  when = (time_t) CLAMP (seconds, FIRST_SECOND, LAST_SECOND);
  gmtime_r (&when, &tm);

  if (micro > 0)
    {
      gsize length = (gsize) g_snprintf (fraction, sizeof fraction, ".%06d", micro);

      while (fraction[length - 1] == '0')
        fraction[--length] = '\0';
    }
  return g_strdup_printf ("%04d-%02d-%02dT%02d:%02d:%02d%sZ", tm.tm_year + 1900, tm.tm_mon + 1,
                          tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec, fraction);
}

/* Exactly count digits, then the separator unless it is zero. */
static gboolean
read_number (const char **at, guint count, char separator, int *number)
{
  *number = 0;
  for (guint i = 0; i < count; i++, (*at)++)
    {
      if (!g_ascii_isdigit (**at))
        return FALSE;
      *number = *number * 10 + g_ascii_digit_value (**at);
    }
  if (separator == '\0')
    return TRUE;
  if (g_ascii_toupper (**at) != separator)
    return FALSE;
  (*at)++;
  return TRUE;
}

/* An optional fraction of up to nine digits; what is below a microsecond is dropped. */
static gboolean
read_fraction (const char **at, int *micro)
{
  guint count = 0;

  *micro = 0;
  if (**at != '.')
    return TRUE;
  for ((*at)++; g_ascii_isdigit (**at); (*at)++)
    if (++count <= 6)
      *micro = *micro * 10 + g_ascii_digit_value (**at);
  if (count == 0 || count > 9)
    return FALSE;
  for (; count < 6; count++)
    *micro *= 10;
  return TRUE;
}

/* "Z" or "+01:00", which must be the end. */
static gboolean
read_zone (const char *at, gint64 *offset_s)
{
  int hours;
  int minutes;
  int sign = *at == '-' ? -1 : 1;

  *offset_s = 0;
  if (*at == 'Z' || *at == 'z')
    return at[1] == '\0';
  if (*at != '+' && *at != '-')
    return FALSE;
  at++;
  if (!read_number (&at, 2, ':', &hours) || !read_number (&at, 2, '\0', &minutes) || *at != '\0'
      || hours > 23 || minutes > 59)
    return FALSE;
  *offset_s = sign * (hours * 3600 + minutes * 60);
  return TRUE;
}

gboolean
vmm_time_from_text (const char *text, gint64 *real_time_us)
{
  struct tm tm = { 0 };
  const char *at = text;
  int year;
  int month;
  int micro;
  gint64 offset_s;

  g_return_val_if_fail (text != NULL, FALSE);

  if (!read_number (&at, 4, '-', &year) || !read_number (&at, 2, '-', &month)
      || !read_number (&at, 2, 'T', &tm.tm_mday) || !read_number (&at, 2, ':', &tm.tm_hour)
      || !read_number (&at, 2, ':', &tm.tm_min) || !read_number (&at, 2, '\0', &tm.tm_sec)
      || !read_fraction (&at, &micro) || !read_zone (at, &offset_s))
    return FALSE;
  if (!g_date_valid_dmy ((GDateDay) tm.tm_mday, (GDateMonth) month, (GDateYear) year)
      || tm.tm_hour > 23 || tm.tm_min > 59 || tm.tm_sec > 59)
    return FALSE;

  tm.tm_year = year - 1900;
  tm.tm_mon = month - 1;
  *real_time_us = ((gint64) timegm (&tm) - offset_s) * G_USEC_PER_SEC + micro;
  return TRUE;
}

/* The unit at the start of the text, in nanoseconds, and its length; 0 for none. */
static gint64
read_unit (const char *at, gsize *length)
{
  static const struct
  {
    const char *name;
    gint64 ns;
  } units[] = {
    { "ns", 1 },
    { "us", 1000 },
    { "\xc2\xb5s", 1000 },
    { "\xce\xbcs", 1000 },
    { "ms", 1000 * 1000 },
    { "s", G_GINT64_CONSTANT (1000) * 1000 * 1000 },
    { "m", G_GINT64_CONSTANT (60) * 1000 * 1000 * 1000 },
    { "h", G_GINT64_CONSTANT (3600) * 1000 * 1000 * 1000 },
  };

  for (guint i = 0; i < G_N_ELEMENTS (units); i++)
    if (g_str_has_prefix (at, units[i].name))
      {
        *length = strlen (units[i].name);
        return units[i].ns;
      }
  return 0;
}

/* One "1.5h" of a duration, added to the sum in nanoseconds. */
static gboolean
read_part (const char **at, gint64 *sum)
{
  gint64 whole = 0;
  gint64 fraction = 0;
  gint64 scale = 1;
  gint64 unit;
  gsize unit_length;
  guint digits = 0;

  for (; g_ascii_isdigit (**at); (*at)++, digits++)
    if (__builtin_mul_overflow (whole, 10, &whole)
        || __builtin_add_overflow (whole, g_ascii_digit_value (**at), &whole))
      return FALSE;
  if (**at == '.')
    for ((*at)++; g_ascii_isdigit (**at); (*at)++, digits++)
      if (scale < 1000 * 1000 * 1000)
        {
          fraction = fraction * 10 + g_ascii_digit_value (**at);
          scale *= 10;
        }
  if (digits == 0)
    return FALSE;

  unit = read_unit (*at, &unit_length);
  if (unit == 0 || __builtin_mul_overflow (whole, unit, &whole)
      || __builtin_add_overflow (
          whole, (gint64) ((double) fraction / (double) scale * (double) unit), &whole)
      || __builtin_add_overflow (*sum, whole, sum))
    return FALSE;
  *at += unit_length;
  return TRUE;
}

/* Negative durations are refused: nothing of ours waits backwards. */
gboolean
vmm_duration_from_text (const char *text, gint64 *duration_us)
{
  const char *at = text;
  gint64 sum = 0;

  g_return_val_if_fail (text != NULL, FALSE);

  if (*at == '+')
    at++;
  if (g_str_equal (at, "0"))
    {
      *duration_us = 0;
      return TRUE;
    }
  if (*at == '\0')
    return FALSE;
  while (*at != '\0')
    if (!read_part (&at, &sum))
      return FALSE;
  *duration_us = sum / 1000;
  return TRUE;
}

/* value/scale with the zeros at the end of the fraction left out. */
static void
append_decimal (GString *out, guint64 value, guint64 scale)
{
  guint64 rest = value % scale;

  g_string_append_printf (out, "%" G_GUINT64_FORMAT, value / scale);
  if (rest == 0)
    return;
  g_string_append_c (out, '.');
  while (rest > 0)
    {
      scale /= 10;
      g_string_append_c (out, (char) ('0' + rest / scale));
      rest %= scale;
    }
}

char *
vmm_duration_to_text (gint64 duration_us)
{
  GString *out = g_string_new (duration_us < 0 ? "-" : "");
  guint64 rest = duration_us < 0 ? -(guint64) duration_us : (guint64) duration_us;
  const guint64 minute = 60 * G_USEC_PER_SEC;
  const guint64 hour = 60 * minute;

  if (rest == 0)
    g_string_append (out, "0s");
  else if (rest < 1000)
    g_string_append_printf (out, "%" G_GUINT64_FORMAT "\xc2\xb5s", rest);
  else if (rest < G_USEC_PER_SEC)
    {
      append_decimal (out, rest, 1000);
      g_string_append (out, "ms");
    }
  else
    {
      if (rest >= hour)
        g_string_append_printf (out, "%" G_GUINT64_FORMAT "h", rest / hour);
      if (rest >= minute)
        g_string_append_printf (out, "%" G_GUINT64_FORMAT "m", rest % hour / minute);
      append_decimal (out, rest % minute, G_USEC_PER_SEC);
      g_string_append_c (out, 's');
    }
  return g_string_free (out, FALSE);
}
