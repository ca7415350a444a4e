/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <glib.h>

G_BEGIN_DECLS

/* What a guest can ask the metadata service for: one table, from which the routes and the hwdb
 * record in images of ours are made. Pure. */
#define VMM_IMDS_ADDRESS "169.254.169.254"
#define VMM_IMDS_VENDOR "giantswarm"
#define VMM_IMDS_BASE "/giantswarm/v1"

typedef enum
{
  VMM_IMDS_HOSTNAME,
  VMM_IMDS_REGION,
  VMM_IMDS_ZONE,
  VMM_IMDS_PUBLIC_KEY,
  VMM_IMDS_PUBLIC_KEYS,
  VMM_IMDS_USER_DATA,
  VMM_IMDS_INSTANCE_ID,
  VMM_IMDS_KUBERNETES_VERSION,
  VMM_IMDS_METADATA,
  VMM_IMDS_NONCE,
  VMM_IMDS_QUOTE,
  VMM_IMDS_REPORT,
  VMM_IMDS_SYSUPDATE,
} VmmImdsKey;
#define VMM_IMDS_N_KEYS (VMM_IMDS_SYSUPDATE + 1)

typedef struct
{
  VmmImdsKey key;
  const char *path;          /* below the base; "*" is one segment of the guest's choice */
  const char *method;        /* what answers GET also answers HEAD */
  gsize max_body;
  const char *property;      /* of the hwdb record; NULL when it is not in there */
  const char *property_path; /* NULL when it is the path */
} VmmImdsRow;

extern const VmmImdsRow vmm_imds_rows[VMM_IMDS_N_KEYS];

/* The row of a path as it came, still percent-encoded; NULL for none. The segments that the guest
 * chose, decoded: each is one name, never empty, "." or "..", without a slash. */
const VmmImdsRow *vmm_imds_keys_match (const char *path, GStrv *chosen);
/* The text of images/45-imds-giantswarm.hwdb. */
char *vmm_imds_keys_format_hwdb (void);

G_END_DECLS
