/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <glib.h>

/* As much of DNS messages (RFC 1035) as it takes to pass them on: header and question. Pure. */

#define NETD_DNS_HEADER 12
#define NETD_DNS_QUESTION_MAX (255 + 4)
#define NETD_DNS_SHORT_MAX (NETD_DNS_HEADER + NETD_DNS_QUESTION_MAX)

#define NETD_DNS_FORMERR 1
#define NETD_DNS_SERVFAIL 2
#define NETD_DNS_NOTIMP 4
#define NETD_DNS_REFUSED 5

typedef enum
{
  NETD_DNS_QUERY_GOOD,
  NETD_DNS_QUERY_SILENT,      /* no query at all: not to be answered */
  NETD_DNS_QUERY_BAD,         /* not exactly one well-formed question */
  NETD_DNS_QUERY_UNSUPPORTED, /* an operation other than asking */
} NetdDnsQueryKind;

/* @question_length: of the one question behind the header, when it is good. */
NetdDnsQueryKind netd_dns_query_check (const guint8 *message, gsize length, gsize *question_length);
/* Whether @answer is for @query: its id and its question, byte for byte. */
gboolean netd_dns_is_answer (const guint8 *query, gsize question_length, const guint8 *answer,
                             gsize length);
guint netd_dns_get_rcode (const guint8 *message);

/* Each writes at most NETD_DNS_SHORT_MAX bytes and returns how many. */
/* The answer of @rcode to @query; @question_length 0 leaves the question out. */
gsize netd_dns_make_error (const guint8 *query, gsize question_length, guint rcode, guint8 *out);
/* What is left of @answer when it does not fit: the reason to ask again over TCP. */
gsize netd_dns_make_truncated (const guint8 *answer, gsize question_length, guint8 *out);
