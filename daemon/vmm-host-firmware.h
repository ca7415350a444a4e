/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <gio/gio.h>

#include "vmm-host-facts.h"

G_BEGIN_DECLS

/* Which build of the firmware VMs boot with. */
typedef struct
{
  VmmHostFile file; /* what was looked at */
  VmmHostFile dpkg; /* and who was asked */
  gint64 ask_again_us;
  char *sha256;  /* NULL when the file cannot be read */
  char *package; /* NULL when nobody knows */
  char *version;
  char *error; /* why nobody knows */
} VmmHostFirmware;

void vmm_host_firmware_clear (VmmHostFirmware *self);
/* Makes the answer fit the files. The firmware must stay until the callback was called. */
void vmm_host_firmware_update_async (VmmHostFirmware *self, const VmmHostFile *file,
                                     const VmmHostFile *dpkg, guint limit_ms,
                                     GAsyncReadyCallback callback, gpointer user_data);

G_END_DECLS
