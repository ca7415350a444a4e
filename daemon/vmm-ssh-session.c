/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* One command over one connection to a guest's sshd.
 *
 * The guest is hostile. libssh is driven without blocking and asked after every read of the socket,
 * 4 KiB, what that has led to, so that nothing it keeps for the peer grows unseen:
 *
 *   output              both streams together at most VMM_SSH_OUTPUT_MAX; more is an error, because
 *                       a cut answer looks like a whole one
 *   packets without     chatter_max in a connection's life: an answer to each may wait in memory
 *   output              for a guest that does not read. An sshd that asks every 15 seconds whether
 *                       we live may do so for 11 days
 *   all bytes           received_max, far more than the output in packets of one byte takes
 *   requests, channels  that the guest wants to open (agent, X11, forwards): refused at once
 *
 * Time is the caller's: it shuts the socket down. That ends a blocking send as well, which libssh
 * falls back to (it makes the socket blocking). Nothing but the arguments decides what happens: no
 * configuration file, no known_hosts, no agent, no environment.
 */
#include "config.h"

#include "vmm-ssh-session.h"

#include <libssh/callbacks.h>
#include <libssh/libssh.h>
#include <libssh/server.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "interfaces/vmm-error.h"
#include "vmm-file.h"
#include "vmm-log.h"
#include "vmm-ssh-pin.h"

#define KEY_LIMIT (16 * 1024)
#define STRANGER_MAX (1024 * 1024)
#define TEXT_MAX 200
#define NOWHERE "/nonexistent"

#define HOST_KEYS                                                                                  \
  "ssh-ed25519,ecdsa-sha2-nistp256,ecdsa-sha2-nistp384,ecdsa-sha2-nistp521,rsa-sha2-512,"          \
  "rsa-sha2-256"
#define KEY_EXCHANGES                                                                              \
  "curve25519-sha256,curve25519-sha256@libssh.org,ecdh-sha2-nistp256,ecdh-sha2-nistp384,"          \
  "ecdh-sha2-nistp521"
#define CIPHERS                                                                                    \
  "aes256-gcm@openssh.com,aes128-gcm@openssh.com,chacha20-poly1305@openssh.com,aes256-ctr,"        \
  "aes128-ctr"
#define MACS                                                                                       \
  "hmac-sha2-256-etm@openssh.com,hmac-sha2-512-etm@openssh.com,hmac-sha2-256,hmac-sha2-512"

typedef struct
{
  VmmSshJob *job;
  ssh_session session;
  ssh_event event;
  ssh_channel channel;
  struct ssh_channel_callbacks_struct callbacks;
  struct ssh_counter_struct traffic;
  struct ssh_counter_struct packets;
  guint64 output_packets;
  GByteArray *output[2];
  gboolean is_too_much;
  gboolean has_status;
  gint64 exit_code;
  gboolean is_at_end; /* of its output */
  gboolean is_closed;
} Session;

/* RFC 4254, 6.10: the names that exit-signal knows. */
static const struct
{
  const char *name;
  int number;
} signal_numbers[] = {
  { "ABRT", SIGABRT }, { "ALRM", SIGALRM }, { "FPE", SIGFPE },   { "HUP", SIGHUP },
  { "ILL", SIGILL },   { "INT", SIGINT },   { "KILL", SIGKILL }, { "PIPE", SIGPIPE },
  { "QUIT", SIGQUIT }, { "SEGV", SIGSEGV }, { "TERM", SIGTERM }, { "USR1", SIGUSR1 },
  { "USR2", SIGUSR2 },
};

VmmSshJob *
vmm_ssh_job_new (void)
{
  VmmSshJob *job = g_new0 (VmmSshJob, 1);

  job->setup_ms = 15 * 1000;
  job->chatter_max = 16 * 1024;
  job->received_max = 1024 * 1024 * 1024;
  job->fd = -1;
  return job;
}

