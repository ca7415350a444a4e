/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <glib-object.h>

G_BEGIN_DECLS

/* One table of flags (name, variable, type, default, help) feeds the command line, the environment,
 * the configuration file, --help and the manual's test. Read once, immutable, passed down.
 *
 * A flag wins over its variable, that over the file, that over the default. A variable that is
 * empty or cannot be read counts as not there; a wrong flag or a wrong value in the file is an error
 * that names it. */
typedef struct _VmmOptions VmmOptions;

/* argv[0] is skipped. Anything that is no flag is an error. */
VmmOptions *vmm_options_parse (int *argc, char ***argv, GError **error);
/* Name and value by turns, then NULL; neither variables nor files are read. */
VmmOptions *vmm_options_new_for_test (const char *const *pairs, GError **error);
VmmOptions *vmm_options_ref (VmmOptions *self);
void vmm_options_unref (VmmOptions *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (VmmOptions, vmm_options_unref)

/* Names are the long flags without dashes; asking for one that is not in the table, or as another
 * type than its own, is a programming error. */
const char *vmm_options_get_string (VmmOptions *self, const char *name);
gboolean vmm_options_get_boolean (VmmOptions *self, const char *name);
gint64 vmm_options_get_int (VmmOptions *self, const char *name);
/* In microseconds. */
gint64 vmm_options_get_duration (VmmOptions *self, const char *name);
/* Whether flag, variable or file gave it, rather than the default. */
gboolean vmm_options_is_set (VmmOptions *self, const char *name);
/* --help was given: the values are the defaults then. */
gboolean vmm_options_wants_help (VmmOptions *self);
/* The text of --help. */
char *vmm_options_format_help (void);

typedef void (*VmmOptionsVisitor) (const char *flag, const char *variable, const char *fallback,
                                   const char *help, gpointer user_data);
void vmm_options_foreach (VmmOptionsVisitor visitor, gpointer user_data);

G_END_DECLS
