/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <gio/gio.h>

#include "vmm-host-facts.h"

G_BEGIN_DECLS

/* What is known of an outside program: asked once for each file that it turns out to be. */
typedef struct
{
  VmmHostProgram program;
  const char *const *question; /* arguments; NULL for "--version" */
  const char *word;    /* the version stands behind it; NULL keeps all that it says */
  VmmHostFile file;    /* what was asked */
  gint64 ask_again_us; /* monotonic; 0 when the answer is final */
  gboolean found;
  char *version;
  char *answer;
  char *error;
} VmmHostTool;

void vmm_host_tool_clear (VmmHostTool *self);
/* Makes the answer fit the file. The tool must stay until the callback was called. */
void vmm_host_tool_update_async (VmmHostTool *self, const VmmHostFile *file, guint limit_ms,
                                 GAsyncReadyCallback callback, gpointer user_data);
/* Whether the answer has the text; also when nobody could be asked. */
gboolean vmm_host_tool_mentions (const VmmHostTool *self, const char *text);

/* Answers that came too late are asked for again after this. */
#define VMM_HOST_ASK_AGAIN_US (60 * G_TIME_SPAN_SECOND)
#define VMM_HOST_NOT_ON_PATH "executable file not found in $PATH"

G_END_DECLS
