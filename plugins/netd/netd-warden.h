/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <sys/types.h>

/* The half of netd that stays outside of the sandbox: it sees no frame and parses nothing of a
 * guest's. It opens what the other half asks for by name, when netd.json says that the network has
 * it. */

/* For tests and containers: another file than /etc/resolv.conf. */
#define NETD_RESOLV_CONF_VARIABLE "VMM_NETD_RESOLV_CONF"

/* Runs until @child ends or the process is told to; returns the exit status for both.
 * @channel: the warden's end of the pair, taken over. */
int netd_warden_run (const char *directory, int channel, pid_t child);
