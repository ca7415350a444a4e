/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <gio/gio.h>

G_BEGIN_DECLS

/* Lines over a socket, and the descriptors that come with them, from a peer that is not trusted:
 * lines, descriptors and what waits to be sent are bounded. Reference counted. */
typedef struct _VmmNetdLines VmmNetdLines;

#define VMM_NETD_LINE_MAX 65536

typedef struct
{
  /* Without the line's end. */
  void (*line) (const char *line, gsize length, gpointer user_data);
  /* Once, when the peer is gone or broke a bound; not after vmm_netd_lines_close(). */
  void (*closed) (const char *reason, gpointer user_data);
  gpointer user_data;
} VmmNetdLinesFuncs;

/* Reads from now on, in the main context. */
VmmNetdLines *vmm_netd_lines_new (GSocket *socket, const VmmNetdLinesFuncs *funcs);
VmmNetdLines *vmm_netd_lines_ref (VmmNetdLines *self);
void vmm_netd_lines_unref (VmmNetdLines *self);
/* Sends a text and the line's end. */
void vmm_netd_lines_send (VmmNetdLines *self, const char *text);
/* The oldest descriptor that came, to be closed by the caller; -1 when there is none. */
int vmm_netd_lines_take_fd (VmmNetdLines *self);
/* Nobody is called any more. */
void vmm_netd_lines_close (VmmNetdLines *self);
/* Closes it because of what the peer said: the closed function follows. */
void vmm_netd_lines_fail (VmmNetdLines *self, const char *reason);

G_DEFINE_AUTOPTR_CLEANUP_FUNC (VmmNetdLines, vmm_netd_lines_unref)

G_END_DECLS
