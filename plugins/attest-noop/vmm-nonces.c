/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The nonces that are out.
 *
 * A nonce belongs to one VM, is good for one quote and for five minutes. Each VM has room for a few
 * of them: the oldest makes place for a new one. Everything here is pure but for the random bytes.
 */

#include "vmm-nonces.h"

#include <errno.h>
#include <sys/random.h>

#include "interfaces/vmm-error.h"

typedef struct
{
  guint8 bytes[VMM_NONCE_BYTES];
  gint64 issued_us;
} Nonce;

struct _VmmNonces
{
  GHashTable *by_vm; /* id to GArray of Nonce, oldest first */
};

VmmNonces *
vmm_nonces_new (void)
{
  VmmNonces *self = g_new0 (VmmNonces, 1);

  self->by_vm
      = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, (GDestroyNotify) g_array_unref);
  return self;
}

void
vmm_nonces_free (VmmNonces *self)
{
  g_hash_table_unref (self->by_vm);
  g_free (self);
}

/* A nonce of exactly the lifetime is still good. */
static gboolean
is_expired (const Nonce *nonce, gint64 now_us)
{
  return now_us - nonce->issued_us > VMM_NONCE_LIFETIME_US;
}

static void
sweep (VmmNonces *self, gint64 now_us)
{
  GHashTableIter iter;
  gpointer value;

  g_hash_table_iter_init (&iter, self->by_vm);
  while (g_hash_table_iter_next (&iter, NULL, &value))
    {
      GArray *nonces = value;

      while (nonces->len > 0 && is_expired (&g_array_index (nonces, Nonce, 0), now_us))
        g_array_remove_index (nonces, 0);
      if (nonces->len == 0)
        g_hash_table_iter_remove (&iter);
    }
}

static gboolean
fill_with_random (guint8 *bytes, gsize n, GError **error)
{
  ssize_t got;

  do
    got = getrandom (bytes, n, 0);
  while (got < 0 && errno == EINTR);
  if (got == (ssize_t) n) /* the kernel never gives less than asked for up to 256 bytes */
    return TRUE;

  vmm_set_error (error, VMM_ERROR_INTERNAL, "read random bytes: %s", g_strerror (errno));
  return FALSE;
}

GBytes *
vmm_nonces_issue (VmmNonces *self, const char *vm_id, gint64 now_us, GError **error)
{
  Nonce nonce = { .issued_us = now_us };
  GArray *nonces;

  sweep (self, now_us);
  nonces = g_hash_table_lookup (self->by_vm, vm_id);
  if (nonces == NULL && g_hash_table_size (self->by_vm) >= VMM_NONCES_MAX_VMS)
    {
      vmm_set_error (error, VMM_ERROR_CONFLICT, "too many VMs are being attested");
      return NULL;
    }
  if (!fill_with_random (nonce.bytes, sizeof nonce.bytes, error))
    return NULL;

  if (nonces == NULL)
    {
      nonces = g_array_new (FALSE, FALSE, sizeof (Nonce));
      g_hash_table_insert (self->by_vm, g_strdup (vm_id), nonces);
    }
  if (nonces->len >= VMM_NONCES_PER_VM)
    g_array_remove_index (nonces, 0);
  g_array_append_val (nonces, nonce);
  return g_bytes_new (nonce.bytes, sizeof nonce.bytes);
}

static gboolean
parse_hex (const char *hex, guint8 *bytes)
{
  for (gsize i = 0; i < VMM_NONCE_BYTES; i++)
    {
      int high = g_ascii_xdigit_value (hex[2 * i]);
      int low = high >= 0 ? g_ascii_xdigit_value (hex[2 * i + 1]) : -1;

      if (low < 0)
        return FALSE;
      bytes[i] = (guint8) (high << 4 | low);
    }
  return hex[2 * VMM_NONCE_BYTES] == '\0';
}

/* Takes as long for a wrong nonce as for a right one. */
static gboolean
is_equal (const guint8 *a, const guint8 *b)
{
  guint8 difference = 0;

  for (gsize i = 0; i < VMM_NONCE_BYTES; i++)
    difference |= a[i] ^ b[i];
  return difference == 0;
}

gboolean
vmm_nonces_take (VmmNonces *self, const char *vm_id, const char *hex, gint64 now_us)
{
  guint8 wanted[VMM_NONCE_BYTES];
  GArray *nonces;

  sweep (self, now_us);
  nonces = g_hash_table_lookup (self->by_vm, vm_id);
  if (nonces == NULL || !parse_hex (hex, wanted))
    return FALSE;

  for (guint i = 0; i < nonces->len; i++)
    if (is_equal (g_array_index (nonces, Nonce, i).bytes, wanted))
      {
        g_array_remove_index (nonces, i);
        return TRUE;
      }
  return FALSE;
}

void
vmm_nonces_drop (VmmNonces *self, const char *vm_id)
{
  g_hash_table_remove (self->by_vm, vm_id);
}
