/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Extends and reads registers of the TPM's SHA-256 bank with commands of its own: two are all that is
 * needed (TPM 2.0 library specification, part 3, TPM2_PCR_Extend and TPM2_PCR_Read).
 */
#include "mini-helper.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEVICE "/dev/tpmrm0"
#define N_PCRS 24
#define DIGEST 32
#define ALG_SHA256 0x000b
#define HEADER 10 /* bytes: tag, size, code */

typedef struct
{
  uint8_t bytes[512];
  size_t size;
} Buffer;

static void
put (Buffer *buffer, uint32_t value, size_t width)
{
  for (size_t i = 0; i < width; i++)
    buffer->bytes[buffer->size++] = (uint8_t) (value >> 8 * (width - 1 - i));
}

static uint32_t
get_u32 (const uint8_t *bytes)
{
  uint32_t value;

  memcpy (&value, bytes, sizeof value);
  return be32toh (value);
}

static void
begin (Buffer *buffer, uint32_t tag, uint32_t code)
{
  put (buffer, tag, 2);
  put (buffer, 0, 4); /* the size, later */
  put (buffer, code, 4);
}

/* The answer replaces the command. */
static int
transact (Buffer *buffer)
{
  uint32_t size = htobe32 ((uint32_t) buffer->size);
  int fd = open (DEVICE, O_RDWR | O_CLOEXEC);
  ssize_t n;

  if (fd < 0)
    return -1;
  memcpy (buffer->bytes + 2, &size, sizeof size);
  n = mini_write_all (fd, buffer->bytes, buffer->size) < 0
        ? -1
        : read (fd, buffer->bytes, sizeof buffer->bytes);
  close (fd);
  if (n < HEADER)
    return -1;
  buffer->size = (size_t) n;
  if (get_u32 (buffer->bytes + 6) == 0)
    return 0;
  fprintf (stderr, "mini-helper: the TPM answers 0x%x\n", get_u32 (buffer->bytes + 6));
  errno = EIO;
  return -1;
}

static int
parse_pcr (const char *text, unsigned *pcr)
{
  char end;

  return sscanf (text, "%u%c", pcr, &end) == 1 && *pcr < N_PCRS ? 0 : -1;
}

int
mini_pcr_extend (int argc, char **argv)
{
  Buffer buffer = { .size = 0 };
  unsigned pcr;

  if (argc != 2 || parse_pcr (argv[0], &pcr) < 0 || strlen (argv[1]) != 2 * DIGEST
      || strspn (argv[1], "0123456789abcdef") != 2 * DIGEST)
    return mini_usage ("pcr-extend PCR SHA256");
  begin (&buffer, 0x8002, 0x00000182);
  put (&buffer, pcr, 4);
  put (&buffer, 9, 4); /* the authorisation: an empty password */
  put (&buffer, 0x40000009, 4);
  put (&buffer, 0, 2);
  put (&buffer, 0, 1);
  put (&buffer, 0, 2);
  put (&buffer, 1, 4);
  put (&buffer, ALG_SHA256, 2);
  for (size_t i = 0; i < DIGEST; i++)
    {
      const char digits[3] = { argv[1][2 * i], argv[1][2 * i + 1], '\0' };

      put (&buffer, (uint32_t) strtoul (digits, NULL, 16), 1);
    }
  return transact (&buffer) < 0 ? mini_fail (DEVICE) : 0;
}

int
mini_pcr_read (int argc, char **argv)
{
  Buffer buffer = { .size = 0 };
  unsigned pcr;

  if (argc != 1 || parse_pcr (argv[0], &pcr) < 0)
    return mini_usage ("pcr-read PCR");
  begin (&buffer, 0x8001, 0x0000017e);
  put (&buffer, 1, 4);
  put (&buffer, ALG_SHA256, 2);
  put (&buffer, 3, 1);
  for (unsigned i = 0; i < N_PCRS; i += 8)
    put (&buffer, pcr / 8 == i / 8 ? 1U << pcr % 8 : 0, 1);
  if (transact (&buffer) < 0)
    return mini_fail (DEVICE);
  /* Header, counter, selection (4 + 2 + 1 + 3), number of digests, size, the digest at the end. */
  if (buffer.size != HEADER + 4 + 10 + 4 + 2 + DIGEST)
    {
      fprintf (stderr, "mini-helper: no PCR %u in the SHA-256 bank\n", pcr);
      return 1;
    }
  for (size_t i = buffer.size - DIGEST; i < buffer.size; i++)
    printf ("%02x", buffer.bytes[i]);
  printf ("\n");
  return 0;
}
