/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <gio/gio.h>

G_BEGIN_DECLS

/* Waiting in tests: iterates the default main context until something is so, or fails the test
 * after a generous limit. Only a hang is a failure; nothing is measured. */
#define TEST_AWAIT_LIMIT_S 30

typedef struct
{
  GAsyncResult *result;
} TestAwait;

#define TEST_AWAIT_INIT { NULL }

/* A GAsyncReadyCallback; user_data is a TestAwait. */
void test_await_cb (GObject *source, GAsyncResult *result, gpointer user_data);
/* Iterates until the callback was called; the caller owns the result. */
GAsyncResult *test_await (TestAwait *await);

typedef gboolean (*TestCondition) (gpointer user_data);
void test_await_condition (TestCondition condition, gpointer user_data);
/* Runs everything that is ready, then returns. */
void test_drain (void);

/* A new folder below /tmp with a short path, and its removal with all it holds. */
char *test_make_directory (void);
void test_remove_directory (char *path);

G_END_DECLS
