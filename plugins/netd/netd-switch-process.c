/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The sandboxed half of netd: the loop and all that carries frames, put together from netd.json.
 * From then on the control socket changes what is there, and netd.json is the daemon's affair.
 *
 * It runs until the warden is gone or wants it to be, both of which close the channel.
 */
#include "netd-switch-process.h"

#include <stdlib.h>

#include "netd-control.h"
#include "netd-opener.h"

static void
resolvers_cb (const char *text, gpointer user_data)
{
  netd_network_set_resolvers (user_data, text);
}

/* One VM that cannot be plugged in, or one port of the host that is taken by now, is no reason to
 * leave the others without network. */
static void
attach_ports (NetdNetwork *network, NetdConfig *config)
{
  for (guint i = 0; i < config->ports->len; i++)
    {
      const NetdConfigPort *port = g_ptr_array_index (config->ports, i);
      g_autoptr (GError) error = NULL;

      if (netd_network_attach (network, port->vm_id, &port->mac, port->ip, &error) == NULL)
        g_warning ("cannot attach %s: %s", port->vm_id, error->message);
    }
}

static void
add_forwards (NetdForwards *forwards, NetdNetwork *network, NetdConfig *config)
{
  for (guint i = 0; i < config->forwards->len; i++)
    {
      const NetdConfigForward *forward = g_ptr_array_index (config->forwards, i);
      g_autoptr (GError) error = NULL;
      NetdForwardSpec spec = {
        .id = forward->id,
        .vm_id = forward->vm_id,
        .port = forward->port,
        .is_udp = forward->is_udp,
        .host_address = forward->host_address,
        .host_port = forward->host_port,
      };

      if (netd_network_find (network, forward->vm_id) == NULL)
        g_message ("no forward %s: %s is not attached", forward->id, forward->vm_id);
      else if (netd_forwards_add (forwards, &spec, &error) == 0)
        g_warning ("no forward %s: %s", forward->id, error->message);
    }
}

int
netd_switch_run (NetdConfig *config, int listener, int channel, NetdCounters *counters,
                 int counters_fd)
{
  NetdLoop *loop = netd_loop_new ();
  NetdNetwork *network = netd_network_new (loop, &config->plan, counters);
  NetdOpener *opener = netd_opener_new (loop, channel, resolvers_cb, network);
  NetdForwards *forwards;
  NetdControl *control;

  netd_network_set_opener (network, opener);
  attach_ports (network, config);
  forwards = netd_forwards_new (network);
  add_forwards (forwards, network, config);
  control = netd_control_new (network, forwards, listener, counters_fd);

  netd_loop_run (loop);

  netd_control_free (control);
  netd_forwards_free (forwards);
  netd_network_free (network);
  netd_opener_free (opener);
  netd_loop_free (loop);
  return EXIT_SUCCESS;
}
