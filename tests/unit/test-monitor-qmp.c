/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What vmm-monitor makes of QEMU's control connection. */

#include <glib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "monitor-qmp-events.h"
#include "monitor-qmp.h"
#include "test-await.h"

#define GREETING "{\"QMP\": {\"version\": {}, \"capabilities\": [\"oob\"]}}\r\n"

static void
event_cb (MonitorEvent event, const char *data, gpointer user_data)
{
  g_string_append_printf (user_data, "%s %s\n", monitor_event_get_name (event), data);
}

/* Lines of events; "?" expects that QEMU is asked, "=" is its answer, "!" that there is none. */
static char *
translate (gboolean is_paused, const char *const *lines)
{
  GString *out = g_string_new (NULL);
  MonitorQmpEvents events = { .func = event_cb, .user_data = out, .is_paused = is_paused };

  for (guint i = 0; lines[i] != NULL; i++)
    {
      const char *line = lines[i] + (strchr ("?=", *lines[i]) != NULL ? 1 : 0);
      MonitorJson json;

      if (*lines[i] == '!')
        {
          monitor_qmp_events_flush (&events);
          continue;
        }
      g_assert_true (monitor_json_check (line, strlen (line), &json));
      if (*lines[i] == '=')
        monitor_qmp_events_take_status (&events, json);
      else
        g_assert_cmpint (monitor_qmp_events_take (&events, json), ==, *lines[i] == '?');
    }
  return g_string_free (out, FALSE);
}

#define ASSERT_EVENTS(expected, paused, ...)                                                       \
  G_STMT_START                                                                                     \
  {                                                                                                \
    const char *const lines[] = { __VA_ARGS__, NULL };                                             \
    g_autofree char *text = translate (paused, lines);                                             \
    g_assert_cmpstr (text, ==, expected);                                                          \
  }                                                                                                \
  G_STMT_END

#define STOP "{\"event\":\"STOP\"}"
#define RESUME "{\"event\":\"RESUME\"}"
#define IO_ERROR(action, nospace)                                                                  \
  "{\"event\":\"BLOCK_IO_ERROR\",\"data\":{\"device\":\"target\",\"nospace\":" nospace             \
  ",\"action\":\"" action "\",\"reason\":\"x\"}}"

static void
test_plain (void)
{
  ASSERT_EVENTS ("reset {}\nreset {}\nresume {}\n", FALSE,
                 "{\"event\":\"RESET\",\"data\":{\"guest\":true,\"reason\":\"guest-reset\"}}",
                 "{\"event\":\"RESET\"}", "{\"event\":\"POWERDOWN\"}", "{\"event\":7}", RESUME);
  ASSERT_EVENTS ("shutdown {\"guest\":true,\"reason\":\"guest-reset\"}\n", FALSE,
                 "{\"event\":\"SHUTDOWN\",\"data\":{\"guest\":true,\"reason\":\"guest-reset\"}}");
  ASSERT_EVENTS ("shutdown {\"guest\":false,\"reason\":\"\"}\n", FALSE, "{\"event\":\"SHUTDOWN\"}");
  ASSERT_EVENTS ("shutdown {\"guest\":false,\"reason\":\"a\\\"\\u000a\"}\n", FALSE,
                 "{\"event\":\"SHUTDOWN\",\"data\":{\"guest\":1,\"reason\":\"a\\\"\\n\"}}");
}