void
vmm_ssh_job_free (VmmSshJob *job)
{
  if (job->fd >= 0)
    close (job->fd);
  g_free (job->vm_id);
  g_free (job->host);
  g_free (job->key_path);
  g_free (job->pin_path);
  g_free (job->command);
  g_free (job);
}

void
vmm_ssh_result_free (VmmSshResult *result)
{
  g_free (result->stdout_text);
  g_free (result->stderr_text);
  g_free (result);
}

char *
vmm_ssh_job_describe_stage (const VmmSshJob *job, VmmSshStage stage)
{
  if (stage <= VMM_SSH_AUTHENTICATION)
    return g_strdup_printf ("ssh %s:%u: ", job->host, job->port);
  return g_strdup (stage == VMM_SSH_SESSION ? "ssh session: " : "ssh run: ");
}

/* Always FALSE. */
static gboolean fail (Session *self, GError **error, const char *format, ...) G_GNUC_PRINTF (3, 4);

static gboolean
fail (Session *self, GError **error, const char *format, ...)
{
  g_autofree char *prefix
      = vmm_ssh_job_describe_stage (self->job, g_atomic_int_get (&self->job->stage));
  g_autofree char *text = NULL;
  va_list arguments;

  va_start (arguments, format);
  text = g_strdup_vprintf (format, arguments);
  va_end (arguments);
  vmm_set_error (error, VMM_ERROR_INTERNAL, "%s%s", prefix, text);
  return FALSE;
}

/* With what libssh says, which may be the guest's own words. */
static gboolean
fail_of_library (Session *self, const char *what, GError **error)
{
  g_autofree char *text = vmm_log_escape (ssh_get_error (self->session), TEXT_MAX);

  /* What it makes of a peer that was gone from the start. */
  if (g_str_has_suffix (text, "Success"))
    text[0] = '\0';
  if (!ssh_is_connected (self->session))
    what = "the connection ended";
  return fail (self, error, "%s%s%s", what, text[0] != '\0' ? ": " : "", text);
}

/* -- what the guest sends --------------------------------------------------------------------- */

static int
data_cb (ssh_session session, ssh_channel channel, void *data, uint32_t length, int is_stderr,
         void *user_data)
{
  Session *self = user_data;
  gsize used = self->output[0]->len + self->output[1]->len;

  if (length > 0)
    self->output_packets++;
  if (length > VMM_SSH_OUTPUT_MAX - used)
    self->is_too_much = TRUE;
  else if (!self->is_too_much)
    g_byte_array_append (self->output[is_stderr ? 1 : 0], data, length);
  return (int) length;
}

static void
eof_cb (ssh_session session, ssh_channel channel, void *user_data)
{
  Session *self = user_data;

  self->is_at_end = TRUE;
}

static void
close_cb (ssh_session session, ssh_channel channel, void *user_data)
{
  Session *self = user_data;

  self->is_closed = TRUE;
}

static void
exit_status_cb (ssh_session session, ssh_channel channel, int status, void *user_data)
{
  Session *self = user_data;

  self->has_status = TRUE;
  self->exit_code = (guint32) status;
}

static void
exit_signal_cb (ssh_session session, ssh_channel channel, const char *name, int has_core,
                const char *message, const char *language, void *user_data)
{
  Session *self = user_data;

  self->has_status = TRUE;
  self->exit_code = 128;
  for (guint i = 0; i < G_N_ELEMENTS (signal_numbers); i++)
    if (g_strcmp0 (name, signal_numbers[i].name) == 0)
      self->exit_code += signal_numbers[i].number;
}

/* Whatever the guest asks of us: 1 makes libssh refuse it, and forget it. */
static int
request_cb (ssh_session session, ssh_message message, void *user_data)
{
  return 1;
}

