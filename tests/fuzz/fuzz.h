/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Each fuzz target is one file with this function: linked with libFuzzer it searches on its own,
 * with fuzz-replay.c it runs what is in its corpus. Inputs that once failed are added to the
 * corpus. */
int LLVMFuzzerTestOneInput (const uint8_t *data, size_t size);
