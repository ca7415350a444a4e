# SPDX-License-Identifier: LGPL-2.1-or-later
# What survives: the partition "var". All else is in memory.

mount_var() {
  device=/dev/disk/by-partlabel/var
  if ! mount -t ext4 -o nosuid,nodev "$device" /var 2>/dev/null; then
    say "no usable var partition at $device, /var is volatile this boot"
    mount -t tmpfs -o nosuid,nodev,mode=755 tmpfs /var || return 1
  fi
  mkdir -p -m 700 "$STATE"
  boots=$(cat "$STATE/boots" 2>/dev/null)
  echo $((${boots:-0} + 1)) >"$STATE/boots"
}
