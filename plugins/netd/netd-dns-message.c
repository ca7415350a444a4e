/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Header and question of DNS messages. Records are never read: what a server says goes to the guest
 * as it is, and the guest's resolver is the one to make sense of it. What is looked at is what
 * protects the host: that a guest only asks, and that an answer belongs to its question.
 */
#include "netd-dns-message.h"

#include <string.h>

#define FLAGS 2 /* two bytes: QR, opcode, AA, TC, RD; RA, Z, AD, CD, rcode */
#define QR 0x80
#define OPCODE 0x78
#define TC 0x02
#define RD 0x01
#define RA 0x80
#define CD 0x10
#define RCODE 0x0f
#define N_QUESTIONS 4
#define N_RECORDS 6 /* three counts */

/* Length of the question at the start of @data; 0 when it is not whole. There is nothing yet that a
 * compression pointer could lead to, so there is none. */
static gsize
measure_question (const guint8 *data, gsize length)
{
  gsize offset = 0;

  while (offset < length && data[offset] != 0)
    {
      if (data[offset] > 63)
        return 0;
      offset += 1 + (gsize) data[offset];
    }
  offset += 1 + 4;
  return offset <= MIN (length, NETD_DNS_QUESTION_MAX) ? offset : 0;
}

static guint
get_n_questions (const guint8 *message)
{
  return (guint) message[N_QUESTIONS] << 8 | message[N_QUESTIONS + 1];
}

NetdDnsQueryKind
netd_dns_query_check (const guint8 *message, gsize length, gsize *question_length)
{
  *question_length = 0;
  if (length < NETD_DNS_HEADER || (message[FLAGS] & QR) != 0)
    return NETD_DNS_QUERY_SILENT;
  /* Updates and the like would come from the host's address, which servers may trust. */
  if ((message[FLAGS] & OPCODE) != 0)
    return NETD_DNS_QUERY_UNSUPPORTED;
  if (get_n_questions (message) == 1)
    *question_length = measure_question (message + NETD_DNS_HEADER, length - NETD_DNS_HEADER);
  return *question_length > 0 ? NETD_DNS_QUERY_GOOD : NETD_DNS_QUERY_BAD;
}

gboolean
netd_dns_is_answer (const guint8 *query, gsize question_length, const guint8 *answer, gsize length)
{
  if (length < NETD_DNS_HEADER + question_length || (answer[FLAGS] & QR) == 0)
    return FALSE;
  /* The id, and the letters' case too: both are chosen so that others cannot guess them. */
  return memcmp (answer, query, 2) == 0 && get_n_questions (answer) == 1
         && memcmp (answer + NETD_DNS_HEADER, query + NETD_DNS_HEADER, question_length) == 0;
}

guint
netd_dns_get_rcode (const guint8 *message)
{
  return message[FLAGS + 1] & RCODE;
}

gsize
netd_dns_make_error (const guint8 *query, gsize question_length, guint rcode, guint8 *out)
{
  memcpy (out, query, NETD_DNS_HEADER + question_length);
  out[FLAGS] = QR | (query[FLAGS] & (OPCODE | RD));
  out[FLAGS + 1] = (guint8) (RA | (query[FLAGS + 1] & CD) | rcode);
  out[N_QUESTIONS] = 0;
  out[N_QUESTIONS + 1] = question_length > 0 ? 1 : 0;
  memset (out + N_RECORDS, 0, 6);
  return NETD_DNS_HEADER + question_length;
}

gsize
netd_dns_make_truncated (const guint8 *answer, gsize question_length, guint8 *out)
{
  memcpy (out, answer, NETD_DNS_HEADER + question_length);
  out[FLAGS] |= TC;
  memset (out + N_RECORDS, 0, 6);
  return NETD_DNS_HEADER + question_length;
}