static void
test_announced (void)
{
  ASSERT_EVENTS ("stop {\"reason\":\"io-error\"}\nresume {}\n", FALSE, IO_ERROR ("stop", "false"),
                 STOP, RESUME);
  ASSERT_EVENTS ("stop {\"reason\":\"nospace\"}\n", FALSE, IO_ERROR ("report", "false"),
                 IO_ERROR ("stop", "true"), STOP);
  ASSERT_EVENTS ("stop {\"reason\":\"watchdog\"}\n", FALSE,
                 "{\"event\":\"WATCHDOG\",\"data\":{\"action\":\"pause\"}}", STOP);
  ASSERT_EVENTS ("stop {\"reason\":\"guest-panicked\"}\n", FALSE,
                 "{\"event\":\"GUEST_PANICKED\",\"data\":{\"action\":\"pause\"}}", STOP);
  /* It is not the reason of a later one. */
  ASSERT_EVENTS ("stop {\"reason\":\"io-error\"}\nresume {}\nstop {\"reason\":\"stopped\"}\n",
                 FALSE, IO_ERROR ("stop", "false"), STOP, IO_ERROR ("stop", "false"), RESUME,
                 "?" STOP, "={\"status\":\"paused\",\"running\":false}");
}

static void
test_asked (void)
{
  ASSERT_EVENTS ("stop {\"reason\":\"stopped\"}\n", FALSE, "?" STOP,
                 "={\"status\":\"paused\",\"running\":false}");
  ASSERT_EVENTS ("stop {\"reason\":\"internal-error\"}\n", FALSE, "?" STOP,
                 "={\"status\":\"internal-error\",\"running\":false}");
  /* The order stays, whenever the answer comes. */
  ASSERT_EVENTS ("stop {\"reason\":\"stopped\"}\nresume {}\n", FALSE, "?" STOP, RESUME,
                 "={\"status\":\"running\",\"running\":true}");
  ASSERT_EVENTS ("stop {\"reason\":\"stopped\"}\nreset {}\n", FALSE, "?" STOP,
                 "{\"event\":\"RESET\"}");
  ASSERT_EVENTS ("stop {\"reason\":\"stopped\"}\n", FALSE, "?" STOP, "!");
  ASSERT_EVENTS ("stop {\"reason\":\"stopped\"}\n", FALSE, "?" STOP, "={}");
}

/* The first answer of a new connection. */
static void
test_made_up (void)
{
  ASSERT_EVENTS ("", FALSE, "={\"status\":\"prelaunch\",\"running\":false}");
  ASSERT_EVENTS ("", FALSE, "={\"status\":\"running\",\"running\":true}");
  ASSERT_EVENTS ("stop {\"reason\":\"io-error\"}\n", FALSE,
                 "={\"status\":\"io-error\",\"running\":false}");
  ASSERT_EVENTS ("stop {\"reason\":\"stopped\"}\n", FALSE,
                 "={\"status\":\"paused\",\"running\":false}");
  ASSERT_EVENTS ("", TRUE, "={\"status\":\"paused\",\"running\":false}");
  ASSERT_EVENTS ("resume {}\n", TRUE, "={\"status\":\"running\",\"running\":true}");
}

/* The connection. */

typedef struct
{
  int fd; /* QEMU's end */
  MonitorQmp *qmp;
  GString *heard;
  guint n_ready;
} Fixture;

static void
closed_cb (gboolean was_greeted, gpointer user_data)
{
  Fixture *fixture = user_data;

  g_clear_pointer (&fixture->qmp, monitor_qmp_free);
  g_string_append (fixture->heard, was_greeted ? "closed\n" : "closed ungreeted\n");
}

static void
ready_cb (gpointer user_data)
{
  Fixture *fixture = user_data;

  fixture->n_ready++;
}

static void
fixture_event_cb (MonitorEvent event, const char *data, gpointer user_data)
{
  Fixture *fixture = user_data;

  event_cb (event, data, fixture->heard);
}

static void
set_up (Fixture *fixture, gconstpointer data)
{
  int fds[2];

  g_assert_cmpint (socketpair (AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), ==, 0);
  fixture->heard = g_string_new (NULL);
  fixture->fd = fds[0];
  fixture->qmp = monitor_qmp_new (fds[1], FALSE, fixture_event_cb, ready_cb, closed_cb, fixture);
}

static void
tear_down (Fixture *fixture, gconstpointer data)
{
  g_clear_pointer (&fixture->qmp, monitor_qmp_free);
  g_string_free (fixture->heard, TRUE);
  close (fixture->fd);
}

