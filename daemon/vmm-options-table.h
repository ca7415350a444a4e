/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <glib.h>

G_BEGIN_DECLS

/* Private to vmm-options: what can be set, once. */
typedef enum
{
  VMM_OPTION_STRING,
  VMM_OPTION_BOOLEAN,
  VMM_OPTION_INT,
  VMM_OPTION_DURATION,
} VmmOptionType;

/* Why a value is no good (without the flag's name, transfer full), or NULL. */
typedef char *(*VmmOptionCheck) (const char *text, gint64 number);
/* A default that depends on the surroundings (transfer full); NULL for none. */
typedef char *(*VmmOptionDefault) (void);

typedef struct
{
  const char *name;     /* the long flag without dashes, and the key in the file */
  const char *variable; /* NULL for a flag only */
  VmmOptionType type;
  const char *fallback; /* NULL for none */
  const char *shown;    /* what --help says of the default, when that is not fallback */
  const char *argument; /* stands for the value in --help */
  const char *help;     /* translatable */
  VmmOptionDefault find_default;
  VmmOptionCheck check;
} VmmOptionRow;

extern const VmmOptionRow vmm_option_rows[];
extern const guint vmm_n_option_rows;

/* Reads a value of the row's type; number is 0 or 1, an integer, or microseconds. NULL or why not. */
char *vmm_option_row_parse (const VmmOptionRow *row, const char *text, gint64 *number);

G_END_DECLS
