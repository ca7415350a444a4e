/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Changes records of the frame fuzzer with some knowledge of what is in them: addresses that mean
 * something, fields of each header, lengths that do not fit, options. Half of the time the
 * checksums are then made right, so that what looks at the rest of a packet is reached.
 */
#include "fuzz-netd-frames.h"

#include <string.h>

#include "frame-kit.h"
#include "fuzz.h"

#define RECORDS_MAX 48
#define FRAME_MAX 2000
#define IP NETD_ETHERNET_HEADER
#define TRANSPORT (NETD_ETHERNET_HEADER + 20)

typedef struct
{
  guint8 data[RECORD_HEAD + FRAME_MAX];
  gsize length; /* of the frame */
} Record;

typedef struct
{
  guint32 state;
  guint n_records;
  Record *records[RECORDS_MAX];
} Mutation;

typedef struct
{
  guint8 offset;
  guint8 size;
} Field;

static const Field ethernet_fields[] = { { 0, 6 }, { 6, 6 }, { 12, 2 } };
static const Field arp_fields[] = {
  { 14, 2 }, { 16, 2 }, { 18, 1 }, { 19, 1 }, { 20, 2 }, { 22, 6 }, { 28, 4 }, { 32, 6 }, { 38, 4 },
};
static const Field ip_fields[] = {
  { IP, 1 },     { IP + 1, 1 }, { IP + 2, 2 },  { IP + 4, 2 },  { IP + 6, 2 },
  { IP + 8, 1 }, { IP + 9, 1 }, { IP + 10, 2 }, { IP + 12, 4 }, { IP + 16, 4 },
};
static const Field tcp_fields[] = {
  { TRANSPORT, 2 },      { TRANSPORT + 2, 2 },  { TRANSPORT + 4, 4 },  { TRANSPORT + 8, 4 },
  { TRANSPORT + 12, 1 }, { TRANSPORT + 13, 1 }, { TRANSPORT + 14, 2 }, { TRANSPORT + 16, 2 },
  { TRANSPORT + 18, 2 }, { TRANSPORT + 20, 1 }, { TRANSPORT + 21, 1 }, { TRANSPORT + 22, 2 },
};
static const Field udp_fields[] = {
  { TRANSPORT, 2 },
  { TRANSPORT + 2, 2 },
  { TRANSPORT + 4, 2 },
  { TRANSPORT + 6, 2 },
};
static const Field icmp_fields[] = {
  { TRANSPORT, 1 },
  { TRANSPORT + 1, 1 },
  { TRANSPORT + 2, 2 },
  { TRANSPORT + 4, 4 },
};

static const guint32 addresses[] = {
  NETD_IP (10, 77, 0, 1),   NETD_IP (10, 77, 0, 2),       NETD_IP (10, 77, 0, 3),
  NETD_IP (10, 77, 0, 4),   NETD_IP (10, 77, 0, 99),      NETD_IP (10, 77, 0, 254),
  NETD_IP (10, 77, 0, 255), NETD_IP (10, 77, 0, 0),       NETD_IP_METADATA,
  NETD_IP (169, 254, 0, 1), NETD_IP (127, 0, 0, 1),       NETD_IP (127, 0, 0, 53),
  NETD_IP (0, 0, 0, 0),     NETD_IP (255, 255, 255, 255), NETD_IP (224, 0, 0, 1),
  NETD_IP (240, 0, 0, 1),   NETD_IP (198, 51, 100, 1),    NETD_IP (93, 184, 216, 34),
  NETD_IP (10, 0, 2, 2),    NETD_IP (10, 0, 2, 3),        NETD_IP (1, 1, 1, 1),
};

static const guint16 ports[]
    = { 0, 7, 22, 53, 67, 68, 69, 80, 113, 123, 443, 513, 514, 546, 6000, 20000, 20001, 65535 };

/* xorshift32 */
static guint32
any (Mutation *self, guint32 limit)
{
  self->state ^= self->state << 13;
  self->state ^= self->state >> 17;
  self->state ^= self->state << 5;
  return self->state % limit;
}

/* --- Fields --- */

static guint32
interesting (Mutation *self, guint size)
{
  static const guint32 values[] = {
    0,      1,      2,      3,      4,      5,          7,          8,          15,
    16,     19,     20,     21,     27,     28,         40,         64,         127,
    128,    255,    256,    1024,   1480,   1500,       1501,       0x1fff,     0x2000,
    0x3fff, 0x4000, 0x7fff, 0x8000, 0xffff, 0x7fffffff, 0x80000000, 0xffffffff,
  };

  if (size == 4 && any (self, 2) == 0)
    return addresses[any (self, G_N_ELEMENTS (addresses))];
  if (size == 2 && any (self, 3) == 0)
    return ports[any (self, G_N_ELEMENTS (ports))];
  return any (self, 3) == 0 ? any (self, G_MAXUINT32) : values[any (self, G_N_ELEMENTS (values))];
}

