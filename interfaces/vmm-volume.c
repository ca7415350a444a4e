/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A volume in use, what is told of volumes in a list, and the rule for their names.
 *
 * A storage backend makes a VmmVolume when it gives a volume out. QEMU opens the path itself, or
 * inherits the descriptor when there is no path. The descriptor also keeps a provider's lease: it
 * is closed on release or, at the latest, with the object.
 */

#include "vmm-storage-backend.h"

#include <string.h>
#include <unistd.h>

#include "vmm-error.h"

/* Backends append this to the name, and a file name has at most 255 bytes. */
#define VOLUME_SUFFIX ".volume"
#define FILE_NAME_MAX 255

struct _VmmVolume
{
  GObject parent_instance;

  char *name;
  char *path;
  guint64 size_bytes;
  int fd;
  gboolean is_block_device;
  gboolean read_only;
};

G_DEFINE_TYPE (VmmVolume, vmm_volume, G_TYPE_OBJECT)

static void
vmm_volume_dispose (GObject *object)
{
  vmm_volume_release (VMM_VOLUME (object));
  G_OBJECT_CLASS (vmm_volume_parent_class)->dispose (object);
}

static void
vmm_volume_finalize (GObject *object)
{
  VmmVolume *self = VMM_VOLUME (object);

  g_free (self->name);
  g_free (self->path);
  G_OBJECT_CLASS (vmm_volume_parent_class)->finalize (object);
}

static void
vmm_volume_class_init (VmmVolumeClass *klass)
{
  G_OBJECT_CLASS (klass)->dispose = vmm_volume_dispose;
  G_OBJECT_CLASS (klass)->finalize = vmm_volume_finalize;
}

static void
vmm_volume_init (VmmVolume *self)
{
  self->fd = -1;
}

/**
 * vmm_volume_new:
 * @name: the volume's name
 * @path: (nullable): where QEMU opens it, or %NULL when it is given the descriptor
 * @fd: an open descriptor that the volume takes over and closes on release, or -1
 * @size_bytes: its size, in bytes
 * @is_block_device: whether it is a block device, not a file
 * @read_only: whether it cannot be written
 *
 * Makes a volume, for storage backends.
 *
 * Returns: (transfer full): the volume
 */
VmmVolume *
vmm_volume_new (const char *name, const char *path, int fd, guint64 size_bytes,
                gboolean is_block_device, gboolean read_only)
{
  VmmVolume *self;

  g_return_val_if_fail (name != NULL, NULL);
  g_return_val_if_fail (path != NULL || fd >= 0, NULL);

  self = g_object_new (VMM_TYPE_VOLUME, NULL);
  self->name = g_strdup (name);
  self->path = g_strdup (path);
  self->fd = fd;
  self->size_bytes = size_bytes;
  self->is_block_device = is_block_device;
  self->read_only = read_only;
  return self;
}

/**
 * vmm_volume_get_name:
 * @self: a volume
 *
 * The name it was asked for by.
 *
 * Returns: (transfer none): the name
 */
const char *
vmm_volume_get_name (VmmVolume *self)
{
  g_return_val_if_fail (VMM_IS_VOLUME (self), NULL);

  return self->name;
}

/**
 * vmm_volume_get_path:
 * @self: a volume
 *
 * Where QEMU opens it.
 *
 * Returns: (transfer none) (nullable): the path, or %NULL when only the descriptor can be used
 */
const char *
vmm_volume_get_path (VmmVolume *self)
{
  g_return_val_if_fail (VMM_IS_VOLUME (self), NULL);

  return self->path;
}

/**
 * vmm_volume_get_fd:
 * @self: a volume
 *
 * The descriptor, which stays the volume's: duplicate it to keep it.
 *
 * Returns: the descriptor, or -1 when there is none or the volume was released
 */
int
vmm_volume_get_fd (VmmVolume *self)
{
  g_return_val_if_fail (VMM_IS_VOLUME (self), -1);

  return self->fd;
}

/**
 * vmm_volume_get_size:
 * @self: a volume
 *
 * How large it is.
 *
 * Returns: the size in bytes
 */
guint64
vmm_volume_get_size (VmmVolume *self)
{
  g_return_val_if_fail (VMM_IS_VOLUME (self), 0);

  return self->size_bytes;
}

