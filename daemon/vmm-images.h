/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <json-glib/json-glib.h>

G_BEGIN_DECLS

/* The catalogue: scanned once at start (and on rescan), sorted by id, then version descending. */
#define VMM_TYPE_IMAGES (vmm_images_get_type ())
G_DECLARE_FINAL_TYPE (VmmImages, vmm_images, VMM, IMAGES, GObject)

typedef struct
{
  char *id;
  char *version;
  char *reference; /* <id>_<version> */
  char *uki;
  char *disk;
  char *sysupdate_dir;    /* NULL when there is none */
  GStrv kubernetes_versions; /* highest first, never NULL */
  char *policy;           /* policy.json, verbatim; NULL when none applies */
} VmmImage;

VmmImages *vmm_images_new (const char *directory);
gboolean vmm_images_scan (VmmImages *self, GError **error);
/* reference: <id>_<version>, a bare id for its highest version, NULL or "" for the default. */
const VmmImage *vmm_images_lookup (VmmImages *self, const char *reference, GError **error);
guint vmm_images_get_n_images (VmmImages *self);
JsonNode *vmm_images_to_json (VmmImages *self);
JsonNode *vmm_image_to_json (const VmmImage *image);
/* The catalogue's version order: <0, 0, >0. */
int vmm_version_compare (const char *a, const char *b);

G_END_DECLS
