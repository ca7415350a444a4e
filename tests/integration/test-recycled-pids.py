#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""While the daemon is away the processes of VMs and networks end, and strangers are given their process ids.
The next daemon must not take them for its own, nor signal any of them, whatever is asked of it.

Runs in a process namespace of its own, where it decides which id comes next.

Usage: test-recycled-pids.py BUILD-FOLDER"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time

from daemon import eventually, run
from fleet import Fleet, adopt_orphans, kill

BUILD = sys.argv[1]
LAST_PID = "/proc/sys/kernel/ns_last_pid"


def stranger(pid):
    """A process of that id, which has nothing to do with any VM."""
    for _ in range(100):
        with open(LAST_PID, "w", encoding="ascii") as file:
            file.write(str(pid - 1))
        found = subprocess.Popen(["sleep", "1000"])
        if found.pid == pid:
            return found
        found.kill()
        found.wait()
        # Who had it has ended, but perhaps only just.
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
        time.sleep(0.05)
    raise AssertionError(f"process id {pid} cannot be had")


def recorded_pids(fleet):
    """Of every process that a record names: {pid}"""
    found = set()

    def search(value):
        if isinstance(value, dict):
            found.update(number for key, number in value.items() if key == "pid" and isinstance(number, int))
            value = list(value.values())
        for item in value if isinstance(value, list) else []:
            search(item)

    for folder, _, names in os.walk(fleet.state):
        for name in names:
            if name.endswith(".json"):
                with open(os.path.join(folder, name), encoding="utf-8") as file:
                    search(json.load(file))
    return found


def everything_ends(fleet):
    """The daemon first, then all that outlived it; the ids that are free now."""
    pids = recorded_pids(fleet)
    fleet.kill_daemon()
    vms, networks = fleet.running()
    running = {pid for group in (vms, networks) for row in group.values() for pid in row}
    for pid in running:
        kill(pid)
    eventually(lambda: (fleet.reap(), not any(fleet.running()))[1], "all of them end")
    return pids | running


def survive(strangers):
    ended = [found.pid for found in strangers if found.poll() is not None]
    assert not ended, f"strangers were signalled: {ended}"


def ask_for_everything(fleet, names):
    for name in names:
        vm = fleet.vm(name)
        assert vm["state"] in ("stopped", "failed"), vm
        for action in ("stop", "start", "reboot", "stop"):
            fleet.ask("POST", f"/vms/{vm['id']}/{action}", {"wait_for": "none"})


def test_strangers_survive():
    """All records of a host that lost its processes, two VMs and two networks, and all that can be asked."""
    strangers = []
    with Fleet(BUILD) as fleet:
        try:
            fleet.daemon.api("POST", "/networks", {"name": "lab", "cidr": "10.88.0.0/24"}, 201)
            fleet.daemon.create("one")
            fleet.daemon.create("two", network="lab")
            for name in ("one", "two"):
                fleet.wait_for(name, "ready")
            fleet.check()
            pids = everything_ends(fleet)
            assert len(pids) >= 10, pids
            strangers = [stranger(pid) for pid in sorted(pids)]
            fleet.start()
            fleet.check()
            survive(strangers)
            ask_for_everything(fleet, ("one", "two"))
            survive(strangers)
            fleet.clean_up()
            fleet.daemon.api("DELETE", "/networks/lab", status=204)
            fleet.daemon.stop()
            survive(strangers)
            print(f"# strangers with a recorded process id: {len(strangers)}", flush=True)
        finally:
            for found in strangers:
                found.kill()
                found.wait()


def test_a_stranger_holds_the_id_of_the_last_daemon():
    """The lock file names it; only the lock counts."""
    with Fleet(BUILD) as fleet:
        pid = fleet.daemon.process.pid
        fleet.kill_daemon()
        found = stranger(pid)
        try:
            fleet.start()
            fleet.check()
            fleet.daemon.stop()
            survive([found])
        finally:
            found.kill()
            found.wait()


def test_stranger_after_the_process_launcher():
    """Its processes end with the daemon; what their numbers become afterwards is nobody's business."""
    with Fleet(BUILD, launcher="process") as fleet:
        pids = recorded_pids(fleet)
        assert pids, "no network's process is recorded"
        fleet.kill_daemon()
        eventually(lambda: (fleet.reap(), not any(fleet.running()))[1], "all of them end")
        strangers = [stranger(pid) for pid in sorted(pids)]
        try:
            fleet.start()
            fleet.check()
            fleet.daemon.api("DELETE", "/networks/default", status=204)
            fleet.daemon.stop()
            survive(strangers)
        finally:
            for found in strangers:
                found.kill()
                found.wait()


def enter_namespace():
    """Goes on as the first process of a new namespace, with its own /proc; or says why not."""
    command = ["unshare", "--pid", "--fork", "--mount", "--mount-proc", "--kill-child"]
    if os.geteuid() != 0:
        command += ["--user", "--map-root-user"]
    if shutil.which("unshare") is None or subprocess.run([*command, "true"], check=False).returncode != 0:
        return
    os.execvp("unshare", [*command, sys.executable, os.path.abspath(__file__), *sys.argv[1:], "inside"])


if __name__ == "__main__":
    if sys.argv[-1] != "inside":
        enter_namespace()
        print("1..0 # SKIP a process namespace of its own is refused here")
        sys.exit(0)
    adopt_orphans()
    run([value for name, value in list(globals().items()) if name.startswith("test_")])
