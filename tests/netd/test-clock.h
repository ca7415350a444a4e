/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <glib.h>

/* The monotonic clock of this process goes on by so much, for everything in it: what waits for a
 * time to pass is tested without waiting. */
void test_clock_advance (gint64 milliseconds);
