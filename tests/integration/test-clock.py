#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""The wall clock of the real daemon jumps by days, to and fro: no time limit is moved, no record is harmed.

Which clock is right for what: time limits and ages within one run of the daemon are of CLOCK_MONOTONIC, which stands
still while the host sleeps, as its guests do; a nonce's age is of CLOCK_BOOTTIME, as it must not outlive the night; what
is recorded is of the wall clock, and nothing is decided by comparing two such times.

Usage: test-clock.py PROGRAM PLUGIN-FOLDER CLOCK-SHIM
"""

import os
import re
import shutil
import sys
import tempfile

from daemon import Daemon, eventually, run, write

PROGRAM, PLUGINS, SHIM = sys.argv[1:]
DAY = 24 * 3600


class Moved(Daemon):
    """A daemon with a wall clock of its own."""

    def __init__(self, *flags, folder, fake):
        self.offset = os.path.join(folder, "offset")
        if not os.path.exists(self.offset):
            write(self.offset, "0")
        options = os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"
        super().__init__(PROGRAM, PLUGINS, *flags, folder=folder, env={
            "LD_PRELOAD": SHIM, "VMM_CLOCK_OFFSET_FILE": self.offset, "ASAN_OPTIONS": options, "VMM_FAKE": fake})

    def jump(self, seconds):
        write(self.offset + ".new", str(seconds))
        os.rename(self.offset + ".new", self.offset)

    def get(self, vm):
        return self.api("GET", "/vms/" + vm["id"], status=200).json

    def await_state(self, vm, *states):
        eventually(lambda: self.get(vm)["state"] in states, f"not {states}: {self.get(vm)}")
        return self.get(vm)


def in_folder(test):
    def wrapped():
        folder = tempfile.mkdtemp(prefix="vmm-", dir="/tmp")
        try:
            test(folder)
        finally:
            shutil.rmtree(folder)
    wrapped.__name__ = test.__name__
    return wrapped


@in_folder
def test_jumps_while_booting(folder):
    """Neither a jump ahead ends a boot, nor one back gives it no end or makes it last less than nothing."""
    with Moved("--boot-timeout=60s", folder=folder, fake="ready-ms=1000") as daemon:
        for number, days in enumerate((10, -10, 3650, -3650)):
            vm = daemon.create(f"vm-{number}")
            daemon.await_state(vm, "booting")
            daemon.jump(days * DAY)
            vm = daemon.await_state(vm, "ready", "error")
            assert vm["state"] == "ready", vm
            assert not vm.get("lastError"), vm
            assert daemon.log[-1], "it logs on"
        text = daemon.request("GET", "/metrics").body.decode()
        for line in text.splitlines():
            if re.match(r"\w*(boot|install)\w*(_sum|_seconds)\b", line) and not line.startswith("#"):
                assert float(line.rsplit(" ", 1)[1]) >= 0, line


@in_folder
def test_limits_hold(folder):
    """With the clock set back while a boot goes on, its limit still comes."""
    with Moved("--boot-timeout=2s", folder=folder, fake="ready-ms=never") as daemon:
        vm = daemon.create("one")
        daemon.await_state(vm, "booting")
        daemon.jump(-400 * DAY)
        eventually(lambda: "READY=1" in str(daemon.get(vm)), f"there is no limit: {daemon.get(vm)}")


@in_folder
def test_records_of_the_future(folder):
    """A daemon whose clock is long before its records takes them as they are, and writes on."""
    with Moved(folder=folder, fake="ready-ms=0") as daemon:
        daemon.jump(1000 * DAY)
        old = daemon.create("old")
        daemon.await_state(old, "ready")
        old = daemon.get(old)
        daemon.jump(0)
    with Moved(folder=folder, fake="ready-ms=0") as daemon:
        vm = daemon.get(old)
        assert vm["state"] == "stopped" and vm["createdAt"] == old["createdAt"], vm
        daemon.api("POST", f"/vms/{vm['id']}/start", {}, 200)
        vm = daemon.await_state(vm, "ready")
        assert vm["bootedAt"] <= vm["readyAt"] < vm["createdAt"], vm
        new = daemon.create("new")
        daemon.await_state(new, "ready")
        assert {row["name"] for row in daemon.vms()} == {"old", "new"}
        for row in daemon.vms():
            daemon.api("DELETE", "/vms/" + row["id"], status=204)


if __name__ == "__main__":
    run([test_jumps_while_booting, test_limits_hold, test_records_of_the_future])
