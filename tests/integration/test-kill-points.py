#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""The daemon is killed at every moment of every operation, and of the start that follows such a kill. Which
moments there are each test finds out from the running daemon: those of sequences' steps, and before and after
each call that changes a file, a process, a network or a state (tests/lib/kill-points.c). The processes of VMs
outlive it; the next daemon has to find all that there is, and nothing more.

Usage: test-kill-points.py BUILD-FOLDER

VMM_KILL_EVERY: of the calls only every so many-th, 1 for all; steps of sequences are never left out."""

import os
import subprocess
import sys
import time

from daemon import eventually, run
from fleet import LIVE, Fleet, adopt_orphans, kill

BUILD = sys.argv[1]
SETTLED = ("ready", "stopped", "failed")
QUIET = 0.3  # nothing that an operation starts begins so long after its end
EVERY = int(os.environ.get("VMM_KILL_EVERY", "16"))
total = [0, 0]


def chosen(points, every=EVERY):
    calls = [point for point in points if point.startswith("call/")]
    return [point for point in points if point not in calls or calls.index(point) % every == 0]


def interrupted(fleet, act):
    """Whether the daemon died of what it was told to do."""
    try:
        act(fleet)
        end = time.monotonic() + 30
        quiet_since = None
        while fleet.daemon.process.poll() is None and time.monotonic() < end:
            answer = fleet.ask("GET", "/vms")
            busy = answer is None or any(vm["state"] not in SETTLED for vm in answer.json)
            quiet_since = None if busy else quiet_since or time.monotonic()
            if quiet_since and time.monotonic() > quiet_since + QUIET:
                break
            time.sleep(0.01)
    finally:
        died = fleet.daemon.process.poll() is not None
    return died


def restart(fleet):
    fleet.died()
    fleet.disarm()
    fleet.start()
    fleet.check()


def points_of(fleet, prepare, act, *failures):
    """The moments that an operation passes, in order."""
    prepare(fleet)
    fleet.arm("list", *failures)
    assert not interrupted(fleet, act)
    found = fleet.disarm()
    fleet.check()
    return found


def kill_at_each(prepare, act, verify, *failures, at_least, every=EVERY):
    """Each point in turn, on one fleet; verify looks at what the next daemon made of it."""
    with Fleet(BUILD) as fleet:
        points = points_of(fleet, prepare, act, *failures)
        assert len(points) >= at_least, points
        passed = 0
        points = chosen(points, every)
        for point in points:
            try:
                prepare(fleet)
                fleet.arm("kill " + point, *failures)
                if interrupted(fleet, act):
                    passed += 1
                    restart(fleet)
                    verify(fleet)
                else:
                    # How writes of a record fall together differs from run to run.
                    assert point.startswith("call/"), "not passed"
                    fleet.disarm()
            except BaseException:
                print(f"# killed at {point}", flush=True)
                raise
        fleet.clean_up()
        fleet.daemon.stop()
        total[0] += passed
        total[1] += len(points) - passed
        print(f"# {passed} of {len(points)} points", flush=True)


# --- what is there before ---


def nothing(fleet):
    fleet.clean_up()
    fleet.ask("DELETE", "/networks/lab")


def ready(fleet):
    vm = fleet.vm("vm")
    if vm and vm["state"] == "failed":
        nothing(fleet)
        vm = None
    if not vm:
        fleet.daemon.create("vm")
    elif vm["state"] == "stopped":
        fleet.daemon.api("POST", f"/vms/{vm['id']}/start", {"wait_for": "none"}, 200)
    fleet.wait_for("vm", "ready")


def stopped(fleet):
    vm = fleet.vm("vm")
    if not vm or vm["state"] != "stopped" or "installedAt" not in vm:
        ready(fleet)
        fleet.daemon.api("POST", f"/vms/{fleet.vm('vm')['id']}/stop", status=200)
    fleet.wait_for("vm", "stopped")


def network(fleet):
    if len(fleet.daemon.api("GET", "/networks").json) == 1:
        create_network(fleet)


# --- what is done ---


def create(fleet):
    fleet.ask("POST", "/vms", {"name": "vm", "wait_for": "none", "require_attestation": False})


def act_on(action):
    def act(fleet):
        fleet.ask("POST", f"/vms/{fleet.vm('vm')['id']}/{action}", {"wait_for": "none"})

    return act


def delete(fleet):
    fleet.ask("DELETE", f"/vms/{fleet.vm('vm')['id']}")


def create_network(fleet):
    fleet.ask("POST", "/networks", {"name": "lab", "cidr": "10.88.0.0/24"})


def delete_network(fleet):
    fleet.ask("DELETE", "/networks/lab")


# --- what has to hold after it ---


def without_the_deaf(fleet, vm):
    """A start that was being undone may leave QEMU without its monitor: nobody hears its READY=1, and it runs on
    until it is stopped."""
    if vm["state"] not in ("booting", "running") or (vm["id"], "monitor") in fleet.running()[0]:
        return vm
    fleet.daemon.api("POST", f"/vms/{vm['id']}/stop", status=200)
    return fleet.vm("vm")


def created_or_not(fleet):
    """Gone, to be deleted, or what it would be without the kill; and what was installed starts."""
    vm = fleet.vm("vm")
    if not vm:
        return
    vm = without_the_deaf(fleet, vm)
    if vm["state"] in LIVE:
        vm = fleet.wait_for("vm", "ready", "stopped", "failed")
    if vm["state"] == "failed":
        # The fake installer leaves nothing on the disk that would prove it.
        known = ("restarted while", "told to fail", "ended while nobody watched")
        assert any(text in vm["lastError"] for text in known), vm
    if vm["state"] != "ready" and "installedAt" in vm:
        fleet.daemon.api("POST", f"/vms/{vm['id']}/start", {"wait_for": "none"}, 200)
        fleet.wait_for("vm", "ready")
    fleet.check()


def kept(fleet):
    """Whatever it was doing, a VM that was installed is there, is no failure, and starts."""
    vm = fleet.vm("vm")
    assert vm and "installedAt" in vm, vm
    if vm["state"] in LIVE:
        vm = fleet.wait_for("vm", "ready", "stopped")
    assert vm["state"] in ("ready", "stopped"), vm


def kept_or_failed(fleet):
    vm = fleet.vm("vm")
    assert vm and "installedAt" in vm, vm
    vm = without_the_deaf(fleet, vm)
    if vm["state"] in LIVE:
        vm = fleet.wait_for("vm", "ready", "stopped", "failed")
    if vm["state"] != "ready":
        fleet.daemon.api("POST", f"/vms/{vm['id']}/start", {"wait_for": "none"}, 200)
    fleet.wait_for("vm", "ready")


def deleted_or_not(fleet):
    """Once a resource was given back, it can only be deleted; before that, nothing happened to it."""
    vm = fleet.vm("vm")
    if vm and vm["state"] == "failed":
        assert "restarted while the VM was deleting" in vm["lastError"], vm
    elif vm:
        kept(fleet)


def network_or_none(fleet):
    names = [row["spec"]["name"] for row in fleet.daemon.api("GET", "/networks", status=200).json]
    if "lab" not in names:
        fleet.daemon.api("POST", "/networks", {"name": "lab", "cidr": "10.88.0.0/24"}, 201)
    fleet.check()


# --- the tests ---


def no_network(fleet):
    fleet.ask("DELETE", "/networks/lab")


def test_create():
    kill_at_each(nothing, create, created_or_not, at_least=42)


def test_create_that_fails():
    kill_at_each(nothing, create, created_or_not, "fail create/run/after", at_least=30)


def test_installed_boot_that_fails():
    kill_at_each(nothing, create, created_or_not, "fail installed-boot/run/after", at_least=46)


def test_start():
    kill_at_each(stopped, act_on("start"), kept, at_least=18)


def test_start_that_fails():
    kill_at_each(stopped, act_on("start"), kept_or_failed, "fail start/run/after", at_least=22)


def test_stop():
    kill_at_each(ready, act_on("stop"), kept, at_least=10)


def test_reboot():
    kill_at_each(ready, act_on("reboot"), kept, at_least=28)


def test_delete_of_one_that_is_stopped():
    kill_at_each(stopped, delete, deleted_or_not, at_least=10)


def test_delete_of_one_that_runs():
    kill_at_each(ready, delete, deleted_or_not, at_least=12)


def test_network_create():
    kill_at_each(no_network, create_network, network_or_none, at_least=4, every=1)


def test_network_create_that_fails():
    kill_at_each(no_network, create_network, network_or_none, "fail call/save/after", at_least=6, every=1)


def test_network_delete():
    kill_at_each(network, delete_network, network_or_none, at_least=6, every=1)


def interrupted_start(fleet):
    """Whether a daemon that starts is killed before it serves."""
    fleet.launch()
    try:
        fleet.daemon.start()
    except AssertionError:
        fleet.daemon.process.wait()
        assert fleet.daemon.process.returncode == -9, fleet.daemon.log[-5:]
        return True
    time.sleep(QUIET)
    try:
        fleet.daemon.process.wait(0)
    except subprocess.TimeoutExpired:
        return False
    return True


def recoveries(prepare, leave, verify, at_least):
    """A second kill, at each point of the start that follows the first one."""
    with Fleet(BUILD) as fleet:
        points, passed, number = [None], 0, -1
        while (number := number + 1) < len(points):
            prepare(fleet)
            leave(fleet)
            try:
                fleet.arm("kill " + points[number] if points[number] else "list")
                died = interrupted_start(fleet)
                assert died or not points[number] or points[number].startswith("call/"), "not passed"
                if died:
                    passed += 1
                    restart(fleet)
                else:
                    points += chosen(fleet.disarm())
                    fleet.check()
                verify(fleet)
            except BaseException:
                print(f"# killed at {points[number]} of the start", flush=True)
                raise
        assert passed >= at_least, points
        fleet.clean_up()
        fleet.daemon.stop()
        total[0] += passed
        total[1] += len(points) - 1 - passed
        print(f"# {passed} of {len(points) - 1} points", flush=True)


def left_running(fleet):
    fleet.kill_daemon()


def left_with_a_dead_qemu(fleet):
    vm = fleet.vm("vm")["id"]
    fleet.kill_daemon()
    kill(fleet.running()[0][vm, "qemu"][0])
    eventually(lambda: (fleet.reap(), (vm, "qemu") not in fleet.running()[0])[1], "qemu ends")


def left_at(point, act):
    def leave(fleet):
        fleet.arm("kill " + point)
        assert interrupted(fleet, act)
        fleet.died()
        fleet.disarm()

    return leave


def test_start_of_the_daemon_beside_a_vm_that_runs():
    recoveries(ready, left_running, kept, at_least=1)


def test_start_of_the_daemon_beside_a_dead_qemu():
    recoveries(ready, left_with_a_dead_qemu, kept_or_failed, at_least=1)


def test_start_of_the_daemon_after_a_cut_off_start():
    recoveries(stopped, left_at("start/run/before", act_on("start")), kept, at_least=1)


def test_start_of_the_daemon_after_a_cut_off_create():
    recoveries(nothing, left_at("create/qemu/after", create), created_or_not, at_least=1)


def test_start_of_the_daemon_after_a_cut_off_delete():
    recoveries(stopped, left_at("delete/volume/after", delete), deleted_or_not, at_least=1)


def test_start_of_the_daemon_after_a_cut_off_network():
    recoveries(no_network, left_at("call/save/before", create_network), network_or_none, at_least=1)


def test_number_of_points():
    print(f"# figure kill-points: {total[0]} points", flush=True)
    print(f"# points that were not passed again: {total[1]}", flush=True)
    assert total[0] >= 60


if __name__ == "__main__":
    adopt_orphans()
    run([value for name, value in list(globals().items()) if name.startswith("test_")])
