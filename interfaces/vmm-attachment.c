/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What a network backend answers when a VM is plugged in: QEMU's arguments for the port, and the
 * device files that QEMU needs for them, which a launcher has to let through.
 */

#include "vmm-attachment.h"

struct _VmmAttachment
{
  GStrv arguments;
  GPtrArray *devices; /* NULL-terminated */
};

G_DEFINE_BOXED_TYPE (VmmAttachment, vmm_attachment, vmm_attachment_ref, vmm_attachment_unref)

/**
 * vmm_attachment_new:
 * @arguments: (array zero-terminated=1): QEMU's arguments for the port: pairs of `-netdev` or
 *   `-device` and a value
 *
 * Makes an attachment that needs no device file.
 *
 * Returns: (transfer full): the attachment
 */
VmmAttachment *
vmm_attachment_new (const char *const *arguments)
{
  VmmAttachment *self;

  g_return_val_if_fail (arguments != NULL, NULL);

  self = g_atomic_rc_box_new0 (VmmAttachment);
  self->arguments = g_strdupv ((GStrv) arguments);
  self->devices = g_ptr_array_new_with_free_func (g_free);
  g_ptr_array_add (self->devices, NULL);
  return self;
}

/**
 * vmm_attachment_ref:
 * @self: an attachment
 *
 * Takes a reference.
 *
 * Returns: (transfer full): @self
 */
VmmAttachment *
vmm_attachment_ref (VmmAttachment *self)
{
  g_return_val_if_fail (self != NULL, NULL);

  return g_atomic_rc_box_acquire (self);
}

static void
clear (gpointer data)
{
  VmmAttachment *self = data;

  g_strfreev (self->arguments);
  g_ptr_array_unref (self->devices);
}

/**
 * vmm_attachment_unref:
 * @self: (transfer full): an attachment
 *
 * Gives a reference back.
 */
void
vmm_attachment_unref (VmmAttachment *self)
{
  g_return_if_fail (self != NULL);

  g_atomic_rc_box_release_full (self, clear);
}

/**
 * vmm_attachment_add_device:
 * @self: an attachment that was not handed out yet
 * @path: a device file such as `/dev/net/tun`
 *
 * Adds a device file that QEMU opens for the port.
 */
void
vmm_attachment_add_device (VmmAttachment *self, const char *path)
{
  g_return_if_fail (self != NULL);
  g_return_if_fail (path != NULL);

  g_ptr_array_insert (self->devices, (int) self->devices->len - 1, g_strdup (path));
}

/**
 * vmm_attachment_get_arguments:
 * @self: an attachment
 *
 * Gets QEMU's arguments for the port.
 *
 * Returns: (transfer none) (array zero-terminated=1): pairs of an option and its value
 */
const char *const *
vmm_attachment_get_arguments (VmmAttachment *self)
{
  g_return_val_if_fail (self != NULL, NULL);

  return (const char *const *) self->arguments;
}

/**
 * vmm_attachment_get_devices:
 * @self: an attachment
 *
 * Gets the device files that QEMU opens for the port.
 *
 * Returns: (transfer none) (array zero-terminated=1): their paths
 */
const char *const *
vmm_attachment_get_devices (VmmAttachment *self)
{
  g_return_val_if_fail (self != NULL, NULL);

  return (const char *const *) self->devices->pdata;
}