static void
change_mac (Mutation *self, guint8 *mac)
{
  const guint8 known[6] = { 0x02, 0xf4, 10, 77, 0, (guint8) (1 + any (self, 4)) };

  switch (any (self, 6))
    {
    case 0:
      memset (mac, 0xff, 6);
      break;
    case 1:
      mac[any (self, 6)] ^= (guint8) (1u << any (self, 8));
      break;
    default:
      memcpy (mac, known, 6);
      break;
    }
}

static void
change_field (Mutation *self, guint8 *data, guint size)
{
  guint32 value = interesting (self, size);

  if (size == 6)
    change_mac (self, data);
  else if (any (self, 4) == 0)
    data[any (self, size)] ^= (guint8) (1u << any (self, 8));
  else if (size == 4)
    kit_set32 (data, value);
  else if (size == 2)
    kit_set16 (data, any (self, 4) == 0 ? (guint16) (kit_get16 (data) + any (self, 9) - 4)
                                        : (guint16) value);
  else
    data[0] = (guint8) value;
}

static void
change_one_of (Mutation *self, Record *record, const Field *fields, guint n_fields)
{
  const Field *field = &fields[any (self, n_fields)];

  if (record->length >= (gsize) field->offset + field->size)
    change_field (self, record->data + RECORD_HEAD + field->offset, field->size);
}

static void
change_header (Mutation *self, Record *record)
{
  const guint8 *frame = record->data + RECORD_HEAD;
  gboolean is_arp = record->length >= IP && kit_get16 (frame + 12) == NETD_ETHERTYPE_ARP;
  guint8 protocol = record->length > IP + 9 ? frame[IP + 9] : 0;

  if (any (self, 8) == 0)
    change_one_of (self, record, ethernet_fields, G_N_ELEMENTS (ethernet_fields));
  else if (is_arp)
    change_one_of (self, record, arp_fields, G_N_ELEMENTS (arp_fields));
  else if (any (self, 3) == 0)
    change_one_of (self, record, ip_fields, G_N_ELEMENTS (ip_fields));
  else if (protocol == KIT_PROTOCOL_TCP)
    change_one_of (self, record, tcp_fields, G_N_ELEMENTS (tcp_fields));
  else if (protocol == KIT_PROTOCOL_UDP)
    change_one_of (self, record, udp_fields, G_N_ELEMENTS (udp_fields));
  else
    change_one_of (self, record, icmp_fields, G_N_ELEMENTS (icmp_fields));
}

/* --- Whole frames --- */

static void
resize (Mutation *self, Record *record, gsize length)
{
  guint8 *frame = record->data + RECORD_HEAD;

  length = MIN (length, FRAME_MAX);
  for (gsize i = record->length; i < length; i++)
    frame[i] = (guint8) any (self, 256);
  record->length = length;
}

/* Usually the IP and UDP lengths follow. */
static void
resize_with_lengths (Mutation *self, Record *record)
{
  guint8 *frame = record->data + RECORD_HEAD;

  resize (self, record,
          any (self, 2) == 0 ? any (self, FRAME_MAX) : record->length + any (self, 64));
  if (record->length < TRANSPORT + 8 || any (self, 4) == 0)
    return;
  kit_set16 (frame + IP + 2, (guint16) (record->length - IP));
  if (frame[IP + 9] == KIT_PROTOCOL_UDP)
    kit_set16 (frame + TRANSPORT + 4, (guint16) (record->length - TRANSPORT));
}

/* Room for options in front of what follows the fixed header: kinds, lengths and all at random. */
static void
add_options (Mutation *self, Record *record)
{
  static const guint8 kinds[] = { 0, 1, 2, 3, 4, 5, 7, 8, 68, 131, 137, 148 };
  guint8 *frame = record->data + RECORD_HEAD;
  gboolean to_tcp
      = record->length > TRANSPORT + 20 && frame[IP + 9] == KIT_PROTOCOL_TCP && any (self, 2) == 0;
  gsize at = to_tcp ? TRANSPORT + 20 : TRANSPORT;
  gsize size = 4 + 4 * any (self, 10);

  if (record->length < at || record->length + size > FRAME_MAX)
    return;
  memmove (frame + at + size, frame + at, record->length - at);
  for (gsize i = 0; i < size; i++)
    frame[at + i] = i % 4 == 0   ? kinds[any (self, G_N_ELEMENTS (kinds))]
                    : i % 4 == 1 ? (guint8) any (self, 8)
                                 : (guint8) any (self, 256);
  record->length += size;
  kit_set16 (frame + IP + 2, (guint16) (record->length - IP));
  if (to_tcp)
    frame[TRANSPORT + 12] = (guint8) ((20 + size) / 4 << 4);
  else
    frame[IP] = (guint8) (0x40 | (20 + size) / 4);
}

