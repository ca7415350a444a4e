/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <glib.h>
#include <string.h>

/* Numbers in network byte order at any address. */
static inline guint16
netd_read_16 (const guint8 *data)
{
  guint16 value;

  memcpy (&value, data, sizeof value);
  return g_ntohs (value);
}

static inline guint32
netd_read_32 (const guint8 *data)
{
  guint32 value;

  memcpy (&value, data, sizeof value);
  return g_ntohl (value);
}

static inline void
netd_write_16 (guint8 *data, guint value)
{
  guint16 stored = g_htons ((guint16) value);

  memcpy (data, &stored, sizeof stored);
}

static inline void
netd_write_32 (guint8 *data, guint32 value)
{
  guint32 stored = g_htonl (value);

  memcpy (data, &stored, sizeof stored);
}
