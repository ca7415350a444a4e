#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""A fleet of VMs whose programs are fakes, and monitors and networks that are real. At random one of them is
killed with SIGKILL, or the daemon itself, while clients start, stop and make VMs. None may be lost, run twice
or be called stopped while it runs.

Usage: test-random-kills.py BUILD-FOLDER

VMM_KILLS: how many, VMM_FLEET: VMs, VMM_TEST_SEED: of the chance."""

import collections
import os
import random
import sys
import threading
import time

from daemon import run
from fleet import LIVE, Fleet, adopt_orphans, kill

BUILD = sys.argv[1]
KILLS = int(os.environ.get("VMM_KILLS", "40"))
SIZE = int(os.environ.get("VMM_FLEET", "20"))
SEED = int(os.environ.get("VMM_TEST_SEED", str(int(time.time()))))
KINDS = ("daemon", "qemu", "tpm", "monitor", "network")
TURN = 5  # kills between two looks at everything


class Client:
    """Starts and stops what it finds, and makes and deletes VMs of its own."""

    def __init__(self, fleet, number):
        self.fleet, self.number = fleet, number
        self.chance = random.Random(SEED * 100 + number)
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self.work, daemon=True)

    def work(self):
        while not self.stopping.wait(self.chance.random() * 0.05):
            answer = self.fleet.ask("GET", "/vms")
            vms = answer.json if answer is not None and answer.status == 200 else []
            own = [vm for vm in vms if vm["name"].startswith(f"guest-{self.number}-")]
            fleet = [vm for vm in vms if vm["name"].startswith("vm-")]
            what = self.chance.random()
            if what < 0.1 and len(own) < 2:
                name = f"guest-{self.number}-{self.chance.randrange(10**6)}"
                self.fleet.ask("POST", "/vms", {"name": name, "wait_for": "none", "require_attestation": False})
            elif what < 0.2 and own:
                self.fleet.ask("DELETE", f"/vms/{self.chance.choice(own)['id']}")
            elif fleet:
                action = self.chance.choice(["start", "start", "stop", "reboot"])
                self.fleet.ask("POST", f"/vms/{self.chance.choice(fleet)['id']}/{action}", {"wait_for": "none"})

    def __enter__(self):
        self.thread.start()

    def __exit__(self, *unused):
        self.stopping.set()
        self.thread.join()


def victim(fleet, chance, kind):
    vms, networks = fleet.running()
    pids = [pid for pids in networks.values() for pid in pids] if kind == "network" else \
        [pid for (_, role), pids in vms.items() if role == kind for pid in pids]
    return chance.choice(pids) if pids else None


def kill_one(fleet, chance, done):
    kind = chance.choice(KINDS)
    pid = None if kind == "daemon" else victim(fleet, chance, kind)
    if pid is None:
        kind = "daemon"
        fleet.kill_daemon()
        fleet.start()
    else:
        kill(pid)
    done[kind] += 1


def check(fleet, names):
    """Also that each VM of the fleet is still there, and can run."""
    fleet.check()
    vms = {vm["name"]: vm for vm in fleet.daemon.vms()}
    lost = names - set(vms)
    assert not lost, f"lost: {lost}"
    for vm in (vms[name] for name in names):
        assert vm["state"] in (*LIVE, "stopped", "failed") and "installedAt" in vm, vm


def revive(fleet, names):
    for vm in fleet.daemon.vms():
        if vm["name"] in names and vm["state"] in ("stopped", "failed"):
            fleet.daemon.api("POST", f"/vms/{vm['id']}/start", {"wait_for": "none"}, 200)


def test_kills():
    chance, done = random.Random(SEED), collections.Counter()
    names = {f"vm-{number}" for number in range(SIZE)}
    with Fleet(BUILD) as fleet:
        for name in names:
            fleet.daemon.create(name)
        for name in names:
            fleet.wait_for(name, "ready")
        while done.total() < KILLS:
            try:
                with Client(fleet, 1), Client(fleet, 2):
                    for _ in range(min(TURN, KILLS - done.total())):
                        kill_one(fleet, chance, done)
                        time.sleep(chance.random() * 0.2)
                check(fleet, names)
                revive(fleet, names)
            except BaseException:
                print(f"# seed {SEED}, after {done.total()} kills: {dict(done)}", flush=True)
                raise
        check(fleet, names)
        fleet.clean_up()
        fleet.daemon.stop()
    print(f"# figure random-kills: {done.total()} kills", flush=True)
    print("#", ", ".join(f"{kind} {done[kind]}" for kind in KINDS), flush=True)


if __name__ == "__main__":
    adopt_orphans()
    run([test_kills])
