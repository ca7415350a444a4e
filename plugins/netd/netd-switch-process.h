/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "netd-config.h"

/* The sandboxed half: loop, network, control. Returns an exit status.
 * @listener: the control socket, @channel: to the warden, @counters_fd: the shared page's. */
int netd_switch_run (NetdConfig *config, int listener, int channel, NetdCounters *counters,
                     int counters_fd);
