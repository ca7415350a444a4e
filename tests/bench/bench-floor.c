/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The floor of the HTTP figures: a bare SoupServer that answers every request with the content of
 * one file. Prints its port; ends with its standard input. */

#include <libsoup/soup.h>

#include <stdio.h>

static void
answer (SoupServer *server, SoupServerMessage *message, const char *path, GHashTable *query,
        gpointer user_data)
{
  GBytes *body = user_data;

  soup_server_message_set_status (message, SOUP_STATUS_OK, NULL);
  soup_message_headers_set_content_type (soup_server_message_get_response_headers (message),
                                         "application/json", NULL);
  soup_message_body_append_bytes (soup_server_message_get_response_body (message), body);
}

static gboolean
input_ended (GIOChannel *channel, GIOCondition condition, gpointer user_data)
{
  g_main_loop_quit (user_data);
  return G_SOURCE_REMOVE;
}

int
main (int argc, char **argv)
{
  g_autoptr (GMainLoop) loop = g_main_loop_new (NULL, FALSE);
  g_autoptr (SoupServer) server = soup_server_new (NULL, NULL);
  g_autoptr (GIOChannel) input = g_io_channel_unix_new (0);
  g_autoptr (GBytes) body = NULL;
  g_autoptr (GError) error = NULL;
  g_autofree char *content = NULL;
  GSList *uris = NULL;
  gsize length = 0;

  if (argc != 2 || !g_file_get_contents (argv[1], &content, &length, &error))
    {
      g_printerr ("usage: bench-floor FILE\n");
      return 1;
    }
  body = g_bytes_new_take (g_steal_pointer (&content), length);
  soup_server_add_handler (server, NULL, answer, body, NULL);
  if (!soup_server_listen_local (server, 0, SOUP_SERVER_LISTEN_IPV4_ONLY, &error))
    {
      g_printerr ("%s\n", error->message);
      return 1;
    }
  uris = soup_server_get_uris (server);
  g_print ("%d\n", g_uri_get_port (uris->data));
  fflush (stdout);
  g_slist_free_full (uris, (GDestroyNotify) g_uri_unref);
  g_io_add_watch (input, G_IO_HUP | G_IO_IN | G_IO_ERR, input_ended, loop);
  g_main_loop_run (loop);
  return 0;
}
