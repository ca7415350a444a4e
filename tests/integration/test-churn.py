#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""VMs come and go, with all that can hang on to one: the daemon ends up no larger than it was.

Eight clients create VMs, forward ports of theirs, have commands refused, ask for metrics, list, and delete. After a
warm-up of as much again it is measured what is left between rounds, when no VM is there: resident memory, open
descriptors and threads. Only what grows with the number of VMs is a fault.

VMM_CHURN_SECONDS says how long; a sanitizer keeps what was freed, so that a figure of the daemon's memory needs a build
without one.

Usage: test-churn.py PROGRAM PLUGIN-FOLDER
"""

import concurrent.futures
import http.client
import json
import os
import sys
import time

from daemon import DEADLINE, Daemon, eventually, run

PROGRAM, PLUGINS = sys.argv[1], sys.argv[2]
SECONDS = float(os.environ.get("VMM_CHURN_SECONDS", "14"))
CLIENTS = 8
ROUND = 10  # VMs of each client
SLACK_KIB = 2048  # an allocator keeps pages of a busier moment
PER_THOUSAND_KIB = 1536  # the fakes keep the journal of each VM
SANITIZED_KIB = 32 * 1024  # what a sanitizer keeps of its own; only something gross is seen with one


class Tail(list):
    """The end of a log that would fill this process's memory."""

    def append(self, line):
        if len(self) >= 2000:
            del self[:1000]
        super().append(line)


class Client:
    """Asks over one connection, as long as it lasts."""

    def __init__(self, daemon, number):
        self.number = number
        self.connection = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=DEADLINE)
        self.made = 0

    def ask(self, method, path, status, body=None):
        self.connection.request(method, path if path == "/metrics" else "/api/v1" + path,
                                json.dumps(body) if body is not None else None)
        answer = self.connection.getresponse()
        data = answer.read()
        assert answer.status == status, (method, path, answer.status, data)
        return json.loads(data) if data and path != "/metrics" else data

    def turn(self):
        """The whole life of a VM. Every third is deleted in the middle of its start."""
        name = f"c{self.number}-{self.made}"
        hurry = self.made % 3 == 2
        port = 20000 + self.number
        vm = self.ask("POST", "/vms", 201, {"name": name, "require_attestation": False, "metadata": {"n": name},
                                            "user_data": "x" * 2000, "wait_for": "none" if hurry else "ready"})
        own = "/vms/" + vm["id"]
        if not hurry:
            forward = self.ask("POST", own + "/forward", 200, {"port": 80, "host_port": port})
            self.ask("POST", own + "/forward", 200, {"port": 53, "protocol": "udp", "host_port": port + CLIENTS})
            self.ask("POST", own + "/forward", 400, {"port": 0})
            assert len(self.ask("GET", own + "/forwards", 200)) == 2
            if self.made % 2:
                self.ask("DELETE", own + "/forwards/" + forward["forward"], 204)
            self.ask("POST", own + "/exec", 400, {"command": []})
            self.ask("GET", own + "/metrics", 200)
            self.ask("POST", own + "/stop", 200, {})
            self.ask("POST", own + "/exec", 409, {"command": ["true"]})
        self.ask("GET", "/vms", 200)
        self.ask("GET", "/metrics", 200)
        self.ask("DELETE", own, 204)
        self.ask("GET", own, 404)
        self.made += 1

    def round(self):
        for _ in range(ROUND):
            self.turn()


def measure(daemon):
    """(resident KiB, descriptors, threads)"""
    with open(f"/proc/{daemon.process.pid}/status", encoding="ascii") as file:
        rows = dict(line.split(":", 1) for line in file)
    return (int(rows["VmRSS"].split()[0]), len(os.listdir(f"/proc/{daemon.process.pid}/fd")),
            int(rows["Threads"]))


def is_sanitized(daemon):
    with open(f"/proc/{daemon.process.pid}/maps", encoding="utf-8") as file:
        return "libasan" in file.read()


def churn(clients, pool, seconds):
    end = time.monotonic() + seconds
    list(pool.map(Client.round, clients))
    while time.monotonic() < end:
        list(pool.map(Client.round, clients))


def test_churn():
    options = os.environ.get("ASAN_OPTIONS", "") + ":quarantine_size_mb=1:thread_local_quarantine_size_kb=64"
    with Daemon(PROGRAM, PLUGINS,
                env={"ASAN_OPTIONS": options, "VMM_FAKE_FORGETS": "yes", "VMM_FAKE": "ready-ms=0,installer-ms=0"}) as daemon:
        daemon.log = Tail(daemon.log)
        clients = [Client(daemon, number) for number in range(CLIENTS)]
        with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
            churn(clients, pool, SECONDS / 2)
            warm = sum(client.made for client in clients)
            before = measure(daemon)
            churn(clients, pool, SECONDS / 2)
        count = sum(client.made for client in clients) - warm
        # Threads of a pool end after a while without work.
        eventually(lambda: measure(daemon)[1] <= before[1] and measure(daemon)[2] <= before[2] + 2,
                   f"descriptors or threads stay: {before}, {measure(daemon)}")
        after = measure(daemon)
        print(f"# churn: {count} VMs after {warm}, RSS {before[0]} -> {after[0]} KiB, "
              f"{before[1]} -> {after[1]} descriptors, {before[2]} -> {after[2]} threads")
        assert daemon.vms() == []
        slack = SANITIZED_KIB if is_sanitized(daemon) else SLACK_KIB
        assert after[0] - before[0] <= slack + PER_THOUSAND_KIB * count / 1000, "memory grows with the VMs"


if __name__ == "__main__":
    run([test_churn])
