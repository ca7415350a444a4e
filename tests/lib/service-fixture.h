/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "vmm-imds.h"
#include "vmm-operations.h"
#include "vmm-service.h"

G_BEGIN_DECLS

/* A service with the fake backends on a state folder of its own, and calls of its operations as a
 * door would make them. The folder holds two versions of the image "demo" (1.0.0 offers Kubernetes
 * 1.32.0 and 1.31.2) and stays while services on it come and go. */
typedef struct
{
  char *state_dir;
  VmmPluginRegistry *registry;
  VmmMachineContext *context; /* of the running service; owned by it */
  VmmService *service;        /* NULL while none runs */
  gboolean with_imds;         /* for the services to come: guests are served, too */
  VmmImds *imds;
  GPtrArray *flags;           /* pairs for the options of the next service, ending in NULL */
} ServiceFixture;

ServiceFixture *service_fixture_new (void);
/* Closes the service if one runs, and removes the folder. */
void service_fixture_free (ServiceFixture *self);
/* For the services to come: a flag without dashes. */
void service_fixture_set_flag (ServiceFixture *self, const char *flag, const char *value);
void service_fixture_write (ServiceFixture *self, const char *path, const char *content);
/* A new service, loaded. The fakes keep what they have: this is a restart when there was one. */
gboolean service_fixture_start (ServiceFixture *self, GError **error);
void service_fixture_start_well (ServiceFixture *self);
void service_fixture_close (ServiceFixture *self, gboolean detach);

/* Calls an operation; arguments are JSON with ' for ". */
JsonNode *service_fixture_call (ServiceFixture *self, const char *operation, GError **error,
                                const char *arguments_format, ...) G_GNUC_PRINTF (4, 5);
/* The same where only success is right; the caller reads the object. */
JsonNode *service_fixture_call_well (ServiceFixture *self, const char *operation,
                                     const char *arguments_format, ...) G_GNUC_PRINTF (3, 4);
/* The same where only a failure is right, with this code and text. */
void service_fixture_call_badly (ServiceFixture *self, const char *operation, VmmError code,
                                 const char *message, const char *arguments_format, ...)
    G_GNUC_PRINTF (5, 6);
/* A member of an object. */
const char *service_fixture_get (JsonNode *node, const char *member);

/* Creates a VM without attestation and returns its id, once it reached wait_for. */
char *service_fixture_create_vm (ServiceFixture *self, const char *name, const char *wait_for);
void service_fixture_await_state (ServiceFixture *self, const char *id, VmmMachineState state);

G_END_DECLS
