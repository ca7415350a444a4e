/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "vmm-imds-exchange.h"
#include "vmm-imds-port.h"

G_BEGIN_DECLS

/* Answers a request of a VM, now or later; not when it has asked for more than it may. */
void vmm_imds_serve (VmmImdsPort *port, VmmImdsExchange *exchange, gboolean within_limit);

/* The routes that take more than a look into the record. */
void vmm_imds_serve_user_data (VmmImdsPort *port, VmmImdsExchange *exchange);
void vmm_imds_serve_artifact (VmmImdsPort *port, VmmImdsExchange *exchange, const char *component,
                              const char *name);
void vmm_imds_serve_nonce (VmmImdsPort *port, VmmImdsExchange *exchange);
void vmm_imds_serve_quote (VmmImdsPort *port, VmmImdsExchange *exchange);
void vmm_imds_serve_report (VmmImdsPort *port, VmmImdsExchange *exchange);

/* Not now: 503 and when to come again. */
void vmm_imds_answer_busy (VmmImdsExchange *exchange, const char *text);
/* For what takes its time: FALSE when the VM has as much of it under way as it may, and was told so.
 * It ends with the answer. */
gboolean vmm_imds_begin_work (VmmImdsPort *port, VmmImdsExchange *exchange, VmmImdsWork work);
/* For who answers later: TRUE when the VM is not served any more and was told so. */
gboolean vmm_imds_refuse_if_gone (VmmImdsPort *port, VmmImdsExchange *exchange);
/* What a failure is called in HTTP. */
guint vmm_imds_status_of (const GError *error);

G_END_DECLS
