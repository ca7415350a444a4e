/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* How the fake programs behave, set by a text as it may stand in an environment variable. */
#include <string.h>

#include "fake-peers.h"

TestPeerBehaviour test_peer_behaviour = { .installer_reason = "guest-reset" };

static guint
parse_ms (const char *text)
{
  return g_str_equal (text, "never") ? TEST_PEER_NEVER : (guint) atoi (text);
}

static gboolean
configure_word (TestPeerBehaviour *b, const char *key, const char *value)
{
  const struct
  {
    const char *key;
    const char *value;
    gboolean *flag;
  } flags[] = {
    { "powerdown", "ignore", &b->ignore_powerdown }, { "quit", "ignore", &b->ignore_quit },
    { "term", "ignore", &b->ignore_term },           { "qmp", "silent", &b->qmp_silent },
    { "qmp", "garbage", &b->qmp_garbage },           { "tpm", "silent", &b->tpm_silent },
    { "monitor", "silent", &b->monitor_silent },     { "vsock", "silent", &b->vsock_silent },
  };
  const struct
  {
    const char *key;
    guint *ms;
  } times[] = {
    { "installer-ms", &b->installer_ms },
    { "ready-ms", &b->ready_ms },
    { "powerdown-ms", &b->powerdown_ms },
  };
  const struct
  {
    const char *key;
    int *code;
  } codes[] = {
    { "installer-exit", &b->installer_exit },
    { "qemu-exit", &b->qemu_exit },
    { "tpm-exit", &b->tpm_exit },
    { "monitor-exit", &b->monitor_exit },
    { "vsock-exit", &b->vsock_exit },
    { "tpm-setup-exit", &b->tpm_setup_exit },
  };

  for (guint i = 0; i < G_N_ELEMENTS (flags); i++)
    if (g_str_equal (flags[i].key, key) && g_str_equal (flags[i].value, value))
      return *flags[i].flag = TRUE;
  for (guint i = 0; i < G_N_ELEMENTS (times); i++)
    if (g_str_equal (times[i].key, key))
      {
        *times[i].ms = parse_ms (value);
        return TRUE;
      }
  for (guint i = 0; i < G_N_ELEMENTS (codes); i++)
    if (g_str_equal (codes[i].key, key))
      {
        *codes[i].code = atoi (value);
        return TRUE;
      }
  if (g_str_equal (key, "installer-reason"))
    b->installer_reason = g_intern_string (value);
  return g_str_equal (key, "installer-reason");
}

void
test_peer_configure (const char *text)
{
  g_auto (GStrv) words = g_strsplit (text != NULL ? text : "", ",", -1);

  test_peer_behaviour = (TestPeerBehaviour){ .installer_reason = "guest-reset" };
  for (guint i = 0; words[i] != NULL; i++)
    {
      g_auto (GStrv) pair = g_strsplit (g_strstrip (words[i]), "=", 2);

      if (*words[i] == '\0')
        continue;
      g_assert_nonnull (pair[1]);
      g_assert_true (configure_word (&test_peer_behaviour, pair[0], pair[1]));
    }
}
