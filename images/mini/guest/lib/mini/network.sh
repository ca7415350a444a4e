# SPDX-License-Identifier: LGPL-2.1-or-later
# An address over DHCP, kept by udhcpc in the background.

start_network() {
  ip link set lo up
  ip link set eth0 up || return 1
  udhcpc -i eth0 -n -t 30 -T 1 -O mtu -s /lib/mini/lease -p /run/udhcpc.pid >/dev/null 2>&1 || return 1
  say "address $(ip -4 -o addr show dev eth0 | awk '{ print $4; exit }')"
}
