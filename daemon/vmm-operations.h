/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "vmm-call.h"
#include "vmm-service.h"

G_BEGIN_DECLS

typedef enum
{
  VMM_OPERATION_KIND_CALL,   /* answers at once */
  VMM_OPERATION_KIND_JOB,    /* long: reports progress */
  VMM_OPERATION_KIND_STREAM, /* answers until it is cancelled */
} VmmOperationKind;

typedef enum
{
  VMM_OPERATION_READ_ONLY = 1 << 0,
  VMM_OPERATION_DESTRUCTIVE = 1 << 1,
  VMM_OPERATION_IDEMPOTENT = 1 << 2,
  VMM_OPERATION_OPEN_WORLD = 1 << 3,
} VmmOperationFlags;

/* One row of the table that is generated from interfaces/operations.json. */
typedef struct
{
  const char *name; /* create_vm */
  const char *title;
  const char *description; /* what a model must know */
  VmmOperationKind kind;
  VmmOperationFlags flags;
  const char *method; /* GET; NULL without a REST route */
  const char *path;   /* /vms/{id} below /api/v1 */
  guint success_status;
  const char *content_type; /* application/json; the result is a string for others */
  gboolean has_body;        /* arguments beyond the path come from the body, else from the query */
  const char *dbus_interface;
  const char *dbus_method;
  const char *operation_id; /* createVM */
  const char *parameters;   /* JSON Schema of the arguments, as text */
  const char *result;       /* JSON Schema of the result, as text */
  gboolean tool;            /* offered over MCP */
} VmmOperation;

/* Generated. */
extern const VmmOperation vmm_operations[];
extern const guint vmm_n_operations;
extern const char *const vmm_openapi_document;

typedef void (*VmmHandlerStart) (VmmService *service, VmmCall *call, GAsyncReadyCallback callback,
                                 gpointer user_data);
/* Returns the result; NULL without error means no content. */
typedef JsonNode *(*VmmHandlerFinish) (VmmService *service, GAsyncResult *result, GError **error);

typedef struct
{
  const char *name;
  VmmHandlerStart start;
  VmmHandlerFinish finish;
} VmmHandler;

/* vmm-handlers.c */
const VmmHandler *vmm_handlers_find (const char *operation);
/* Whether each row has exactly one handler and each handler a row; asked at the start. */
gboolean vmm_handlers_check (GError **error);

const VmmOperation *vmm_operations_find (const char *name);
/* Matches a method and a path below /api/v1 (percent-decoded segments become path arguments, added
 * to arguments as strings). HEAD matches GET. NULL when there is no such route. */
const VmmOperation *vmm_operations_match (const char *method, const char *path,
                                          JsonObject *arguments);

/* The only way in: authorise, check the arguments and fill in defaults, call the handler, normalise
 * the error, log it once. Cancelling the call's cancellable ends the waiting, never the work. */
void vmm_operation_call_async (VmmService *service, const VmmOperation *operation, VmmCall *call,
                               GAsyncReadyCallback callback, gpointer user_data);
JsonNode *vmm_operation_call_finish (GAsyncResult *result, GError **error);

G_END_DECLS
