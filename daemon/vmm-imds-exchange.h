/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "vmm-http-connection.h"
#include "vmm-imds-disk.h"

G_BEGIN_DECLS

#define VMM_IMDS_TEXT_TYPE "text/plain; charset=utf-8"

/* One request of a guest and its answer. Who answers later keeps a reference. */
typedef struct _VmmImdsExchange VmmImdsExchange;

VmmImdsExchange *vmm_imds_exchange_new (VmmHttpConnection *connection, VmmHttpExchange *stream,
                                        VmmImdsDisk *disk);
VmmImdsExchange *vmm_imds_exchange_ref (VmmImdsExchange *self);
void vmm_imds_exchange_unref (VmmImdsExchange *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (VmmImdsExchange, vmm_imds_exchange_unref)

/* Of the request; valid until it is answered. */
const VmmHttpHead *vmm_imds_exchange_get_head (VmmImdsExchange *self);
gboolean vmm_imds_exchange_is_head (VmmImdsExchange *self);
GBytes *vmm_imds_exchange_get_body (VmmImdsExchange *self);
gboolean vmm_imds_exchange_is_body_too_large (VmmImdsExchange *self);

/* Called once, when the status is known and nothing was written yet. */
typedef void (*VmmImdsAnswered) (VmmImdsExchange *exchange, guint status, gpointer user_data);
void vmm_imds_exchange_set_answered (VmmImdsExchange *self, VmmImdsAnswered answered,
                                     gpointer user_data, GDestroyNotify destroy);

/* Destroys data when the answer is complete or the guest has left. */
void vmm_imds_exchange_hold (VmmImdsExchange *self, gpointer data, GDestroyNotify destroy);
/* Before the answer. */
void vmm_imds_exchange_add_header (VmmImdsExchange *self, const char *name, const char *value);
/* One of these, once. */
void vmm_imds_exchange_answer_empty (VmmImdsExchange *self, guint status);
void vmm_imds_exchange_answer_text (VmmImdsExchange *self, guint status, const char *text);
void vmm_imds_exchange_answer (VmmImdsExchange *self, guint status, const char *type,
                               const char *content, gsize length);
/* The type is kept as it is. From the disk, piece by piece; or the range of it that was asked for, if ranges are served. */
void vmm_imds_exchange_answer_file (VmmImdsExchange *self, const char *type, VmmImdsFile *file,
                                    gboolean with_ranges);

G_END_DECLS