static gboolean
check_bounds (Session *self, GError **error)
{
  if (self->is_too_much)
    return fail (self, error,
                 "the command wrote more than %d MiB: let it write to a file in the guest",
                 VMM_SSH_OUTPUT_MAX / (1024 * 1024));
  if (self->packets.in_packets > self->output_packets + self->job->chatter_max)
    return fail (self, error, "the guest sent more than %u packets without output",
                 self->job->chatter_max);
  if (g_atomic_int_get (&self->job->stage) <= VMM_SSH_AUTHENTICATION
      && self->traffic.in_bytes > STRANGER_MAX)
    return fail (self, error, "the guest sent more than 1 MiB without letting root in");
  if (self->traffic.in_bytes > self->job->received_max)
    return fail (self, error, "the guest sent more than %" G_GUINT64_FORMAT " MiB",
                 self->job->received_max / (1024 * 1024));
  return TRUE;
}

/* Waits for the socket, and lets libssh take what is there. */
static gboolean
wait_for_guest (Session *self, GError **error)
{
  int status = ssh_event_dopoll (self->event, -1);

  if (!check_bounds (self, error))
    return FALSE;
  if (status == SSH_ERROR)
    return fail_of_library (self, "the connection ended", error);
  return TRUE;
}

/* -- setting up ------------------------------------------------------------------------------- */

static ssh_key
read_key (Session *self, GError **error)
{
  g_autoptr (GError) local = NULL;
  g_autoptr (GBytes) content = vmm_file_read (self->job->key_path, KEY_LIMIT, &local);
  ssh_key key = NULL;
  char *text;
  gsize size;
  int status;

  if (content == NULL)
    {
      fail (self, error, "%s", local->message);
      return NULL;
    }
  size = g_bytes_get_size (content);
  text = g_strndup (g_bytes_get_data (content, NULL), size);
  status = ssh_pki_import_privkey_base64 (text, NULL, NULL, NULL, &key);
  explicit_bzero (text, size);
  g_free (text);
  explicit_bzero ((gpointer) g_bytes_get_data (content, NULL), size);
  if (status != SSH_OK)
    {
      fail (self, error, "%s is no private key that can be used", self->job->key_path);
      return NULL;
    }
  return key;
}

/* The type that is pinned comes first, lest a guest with several keys shows another one. */
static char *
order_host_keys (const char *pinned)
{
  g_autofree char *type = NULL;

  if (pinned == NULL)
    return g_strdup (HOST_KEYS);
  type = g_strndup (pinned, strcspn (pinned, " "));
  if (g_str_equal (type, "ssh-rsa"))
    return g_strdup ("rsa-sha2-512,rsa-sha2-256," HOST_KEYS);
  return g_strconcat (type, ",", HOST_KEYS, NULL);
}

static gboolean
set_options (Session *self, const char *pinned, GError **error)
{
  g_autofree char *host_keys = order_host_keys (pinned);
  gboolean process_config = FALSE;
  const struct
  {
    enum ssh_options_e option;
    const void *value;
  } options[] = {
    { SSH_OPTIONS_PROCESS_CONFIG, &process_config },
    { SSH_OPTIONS_SSH_DIR, NOWHERE },
    { SSH_OPTIONS_KNOWNHOSTS, NOWHERE },
    { SSH_OPTIONS_GLOBAL_KNOWNHOSTS, NOWHERE },
    { SSH_OPTIONS_HOST, self->job->host },
    { SSH_OPTIONS_USER, "root" },
    { SSH_OPTIONS_KEY_EXCHANGE, KEY_EXCHANGES },
    { SSH_OPTIONS_HOSTKEYS, host_keys },
    { SSH_OPTIONS_PUBLICKEY_ACCEPTED_TYPES, "ssh-ed25519" },
    { SSH_OPTIONS_CIPHERS_C_S, CIPHERS },
    { SSH_OPTIONS_CIPHERS_S_C, CIPHERS },
    { SSH_OPTIONS_HMAC_C_S, MACS },
    { SSH_OPTIONS_HMAC_S_C, MACS },
    { SSH_OPTIONS_COMPRESSION, "no" },
    { SSH_OPTIONS_FD, &self->job->fd },
  };

  for (guint i = 0; i < G_N_ELEMENTS (options); i++)
    if (ssh_options_set (self->session, options[i].option, options[i].value) < 0)
      return fail_of_library (self, "set up", error);
  ssh_set_blocking (self->session, 0);
  ssh_set_message_callback (self->session, request_cb, self);
  ssh_set_counters (self->session, &self->traffic, &self->packets);
  return TRUE;
}

