/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <glib.h>

G_BEGIN_DECLS

/* Watches the sockets of all fake programs with one epoll instance, hence one source in the main
 * context: a thousand VMs with seven sockets each then cost the loop no more than one. */
typedef struct _TestWatch TestWatch;
typedef void (*TestWatchFunc) (gpointer user_data);

/* ready is called while fd can be read or has an error. */
TestWatch *test_watch_new (int fd, TestWatchFunc ready, gpointer user_data);
/* Called as well while fd can be written. */
void test_watch_set_writable (TestWatch *watch, gboolean writable);
void test_watch_free (TestWatch *watch);

/* A line-based connection or listener on a Unix socket; calls may free it from within. */
typedef struct _TestLines TestLines;
typedef void (*TestLinesFunc) (TestLines *lines, const char *line, gpointer user_data);
typedef void (*TestLinesClosedFunc) (TestLines *lines, gpointer user_data);

/* Takes the descriptor. */
TestLines *test_lines_new (int fd, TestLinesFunc line, TestLinesClosedFunc closed,
                           gpointer user_data);
void test_lines_send (TestLines *lines, const char *text);
void test_lines_send_data (TestLines *lines, const void *data, gsize length);
/* Bytes are given as they come instead of lines. */
void test_lines_set_raw (TestLines *lines);
void test_lines_free (TestLines *lines);

/* A listening socket at a path, non-blocking; -1 when that is impossible. */
int test_listen (const char *path);
int test_accept (int fd);

G_END_DECLS
