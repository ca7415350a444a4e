# SPDX-License-Identifier: LGPL-2.1-or-later
# Kernel file systems, modules, names for disks.

mount_kernel_filesystems() {
  mount -t proc -o nosuid,nodev,noexec proc /proc
  mount -t sysfs -o nosuid,nodev,noexec sysfs /sys
  mount -t devtmpfs -o nosuid,noexec devtmpfs /dev
  mkdir -p /dev/pts /dev/shm
  mount -t devpts -o nosuid,noexec,mode=620,ptmxmode=666 devpts /dev/pts
  mount -t tmpfs -o nosuid,nodev,mode=755 tmpfs /run
  mount -t tmpfs -o nosuid,nodev,mode=1777 tmpfs /tmp
}

# The list has every module behind those it needs.
load_modules() {
  while read -r module; do
    insmod "/lib/modules/$module.ko" || say "module $module was refused"
  done </lib/modules/order
}

# /dev/disk/by-id/virtio-<serial> and /dev/disk/by-partlabel/<name>; there is no udev.
link_disks() {
  mkdir -p /dev/disk/by-id /dev/disk/by-partlabel
  for block in /sys/class/block/*; do
    name=${block##*/}
    serial=
    [ -r "$block/serial" ] && read -r serial <"$block/serial"
    [ -n "$serial" ] && ln -sf "../../$name" "/dev/disk/by-id/virtio-$serial"
    label=$(sed -n 's/^PARTNAME=//p' "$block/uevent")
    [ -n "$label" ] && ln -sf "../../$name" "/dev/disk/by-partlabel/$label"
  done
  return 0
}