/**
 * vmm_volume_set_size:
 * @self: a volume
 * @size_bytes: its size now, in bytes
 *
 * Says how large it has become, for storage backends.
 */
void
vmm_volume_set_size (VmmVolume *self, guint64 size_bytes)
{
  g_return_if_fail (VMM_IS_VOLUME (self));

  self->size_bytes = size_bytes;
}

/**
 * vmm_volume_is_block_device:
 * @self: a volume
 *
 * Whether it is a block device, not a file.
 *
 * Returns: %TRUE for a block device
 */
gboolean
vmm_volume_is_block_device (VmmVolume *self)
{
  g_return_val_if_fail (VMM_IS_VOLUME (self), FALSE);

  return self->is_block_device;
}

/**
 * vmm_volume_is_read_only:
 * @self: a volume
 *
 * Whether it cannot be written.
 *
 * Returns: %TRUE when it cannot
 */
gboolean
vmm_volume_is_read_only (VmmVolume *self)
{
  g_return_val_if_fail (VMM_IS_VOLUME (self), FALSE);

  return self->read_only;
}

/**
 * vmm_volume_release:
 * @self: a volume
 *
 * Gives the volume back: closes the descriptor and with it a provider's lease. The volume itself
 * stays. Releasing twice is fine.
 */
void
vmm_volume_release (VmmVolume *self)
{
  g_return_if_fail (VMM_IS_VOLUME (self));

  if (self->fd >= 0)
    close (self->fd);
  self->fd = -1;
}

/**
 * vmm_volume_info_new:
 * @name: the volume's name
 * @size_bytes: its size, in bytes
 * @used_bytes: what it occupies, in bytes
 * @read_only: whether it cannot be written
 *
 * Makes an entry of a list of volumes.
 *
 * Returns: (transfer full): the entry
 */
VmmVolumeInfo *
vmm_volume_info_new (const char *name, guint64 size_bytes, guint64 used_bytes, gboolean read_only)
{
  VmmVolumeInfo *self;

  g_return_val_if_fail (name != NULL, NULL);

  self = g_new0 (VmmVolumeInfo, 1);
  self->name = g_strdup (name);
  self->size_bytes = size_bytes;
  self->used_bytes = used_bytes;
  self->read_only = read_only;
  return self;
}

static VmmVolumeInfo *
info_copy (VmmVolumeInfo *self)
{
  return vmm_volume_info_new (self->name, self->size_bytes, self->used_bytes, self->read_only);
}

/**
 * vmm_volume_info_free:
 * @self: (transfer full): an entry
 *
 * Frees an entry of a list of volumes.
 */
void
vmm_volume_info_free (VmmVolumeInfo *self)
{
  g_return_if_fail (self != NULL);

  g_free (self->name);
  g_free (self);
}

G_DEFINE_BOXED_TYPE (VmmVolumeInfo, vmm_volume_info, info_copy, vmm_volume_info_free)

/**
 * vmm_volume_name_is_valid:
 * @name: (nullable): a name
 * @error: return location for an error
 *
 * Checks that a name can be a volume's: one path component, not empty, not `.` or `..`, without
 * control characters, short enough for a file name with `.volume` after it.
 *
 * Returns: %FALSE with `VMM_ERROR_INVALID_REQUEST` when it cannot
 */
gboolean
vmm_volume_name_is_valid (const char *name, GError **error)
{
  g_autofree char *cut = NULL;
  g_autofree char *shown = NULL;
  const char *wrong = NULL;

  if (name == NULL)
    name = "";

  if (strlen (name) + strlen (VOLUME_SUFFIX) > FILE_NAME_MAX)
    wrong = " too long";
  else if (name[0] == '\0' || g_str_equal (name, ".") || g_str_equal (name, ".."))
    wrong = "";
  else if (strchr (name, '/') != NULL)
    wrong = " must be a single path component";
  else if (!g_utf8_validate (name, -1, NULL))
    wrong = " must be valid UTF-8";
  for (const char *c = name; *c != '\0' && wrong == NULL; c++)
    if (g_ascii_iscntrl (*c))
      wrong = " must not contain control characters";
  if (wrong == NULL)
    return TRUE;

  cut = g_strndup (name, FILE_NAME_MAX);
  shown = g_strescape (cut, NULL);
  vmm_set_error (error, VMM_ERROR_INVALID_REQUEST, "volume name \"%s\"%s", shown, wrong);
  return FALSE;
}
