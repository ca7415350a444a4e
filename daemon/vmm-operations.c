/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The only way in.
 *
 * Every door turns what it was sent into an operation, a caller and arguments, and from here on
 * nobody knows which door it was: authority, schema, handler, one domain of errors, one line in the
 * log. A caller who goes away ends his waiting; what the handler has begun goes on, because it
 * belongs to the machine and not to who asked for it. */

#include "config.h"

#include "vmm-operations.h"

#include <string.h>

#include "interfaces/vmm-error.h"
#include "vmm-arguments.h"
#include "vmm-authority.h"
#include "vmm-log.h"
#include "vmm-source.h"

/* Routes have at most four segments. */
#define MAX_SEGMENTS 8
/* What a caller sent comes back to him in messages; the tail of a console is shorter. */
#define MAX_MESSAGE (256 * 1024)

typedef struct
{
  const VmmOperation *operation;
  const VmmHandler *handler;
  VmmCall *call;
  GSource *cancelled; /* NULL for a call that nobody can cancel */
  gboolean answered;
} Waiting;

const VmmOperation *
vmm_operations_find (const char *name)
{
  g_return_val_if_fail (name != NULL, NULL);

  for (guint i = 0; i < vmm_n_operations; i++)
    if (g_str_equal (vmm_operations[i].name, name))
      return &vmm_operations[i];
  return NULL;
}

/* One segment, percent-decoded; NULL for a bad escape, a zero byte or what is no UTF-8. */
static char *
decode_segment (const char *start, gsize length)
{
  g_autofree char *out = g_malloc (length + 1);
  gsize used = 0;

  for (gsize i = 0; i < length; i++)
    {
      int high;
      int low;

      if (start[i] != '%')
        {
          out[used++] = start[i];
          continue;
        }
      high = i + 2 < length ? g_ascii_xdigit_value (start[i + 1]) : -1;
      low = high >= 0 ? g_ascii_xdigit_value (start[i + 2]) : -1;
      if (low < 0)
        return NULL;
      out[used++] = (char) (high * 16 + low);
      i += 2;
    }
  out[used] = '\0';
  if (!g_utf8_validate (out, (gssize) used, NULL))
    return NULL;
  return g_steal_pointer (&out);
}

/* The segments of "/a/b", NULL-terminated. FALSE when it is no path of a route: not absolute, an
 * empty segment, too many, or one that cannot be decoded. */
static gboolean
split_path (const char *path, char *segments[MAX_SEGMENTS + 1])
{
  guint count = 0;

  if (path[0] != '/')
    return FALSE;
  while (*path == '/')
    {
      gsize length = strcspn (++path, "/");

      if (length == 0 || count == MAX_SEGMENTS)
        return FALSE;
      segments[count] = decode_segment (path, length);
      if (segments[count++] == NULL)
        return FALSE;
      path += length;
    }
  return TRUE;
}

static gboolean
is_parameter (const char *segment, gsize length)
{
  return length > 2 && segment[0] == '{' && segment[length - 1] == '}';
}

/* Whether a template such as "/vms/{id}" takes the segments. */
static gboolean
template_takes (const char *template, char *const *segments)
{
  guint i = 0;

  for (; *template == '/'; i++)
    {
      gsize length = strcspn (++template, "/");

      if (segments[i] == NULL)
        return FALSE;
      if (!is_parameter (template, length)
          && (strlen (segments[i]) != length || memcmp (segments[i], template, length) != 0))
        return FALSE;
      template += length;
    }
  return segments[i] == NULL;
}

static void
add_path_arguments (const char *template, char *const *segments, JsonObject *arguments)
{
  for (guint i = 0; *template == '/'; i++)
    {
      gsize length = strcspn (++template, "/");

      if (is_parameter (template, length))
        {
          g_autofree char *name = g_strndup (template + 1, length - 2);

          json_object_set_string_member (arguments, name, segments[i]);
        }
      template += length;
    }
}

const VmmOperation *
vmm_operations_match (const char *method, const char *path, JsonObject *arguments)
{
  char *segments[MAX_SEGMENTS + 1] = { NULL };
  const VmmOperation *found = NULL;

  g_return_val_if_fail (method != NULL, NULL);
  g_return_val_if_fail (path != NULL, NULL);

  if (g_str_equal (method, "HEAD"))
    method = "GET";
  if (split_path (path, segments))
    for (guint i = 0; i < vmm_n_operations && found == NULL; i++)
      {
        const VmmOperation *row = &vmm_operations[i];

        if (row->path != NULL && g_str_equal (row->method, method)
            && template_takes (row->path, segments))
          found = row;
      }
  if (found != NULL && arguments != NULL)
    add_path_arguments (found->path, segments, arguments);
  for (guint i = 0; i <= MAX_SEGMENTS; i++)
    g_free (segments[i]);
  return found;
}

static void
waiting_free (gpointer data)
{
  Waiting *waiting = data;

  vmm_source_clear (&waiting->cancelled);
  g_object_unref (waiting->call);
  g_free (waiting);
}

