/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* What a shell cannot do: one subject each, called by the guest's scripts (and gpt by the build of the
 * image, too). Each gets what follows its name and returns an exit status; it has then said why. */
int mini_gpt (int argc, char **argv);
int mini_notify (int argc, char **argv);
int mini_pcr_extend (int argc, char **argv);
int mini_pcr_read (int argc, char **argv);

int mini_fail (const char *what); /* says errno, too */
int mini_usage (const char *text);
int mini_write_all (int fd, const void *data, size_t size);
