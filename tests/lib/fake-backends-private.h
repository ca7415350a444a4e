/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "fake-backends.h"

G_BEGIN_DECLS

/* What the fake backends share among themselves. */
#define TEST_FAKE_NAME "fake"
#define TEST_FAKE_PRIORITY 1000

typedef enum
{
  TEST_FAKE_OK,
  TEST_FAKE_FAIL,
  TEST_FAKE_HANG,
  TEST_FAKE_LIE,
} TestFakeMode;

/* Returns the task, truthfully or not. */
typedef void (*TestFakeAction) (GTask *task, gboolean lie);

/* Logs a call and does as planned: runs the action at once or when it is released, or returns an
 * error. */
void test_fake_run (const char *call, const char *subject, GTask *task, TestFakeAction action);
/* The same for a call that returns at once; a hang is told as such. */
TestFakeMode test_fake_check (const char *call, const char *subject, GError **error);
void test_fake_log (const char *call, const char *subject);
gboolean test_fake_is_available (guint kind, char **reason);

void test_fake_launcher_reset (void);
void test_fake_network_reset (void);
void test_fake_storage_reset (void);
void test_fake_attestor_reset (void);

G_END_DECLS