/* NULL as long as the guest did not prove to have one. */
static char *
dup_host_key (ssh_session session)
{
  ssh_key key = NULL;
  char *base64 = NULL;
  char *line = NULL;

  if (ssh_get_server_publickey (session, &key) != SSH_OK)
    return NULL;
  if (ssh_pki_export_pubkey_base64 (key, &base64) == SSH_OK)
    line = g_strdup_printf ("%s %s", ssh_key_type_to_char (ssh_key_type (key)), base64);
  ssh_string_free_char (base64);
  ssh_key_free (key);
  return line;
}

static gboolean
check_host_key (Session *self, const char *pinned, const char *presented, GError **error)
{
  g_autofree char *before = NULL;
  g_autofree char *now = NULL;

  if (pinned == NULL || presented == NULL || g_str_equal (pinned, presented))
    return TRUE;
  before = vmm_ssh_pin_fingerprint (pinned);
  now = vmm_ssh_pin_fingerprint (presented);
  return fail (self, error,
               "host key of vm %s changed: %s is pinned and the guest shows %s; if it was meant to "
               "get a new one, remove %s",
               self->job->vm_id, before, now, self->job->pin_path);
}

/* The greeting and the key exchange. */
static gboolean
greet (Session *self, GError **error)
{
  int status = ssh_connect (self->session);

  self->job->fd = -1; /* it goes with the session now */
  if (status == SSH_AGAIN && ssh_event_add_session (self->event, self->session) != SSH_OK)
    return fail (self, error, "out of memory");
  while (status == SSH_AGAIN && wait_for_guest (self, error))
    status = ssh_connect (self->session);
  if (status == SSH_ERROR)
    return fail_of_library (self, "the connection ended", error);
  return status == SSH_OK;
}

static gboolean
log_in (Session *self, ssh_key key, GError **error)
{
  int status;

  g_atomic_int_set (&self->job->stage, VMM_SSH_AUTHENTICATION);
  while ((status = ssh_userauth_publickey (self->session, NULL, key)) == SSH_AUTH_AGAIN)
    if (!wait_for_guest (self, error))
      return FALSE;
  if (status == SSH_AUTH_SUCCESS)
    return TRUE;
  if (status == SSH_AUTH_ERROR)
    return fail_of_library (self, "log in", error);
  return fail (self, error,
               "the guest does not let root in with the key of vm %s: its public key has to be in "
               "root's authorized_keys",
               self->job->vm_id);
}

/* A guest that was let in by nobody is not pinned: only now is it sure that it knows our key. */
static gboolean
pin_host_key (Session *self, const char *presented, GError **error)
{
  g_autofree char *winner = NULL;
  g_autoptr (GError) local = NULL;

  if (presented == NULL)
    return fail (self, error, "the guest has no host key");
  if (!vmm_ssh_pin_store (self->job->pin_path, presented, &winner, &local))
    return fail (self, error, "pin the guest's host key: %s", local->message);
  return check_host_key (self, winner, presented, error);
}

static gboolean
connect_to_guest (Session *self, ssh_key key, GError **error)
{
  g_autofree char *pinned = NULL;
  g_autofree char *presented = NULL;
  g_autoptr (GError) local = NULL;
  gboolean is_connected;

  if (!vmm_ssh_pin_load (self->job->pin_path, &pinned, &local))
    return fail (self, error, "%s", local->message);
  if (!set_options (self, pinned, error))
    return FALSE;
  is_connected = greet (self, &local);
  presented = dup_host_key (self->session);
  /* Tells more than that the guest has hung up since. */
  if (!check_host_key (self, pinned, presented, error))
    return FALSE;
  if (!is_connected)
    {
      g_propagate_error (error, g_steal_pointer (&local));
      return FALSE;
    }
  return log_in (self, key, error) && (pinned != NULL || pin_host_key (self, presented, error));
}