static void
scramble (Mutation *self, Record *record)
{
  for (guint i = any (self, 24); i > 0 && record->length > 0; i--)
    record->data[RECORD_HEAD + any (self, (guint32) record->length)] = (guint8) any (self, 256);
}

/* A connection, query or echo of its own, not the one that was there before. */
static void
change_flow (Mutation *self, Record *record)
{
  guint8 *frame = record->data + RECORD_HEAD;

  if (record->length < TRANSPORT + 8)
    return;
  kit_set16 (frame + TRANSPORT, (guint16) any (self, 65536));
  if (any (self, 2) == 0)
    kit_set16 (frame + TRANSPORT + 2, ports[any (self, G_N_ELEMENTS (ports))]);
  if (any (self, 2) == 0)
    kit_set32 (frame + IP + 16, addresses[any (self, G_N_ELEMENTS (addresses))]);
}

static void
change_record (Mutation *self, Record *record)
{
  switch (any (self, 10))
    {
    case 0:
      resize_with_lengths (self, record);
      break;
    case 1:
      add_options (self, record);
      break;
    case 2:
      scramble (self, record);
      break;
    case 3:
    case 4:
      change_flow (self, record);
      break;
    case 5:
      resize (self, record, any (self, (guint32) record->length + 1));
      break;
    default:
      change_header (self, record);
      break;
    }
}

/* How it is sent. What unplugs a guest or is not a frame at all is rare, or nothing else would
 * last. */
static void
change_manner (Mutation *self, Record *record)
{
  guint8 how = 0;

  how |= any (self, 8) != 0 ? HOW_OWN : 0;
  how |= any (self, 2) != 0 ? HOW_CHECKSUM : 0;
  how |= any (self, 3) == 0 ? HOW_ANSWER : 0;
  how |= any (self, 6) == 0 ? HOW_STREAM : 0;
  how |= any (self, 6) == 0 ? HOW_TURN : 0;
  how |= any (self, 200) == 0 ? HOW_BIG : 0;
  how |= any (self, 300) == 0 ? HOW_RAW : 0;
  how |= any (self, 2000) == 0 ? HOW_DETACH : 0;
  record->data[0] = how;
  if (any (self, 4) == 0)
    record->data[1] = (guint8) any (self, 3);
}

/* --- Records --- */

static void
add_record (Mutation *self, const guint8 *data, gsize length)
{
  Record *record;

  if (self->n_records == RECORDS_MAX)
    return;
  record = g_new (Record, 1);
  record->length = MIN (length, FRAME_MAX);
  memcpy (record->data, data, RECORD_HEAD + record->length);
  self->records[self->n_records++] = record;
}

static void
read_records (Mutation *self, const guint8 *data, gsize size)
{
  gsize at = 0;

  while (size - at >= RECORD_HEAD)
    {
      gsize length = MIN (kit_get16 (data + at + 2), size - at - RECORD_HEAD);

      add_record (self, data + at, length);
      at += RECORD_HEAD + length;
    }
}

static void
change_order (Mutation *self)
{
  guint a = any (self, self->n_records), b = any (self, self->n_records);
  Record *record = self->records[a];

  if (any (self, 2) == 0)
    {
      self->records[a] = self->records[b];
      self->records[b] = record;
    }
  else
    add_record (self, record->data, record->length);
}

static gsize
write_records (Mutation *self, guint8 *data, gsize max_size)
{
  gsize size = 0;

  for (guint i = 0; i < self->n_records; i++)
    {
      Record *record = self->records[i];

      if (RECORD_HEAD + record->length <= max_size - size)
        {
          kit_set16 (record->data + 2, (guint16) record->length);
          memcpy (data + size, record->data, RECORD_HEAD + record->length);
          size += RECORD_HEAD + record->length;
        }
      g_free (record);
    }
  return size;
}

size_t
LLVMFuzzerCustomMutator (uint8_t *data, size_t size, size_t max_size, unsigned int seed)
{
  Mutation self = { .state = seed | 1 };

  read_records (&self, data, size);
  if (self.n_records == 0)
    add_record (&self, (const guint8[RECORD_HEAD]){ 0 }, 0);
  /* Copies first, so that there is much to change. */
  for (guint i = any (&self, 12); i > 0; i--)
    change_order (&self);
  for (guint i = 0; i < self.n_records; i++)
    {
      /* Some are left as they are: others need a connection that stands. */
      if (any (&self, 4) == 0)
        continue;
      change_manner (&self, self.records[i]);
      for (guint j = any (&self, 4); j > 0; j--)
        change_record (&self, self.records[i]);
    }
  return write_records (&self, data, max_size);
}
