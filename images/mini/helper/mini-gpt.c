/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Writes a partition table (UEFI specification, chapter 5) onto a file or a disk.
 *
 * All identifiers are given, so that the same arguments make the same bytes. Partitions follow each
 * other at borders of 1 MiB; the size 0 takes what is left. Both copies are written, the protective
 * MBR last: a disk that lost power halfway has no table rather than half of one.
 */
#include "mini-helper.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#define SECTOR 512
#define ALIGNMENT 2048 /* sectors */
#define N_ENTRIES 128
#define TABLE_SECTORS (N_ENTRIES * sizeof (Entry) / SECTOR)
#define NAME_CHARS 36

typedef struct
{
  uint8_t type[16];
  uint8_t id[16];
  uint64_t first;
  uint64_t last;
  uint64_t flags;
  uint16_t name[NAME_CHARS];
} Entry;

typedef struct
{
  char signature[8];
  uint32_t revision;
  uint32_t size;
  uint32_t crc;
  uint32_t reserved;
  uint64_t here;
  uint64_t other;
  uint64_t first_usable;
  uint64_t last_usable;
  uint8_t disk_id[16];
  uint64_t table;
  uint32_t n_entries;
  uint32_t entry_size;
  uint32_t table_crc;
} __attribute__ ((packed)) Header;

_Static_assert (sizeof (Entry) == 128, "size of an entry");
_Static_assert (sizeof (Header) == 92, "size of the header");

typedef struct
{
  uint64_t sectors; /* of the disk */
  uint64_t next;    /* free one */
  uint8_t disk_id[16];
  Entry entries[N_ENTRIES];
} Table;

static uint32_t
crc32 (const void *data, size_t size)
{
  const uint8_t *bytes = data;
  uint32_t crc = ~0U;

  for (size_t i = 0; i < size; i++)
    {
      crc ^= bytes[i];
      for (int bit = 0; bit < 8; bit++)
        crc = (crc >> 1) ^ (0xEDB88320U & -(crc & 1U));
    }
  return ~crc;
}

/* The first three groups are stored with the low byte first. */
static int
parse_guid (const char *text, uint8_t guid[16])
{
  static const int order[16] = { 3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15 };
  int n = 0;

  while (n < 16)
    {
      unsigned value;

      if (*text == '-')
        text++;
      if (strspn (text, "0123456789abcdefABCDEF") < 2 || sscanf (text, "%2x", &value) != 1)
        break;
      guid[order[n++]] = (uint8_t) value;
      text += 2;
    }
  if (n == 16 && *text == '\0')
    return 0;
  errno = EINVAL;
  return -1;
}

/* NAME,TYPE,ID,MIB */
static int
add_partition (Table *table, Entry *entry, char *text)
{
  char *name = strtok (text, ",");
  char *type = strtok (NULL, ",");
  char *id = strtok (NULL, ",");
  char *mib = strtok (NULL, ",");
  uint64_t end = (table->sectors - TABLE_SECTORS - 1) / ALIGNMENT * ALIGNMENT;
  uint64_t size;

  errno = EINVAL;
  if (mib == NULL || strlen (name) > NAME_CHARS || parse_guid (type, entry->type) < 0
      || parse_guid (id, entry->id) < 0)
    return -1;
  size = strtoull (mib, NULL, 10) * ALIGNMENT;
  if (size == 0 && end > table->next)
    size = end - table->next;
  errno = ENOSPC;
  if (size == 0 || size > end || table->next > end - size)
    return -1;
  entry->first = htole64 (table->next);
  entry->last = htole64 (table->next + size - 1);
  for (size_t i = 0; name[i] != '\0'; i++)
    entry->name[i] = htole16 ((uint8_t) name[i]);
  table->next += size;
  return 0;
}