static gboolean
start_command (Session *self, GError **error)
{
  int status;

  g_atomic_int_set (&self->job->stage, VMM_SSH_SESSION);
  self->channel = ssh_channel_new (self->session);
  if (self->channel == NULL)
    return fail (self, error, "out of memory");
  ssh_callbacks_init (&self->callbacks);
  self->callbacks.userdata = self;
  self->callbacks.channel_data_function = data_cb;
  self->callbacks.channel_eof_function = eof_cb;
  self->callbacks.channel_close_function = close_cb;
  self->callbacks.channel_exit_status_function = exit_status_cb;
  self->callbacks.channel_exit_signal_function = exit_signal_cb;
  ssh_set_channel_callbacks (self->channel, &self->callbacks);
  while ((status = ssh_channel_open_session (self->channel)) == SSH_AGAIN)
    if (!wait_for_guest (self, error))
      return FALSE;
  if (status != SSH_OK)
    return fail_of_library (self, "the guest opens none", error);

  g_atomic_int_set (&self->job->stage, VMM_SSH_COMMAND);
  while (!self->is_closed
         && (status = ssh_channel_request_exec (self->channel, self->job->command)) == SSH_AGAIN)
    if (!wait_for_guest (self, error))
      return FALSE;
  /* It may have come and gone in one read: then its status tells whether it ran. */
  if (!self->is_closed && status != SSH_OK)
    return fail_of_library (self, "the guest refuses the command", error);
  if (!self->is_closed && ssh_channel_send_eof (self->channel) == SSH_ERROR)
    return fail_of_library (self, "the connection ended", error);
  g_atomic_int_set (&self->job->stage, VMM_SSH_RUNNING);
  return TRUE;
}

static gboolean
await_end (Session *self, GError **error)
{
  g_autoptr (GError) local = NULL;

  while (!self->is_closed && wait_for_guest (self, &local))
    ;
  if (!check_bounds (self, error))
    return FALSE;
  /* A connection that breaks once all is said takes nothing away. */
  if (self->has_status && (self->is_closed || self->is_at_end))
    return TRUE;
  if (local != NULL)
    g_propagate_error (error, g_steal_pointer (&local));
  else
    fail (self, error, "the session ended without the command's exit status");
  return FALSE;
}

static char *
take_text (const GByteArray *output)
{
  return output->len > 0 ? g_utf8_make_valid ((const char *) output->data, output->len)
                         : g_strdup ("");
}

static VmmSshResult *
take_result (Session *self)
{
  VmmSshResult *result = g_new0 (VmmSshResult, 1);

  result->stdout_text = take_text (self->output[0]);
  result->stderr_text = take_text (self->output[1]);
  result->exit_code = self->exit_code;
  return result;
}

VmmSshResult *
vmm_ssh_session_run (VmmSshJob *job, GError **error)
{
  Session self = { .job = job };
  VmmSshResult *result = NULL;
  ssh_key key = read_key (&self, error);

  if (key == NULL)
    return NULL;
  self.session = ssh_new ();
  self.event = ssh_event_new ();
  self.output[0] = g_byte_array_new ();
  self.output[1] = g_byte_array_new ();
  if (self.session == NULL || self.event == NULL)
    fail (&self, error, "out of memory");
  else if (connect_to_guest (&self, key, error) && start_command (&self, error)
           && await_end (&self, error))
    result = take_result (&self);

  ssh_key_free (key);
  if (self.event != NULL)
    ssh_event_free (self.event);
  ssh_free (self.session); /* with its channel and its socket */
  g_byte_array_unref (self.output[0]);
  g_byte_array_unref (self.output[1]);
  return result;
}