static void
say (Fixture *fixture, const char *text)
{
  g_assert_cmpint (send (fixture->fd, text, strlen (text), MSG_NOSIGNAL), ==, strlen (text));
  test_drain ();
}

static char *
hear (Fixture *fixture)
{
  char buffer[1024];
  gssize size = recv (fixture->fd, buffer, sizeof buffer, 0);

  return size > 0 ? g_strndup (buffer, size) : NULL;
}

static void
assert_hears (Fixture *fixture, const char *expected)
{
  g_autofree char *text = hear (fixture);

  g_assert_cmpstr (text, ==, expected);
}

static void
test_conversation (Fixture *fixture, gconstpointer data)
{
  say (fixture, GREETING);
  assert_hears (fixture, "{\"execute\":\"qmp_capabilities\",\"id\":1}\n");
  say (fixture, "{\"return\": {}, \"id\": 1}\r\n");
  assert_hears (fixture, "{\"execute\":\"query-status\",\"id\":2}\n");
  g_assert_cmpuint (fixture->n_ready, ==, 0);
  say (fixture, "{\"return\": {\"status\": \"prelaunch\", \"running\": false}, \"id\": 2}\r\n");
  g_assert_cmpuint (fixture->n_ready, ==, 1);
  say (fixture, "{\"timestamp\": {}, \"event\": \"RES");
  say (fixture, "UME\"}\r\n{\"event\": \"STOP\"}\r\n");
  assert_hears (fixture, "{\"execute\":\"query-status\",\"id\":2}\n");
  say (fixture, "{\"return\": {\"status\": \"paused\", \"running\": false}, \"id\": 2}\r\n"
                "{\"error\": {\"class\": \"GenericError\", \"desc\": \"no\"}, \"id\": 9}\r\n"
                "{\"event\": \"STOP\"}\r\n");
  g_assert_cmpstr (fixture->heard->str, ==, "resume {}\nstop {\"reason\":\"stopped\"}\n");
  /* One whose reason will not be known is told before the end. */
  close (fixture->fd);
  fixture->fd = -1;
  test_drain ();
  g_assert_cmpstr (
      fixture->heard->str, ==,
      "resume {}\nstop {\"reason\":\"stopped\"}\nstop {\"reason\":\"stopped\"}\nclosed\n");
}

static void
test_lies (gconstpointer data)
{
  static const char *const lies[] = { "hello\n", "[]\n", "{\"event\":}\n", "\"QMP\"\n", "{}{}\n" };

  for (guint i = 0; i < G_N_ELEMENTS (lies); i++)
    {
      Fixture fixture = { 0 };

      set_up (&fixture, NULL);
      say (&fixture, lies[i]);
      g_assert_cmpstr (fixture.heard->str, ==, "closed ungreeted\n");
      tear_down (&fixture, NULL);
    }
}

static gboolean
is_over (gpointer user_data)
{
  return ((Fixture *) user_data)->qmp == NULL;
}

static void
test_oversized (Fixture *fixture, gconstpointer data)
{
  g_autofree char *text = g_strnfill (64 * 1024 + 1, ' ');

  say (fixture, GREETING);
  say (fixture, text);
  test_await_condition (is_over, fixture);
  g_assert_cmpstr (fixture->heard->str, ==, "closed\n");
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_add_func ("/monitor-qmp/plain", test_plain);
  g_test_add_func ("/monitor-qmp/announced", test_announced);
  g_test_add_func ("/monitor-qmp/asked", test_asked);
  g_test_add_func ("/monitor-qmp/made-up", test_made_up);
  g_test_add ("/monitor-qmp/conversation", Fixture, NULL, set_up, test_conversation, tear_down);
  g_test_add ("/monitor-qmp/oversized", Fixture, NULL, set_up, test_oversized, tear_down);
  g_test_add_data_func ("/monitor-qmp/lies", NULL, test_lies);
  return g_test_run ();
}