static void
log_outcome (const VmmOperation *operation, VmmCall *call, const GError *error)
{
  const VmmErrorInfo *info;
  const char *subject = vmm_caller_get_subject (vmm_call_get_caller (call));
  char status[12];

  if (error == NULL || error->domain != VMM_ERROR)
    {
      vmm_log_debug (error == NULL ? "request done" : "request left", "operation", operation->name,
                     "caller", subject, NULL);
      return;
    }
  info = vmm_error_get_info ((VmmError) error->code);
  g_snprintf (status, sizeof status, "%u", info->http_status);
  if (info->http_status >= 500)
    vmm_log_error ("request failed", "operation", operation->name, "status", status, "error",
                   error->message, "caller", subject, NULL);
  else
    vmm_log_debug ("request refused", "operation", operation->name, "status", status, "error",
                   error->message, "caller", subject, NULL);
}

static void
shorten (GError *error)
{
  g_autofree char *text = NULL;

  if (error == NULL || strlen (error->message) <= MAX_MESSAGE)
    return;
  text = g_steal_pointer (&error->message);
  *g_utf8_find_prev_char (text, text + MAX_MESSAGE) = '\0';
  error->message = g_strconcat (text, "...", NULL);
}

/* Answers once; takes the result and the error. */
static void
answer (GTask *task, JsonNode *result, GError *error)
{
  Waiting *waiting = g_task_get_task_data (task);
  g_autoptr (JsonNode) node = result;
  g_autoptr (GError) local = error;

  if (waiting->answered)
    return;
  waiting->answered = TRUE;
  vmm_source_clear (&waiting->cancelled);
  vmm_error_normalize (&local);
  shorten (local);
  log_outcome (waiting->operation, waiting->call, local);
  if (local != NULL)
    g_task_return_error (task, g_steal_pointer (&local));
  else
    g_task_return_pointer (task, g_steal_pointer (&node), (GDestroyNotify) json_node_unref);
}

static gboolean
cancelled_cb (GCancellable *cancellable, gpointer user_data)
{
  GError *error = NULL;

  g_cancellable_set_error_if_cancelled (cancellable, &error);
  answer (user_data, NULL, error);
  return G_SOURCE_REMOVE;
}

static void
handler_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  Waiting *waiting = g_task_get_task_data (task);
  GError *error = NULL;
  JsonNode *node = waiting->handler->finish (g_task_get_source_object (task), result, &error);

  answer (task, node, error);
}

/* The arguments as the handler gets them; the message says where the wrong ones came from. */
static gboolean
check_arguments (const VmmOperation *operation, VmmCall *call, GError **error)
{
  VmmArgumentsFlags flags = operation->has_body
                                ? VMM_ARGUMENTS_STRICT
                                : VMM_ARGUMENTS_IGNORE_UNKNOWN | VMM_ARGUMENTS_TEXTUAL;
  g_autoptr (JsonObject) checked
      = vmm_arguments_check (operation, vmm_call_get_arguments (call), flags, error);

  if (checked == NULL)
    {
      g_prefix_error (error, operation->has_body ? "invalid request: body: " : "invalid request: ");
      return FALSE;
    }
  vmm_call_set_arguments (call, checked);
  return TRUE;
}

void
vmm_operation_call_async (VmmService *service, const VmmOperation *operation, VmmCall *call,
                          GAsyncReadyCallback callback, gpointer user_data)
{
  g_autoptr (GTask) task = NULL;
  Waiting *waiting;
  GError *error = NULL;

  g_return_if_fail (operation != NULL);
  g_return_if_fail (VMM_IS_CALL (call));

  task = g_task_new (service, NULL, callback, user_data);
  g_task_set_source_tag (task, vmm_operation_call_async);
  waiting = g_new0 (Waiting, 1);
  waiting->operation = operation;
  waiting->handler = vmm_handlers_find (operation->name);
  waiting->call = g_object_ref (call);
  g_task_set_task_data (task, waiting, waiting_free);

  if (waiting->handler == NULL)
    error = vmm_error_new (VMM_ERROR_INTERNAL, "operation %s has no handler", operation->name);
  if (error != NULL
      || g_cancellable_set_error_if_cancelled (vmm_call_get_cancellable (call), &error)
      || !vmm_authority_check (operation, vmm_call_get_caller (call), vmm_call_get_arguments (call),
                               &error)
      || !check_arguments (operation, call, &error))
    {
      answer (task, NULL, error);
      return;
    }
  waiting->cancelled
      = vmm_source_new_cancelled (vmm_call_get_cancellable (call), cancelled_cb, task);
  waiting->handler->start (service, call, handler_cb, g_steal_pointer (&task));
}

JsonNode *
vmm_operation_call_finish (GAsyncResult *result, GError **error)
{
  g_return_val_if_fail (G_IS_TASK (result), NULL);
  g_return_val_if_fail (g_async_result_is_tagged (result, vmm_operation_call_async), NULL);

  return g_task_propagate_pointer (G_TASK (result), error);
}