static int
write_copy (int fd, const Table *table, uint64_t here, uint64_t other, uint64_t entries)
{
  uint8_t sector[SECTOR] = { 0 };
  Header header = {
    .signature = "EFI PART",
    .revision = htole32 (0x00010000),
    .size = htole32 (sizeof header),
    .here = htole64 (here),
    .other = htole64 (other),
    .first_usable = htole64 (2 + TABLE_SECTORS),
    .last_usable = htole64 (table->sectors - TABLE_SECTORS - 2),
    .table = htole64 (entries),
    .n_entries = htole32 (N_ENTRIES),
    .entry_size = htole32 (sizeof (Entry)),
    .table_crc = htole32 (crc32 (table->entries, sizeof table->entries)),
  };

  memcpy (header.disk_id, table->disk_id, sizeof header.disk_id);
  header.crc = htole32 (crc32 (&header, sizeof header));
  memcpy (sector, &header, sizeof header);
  if (lseek (fd, (off_t) (entries * SECTOR), SEEK_SET) < 0
      || mini_write_all (fd, table->entries, sizeof table->entries) < 0
      || lseek (fd, (off_t) (here * SECTOR), SEEK_SET) < 0)
    return -1;
  return mini_write_all (fd, sector, sizeof sector);
}

/* One partition over the whole disk, for tools that do not know better. */
static int
write_protective_mbr (int fd, uint64_t sectors)
{
  uint8_t sector[SECTOR] = { 0 };
  uint32_t covered = sectors - 1 > UINT32_MAX ? UINT32_MAX : (uint32_t) (sectors - 1);
  uint32_t one = htole32 (1);

  sector[446 + 2] = 0x02; /* cylinder, head, sector of the beginning */
  sector[446 + 4] = 0xee;
  memset (sector + 446 + 5, 0xff, 3);
  memcpy (sector + 446 + 8, &one, sizeof one);
  covered = htole32 (covered);
  memcpy (sector + 446 + 12, &covered, sizeof covered);
  sector[510] = 0x55;
  sector[511] = 0xaa;
  if (lseek (fd, 0, SEEK_SET) < 0)
    return -1;
  return mini_write_all (fd, sector, sizeof sector);
}

static int
write_table (int fd, const Table *table)
{
  uint64_t last = table->sectors - 1;

  if (write_copy (fd, table, last, 1, last - TABLE_SECTORS) < 0
      || write_copy (fd, table, 1, last, 2) < 0 || write_protective_mbr (fd, table->sectors) < 0)
    return -1;
  return fsync (fd);
}

/* A kernel that holds the old table is told; a file has no such thing. */
static int
reread_partitions (int fd)
{
  struct stat info;

  if (fstat (fd, &info) < 0)
    return -1;
  return S_ISBLK (info.st_mode) ? ioctl (fd, BLKRRPART) : 0;
}

int
mini_gpt (int argc, char **argv)
{
  static Table table;
  off_t size;
  int fd;

  if (argc < 3 || argc - 2 > N_ENTRIES)
    return mini_usage ("gpt FILE DISK-GUID NAME,TYPE-GUID,GUID,MIB...");
  if (parse_guid (argv[1], table.disk_id) < 0)
    return mini_fail (argv[1]);
  fd = open (argv[0], O_RDWR | O_CLOEXEC);
  size = fd < 0 ? -1 : lseek (fd, 0, SEEK_END);
  if (size < 0)
    return mini_fail (argv[0]);
  table.sectors = (uint64_t) size / SECTOR;
  table.next = ALIGNMENT;
  errno = ENOSPC;
  if (table.sectors < 4 * ALIGNMENT)
    return mini_fail (argv[0]);
  for (int i = 2; i < argc; i++)
    {
      char *copy = strdup (argv[i]);
      int result = copy == NULL ? -1 : add_partition (&table, &table.entries[i - 2], copy);

      free (copy);
      if (result < 0)
        return mini_fail (argv[i]);
    }
  if (write_table (fd, &table) < 0 || reread_partitions (fd) < 0 || close (fd) < 0)
    return mini_fail (argv[0]);
  return 0;
}
