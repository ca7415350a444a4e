/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Each fuzz target is one file with this function: linked with libFuzzer it searches on its own,
 * with fuzz-replay.c it runs what is in its corpus. Inputs that once failed are added to the
 * corpus. */
int LLVMFuzzerTestOneInput (const uint8_t *data, size_t size);

/* What a target may have besides, by the names that libFuzzer knows: something to do first, and its
 * own way to change an input in place. Exit status 77 in the first means that it cannot run here.
 */
int LLVMFuzzerInitialize (int *argc, char ***argv);
size_t LLVMFuzzerCustomMutator (uint8_t *data, size_t size, size_t max_size, unsigned int seed);

/* And what only the replay asks for: how much was done, in units of the target's own, and a last
 * look at what is left over. */
uint64_t fuzz_get_units (void);
void fuzz_finish (void);
