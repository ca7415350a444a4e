/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Makes the ed25519 key pair of a VM.
 *
 * gnutls makes the key; the container around it is OpenSSH's own ("openssh-key-v1", PROTOCOL.key
 * in the OpenSSH sources), because ssh reads ed25519 keys in no other one. The key is not
 * encrypted: it is kept in a 0600 file in the VM's 0700 folder. Every buffer that held the private
 * half is wiped before it is freed; the text that is returned belongs to the caller, who does the
 * same.
 */
#include "config.h"

#include "vmm-ssh-key.h"

#include <gnutls/abstract.h>
#include <gnutls/crypto.h>
#include <string.h>

#include "interfaces/vmm-error.h"

#define KEY_TYPE "ssh-ed25519"
#define KEY_SIZE 32
#define COMMENT_MAX 256
#define PEM_WIDTH 70
#define PEM_BEGIN "-----BEGIN OPENSSH PRIVATE KEY-----\n"
#define PEM_END "-----END OPENSSH PRIVATE KEY-----\n"
/* The block size that the private section is padded to when nothing encrypts it. */
#define PADDING 8

typedef struct
{
  guint8 seed[KEY_SIZE];
  guint8 public[KEY_SIZE];
} KeyPair;

/* A buffer of a size known beforehand, so that growing leaves no copy of a secret behind. */
typedef struct
{
  guint8 *data;
  gsize size;
  gsize used;
} Buffer;

static void
buffer_init (Buffer *buffer, gsize size)
{
  buffer->data = g_malloc0 (size);
  buffer->size = size;
  buffer->used = 0;
}

static void
buffer_wipe (Buffer *buffer)
{
  gnutls_memset (buffer->data, 0, buffer->size);
  g_clear_pointer (&buffer->data, g_free);
}

static void
buffer_add (Buffer *buffer, const void *data, gsize size)
{
  g_assert (size <= buffer->size - buffer->used);
  if (size > 0)
    memcpy (buffer->data + buffer->used, data, size);
  buffer->used += size;
}

static void
buffer_add_uint32 (Buffer *buffer, guint32 value)
{
  guint32 big = GUINT32_TO_BE (value);

  buffer_add (buffer, &big, sizeof big);
}

static void
buffer_add_string (Buffer *buffer, const void *data, gsize size)
{
  buffer_add_uint32 (buffer, size);
  buffer_add (buffer, data, size);
}

static gsize
string_size (gsize size)
{
  return sizeof (guint32) + size;
}

static gsize
public_size (void)
{
  return string_size (strlen (KEY_TYPE)) + string_size (KEY_SIZE);
}

static void
add_public (Buffer *buffer, const KeyPair *pair)
{
  buffer_add_string (buffer, KEY_TYPE, strlen (KEY_TYPE));
  buffer_add_string (buffer, pair->public, KEY_SIZE);
}

/* Takes over a part of the key, which must have exactly its size, and wipes where it came from. */
static gboolean
take_datum (gnutls_datum_t *datum, guint8 key[KEY_SIZE])
{
  gboolean fits = datum->data != NULL && datum->size == KEY_SIZE;

  if (fits)
    memcpy (key, datum->data, KEY_SIZE);
  if (datum->data != NULL)
    gnutls_memset (datum->data, 0, datum->size);
  gnutls_free (datum->data);
  datum->data = NULL;
  return fits;
}

static int
export_pair (gnutls_privkey_t key, KeyPair *pair)
{
  gnutls_datum_t x = { NULL, 0 };
  gnutls_datum_t k = { NULL, 0 };
  gboolean has_public;
  gboolean has_seed;
  int status = gnutls_privkey_generate (key, GNUTLS_PK_EDDSA_ED25519, 0, 0);

  if (status == GNUTLS_E_SUCCESS)
    status = gnutls_privkey_export_ecc_raw2 (key, NULL, &x, NULL, &k, 0);
  if (status != GNUTLS_E_SUCCESS)
    return status;
  has_public = take_datum (&x, pair->public);
  has_seed = take_datum (&k, pair->seed);
  return has_public && has_seed ? GNUTLS_E_SUCCESS : GNUTLS_E_INTERNAL_ERROR;
}

static gboolean
generate_pair (KeyPair *pair, GError **error)
{
  gnutls_privkey_t key;
  int status = gnutls_global_init ();

  if (status == GNUTLS_E_SUCCESS)
    status = gnutls_privkey_init (&key);
  if (status == GNUTLS_E_SUCCESS)
    {
      status = export_pair (key, pair);
      gnutls_privkey_deinit (key);
    }
  if (status != GNUTLS_E_SUCCESS)
    vmm_set_error (error, VMM_ERROR_INTERNAL, "make an ssh key: %s", gnutls_strerror (status));
  return status == GNUTLS_E_SUCCESS;
}

/* The section that would be encrypted: a number twice, the key, the comment, padding 1 2 3 ... */
static gboolean
build_private (const KeyPair *pair, const char *comment, Buffer *buffer, GError **error)
{
  gsize size = 2 * sizeof (guint32) + public_size () + string_size (2 * KEY_SIZE)
               + string_size (strlen (comment));
  guint32 check;
  int status = gnutls_rnd (GNUTLS_RND_NONCE, &check, sizeof check);

  if (status != GNUTLS_E_SUCCESS)
    {
      vmm_set_error (error, VMM_ERROR_INTERNAL, "make an ssh key: %s", gnutls_strerror (status));
      return FALSE;
    }
  buffer_init (buffer, (size + PADDING - 1) / PADDING * PADDING);
  buffer_add_uint32 (buffer, check);
  buffer_add_uint32 (buffer, check);
  add_public (buffer, pair);
  buffer_add_uint32 (buffer, 2 * KEY_SIZE);
  buffer_add (buffer, pair->seed, KEY_SIZE);
  buffer_add (buffer, pair->public, KEY_SIZE);
  buffer_add_string (buffer, comment, strlen (comment));
  for (guint8 pad = 1; buffer->used < buffer->size; pad++)
    buffer_add (buffer, &pad, 1);
  return TRUE;
}

static void
build_container (const KeyPair *pair, const Buffer *private, Buffer *buffer)
{
  static const char magic[] = "openssh-key-v1"; /* its NUL belongs to it */
  static const char none[] = "none";

  buffer_init (buffer, sizeof magic + 2 * string_size (strlen (none)) + string_size (0)
                       + sizeof (guint32) + string_size (public_size ())
                       + string_size (private->used));
  buffer_add (buffer, magic, sizeof magic);
  buffer_add_string (buffer, none, strlen (none)); /* cipher */
  buffer_add_string (buffer, none, strlen (none)); /* key derivation */
  buffer_add_string (buffer, "", 0);
  buffer_add_uint32 (buffer, 1); /* keys */
  buffer_add_uint32 (buffer, public_size ());
  add_public (buffer, pair);
  buffer_add_string (buffer, private->data, private->used);
}

static char *
armour (const Buffer *container)
{
  char *text = g_base64_encode (container->data, container->used);
  gsize length = strlen (text);
  gsize lines = (length + PEM_WIDTH - 1) / PEM_WIDTH;
  Buffer pem;

  buffer_init (&pem, strlen (PEM_BEGIN) + length + lines + strlen (PEM_END) + 1);
  buffer_add (&pem, PEM_BEGIN, strlen (PEM_BEGIN));
  for (gsize i = 0; i < length; i += PEM_WIDTH)
    {
      buffer_add (&pem, text + i, MIN (PEM_WIDTH, length - i));
      buffer_add (&pem, "\n", 1);
    }
  buffer_add (&pem, PEM_END, strlen (PEM_END) + 1);
  gnutls_memset (text, 0, length);
  g_free (text);
  return (char *) pem.data;
}

static char *
format_public (const KeyPair *pair, const char *comment)
{
  g_autofree char *text = NULL;
  Buffer buffer;

  buffer_init (&buffer, public_size ());
  add_public (&buffer, pair);
  text = g_base64_encode (buffer.data, buffer.used);
  buffer_wipe (&buffer);
  return g_strdup_printf (KEY_TYPE " %s %s", text, comment);
}

/* The comment ends up in a line of authorized_keys: it must not begin another one. */
static gboolean
comment_is_valid (const char *comment)
{
  gsize length = strlen (comment);

  if (length == 0 || length > COMMENT_MAX)
    return FALSE;
  for (gsize i = 0; i < length; i++)
    if (!g_ascii_isgraph (comment[i]) && comment[i] != ' ')
      return FALSE;
  return TRUE;
}

gboolean
vmm_ssh_key_generate (const char *comment, char **private_pem, char **public_line, GError **error)
{
  KeyPair pair;
  Buffer private;
  Buffer container;
  gboolean built;

  g_return_val_if_fail (comment != NULL && private_pem != NULL && public_line != NULL, FALSE);

  if (!comment_is_valid (comment))
    {
      vmm_set_error (error, VMM_ERROR_INVALID_REQUEST,
                     "an ssh key's comment must be 1-%d printable ASCII characters", COMMENT_MAX);
      return FALSE;
    }
  built = generate_pair (&pair, error) && build_private (&pair, comment, &private, error);
  if (built)
    {
      build_container (&pair, &private, &container);
      *private_pem = armour (&container);
      *public_line = format_public (&pair, comment);
      buffer_wipe (&private);
      buffer_wipe (&container);
    }
  gnutls_memset (&pair, 0, sizeof pair);
  return built;
}
