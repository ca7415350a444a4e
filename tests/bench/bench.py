#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Figures of the daemon, each beside a floor or peer of the same run.

The daemon is the optimised build with the test's fake backends, so that a thousand VMs cost
nothing but what the daemon itself does. Rows: {name, value, unit, peer, ratio}; peer is the
figure of the thing named in peer_name, ratio is value / peer (for rates: peer / value), so that
less is better everywhere.
"""

import argparse
import concurrent.futures
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

MACHINES = 1000
IDLE_SECONDS = 20
SETTLE_SECONDS = 20  # idle worker threads end after 15 s
TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def status_field(pid, name):
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(rf"^{name}:\s+(\d+)", text, re.M).group(1))


def pss_mib(pid):
    text = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(re.search(r"^Pss:\s+(\d+)", text, re.M).group(1)) / 1024


def switches(pid):
    """Voluntary context switches of each thread."""
    counts = {}
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        text = (task / "status").read_text()
        counts[task.name] = int(re.search(r"^voluntary_ctxt_switches:\s+(\d+)", text, re.M).group(1))
    return counts


def wakeups_per_second(pid, seconds):
    """Of the threads that are there at both ends, and one for each that ended between."""
    before = switches(pid)
    time.sleep(seconds)
    after = switches(pid)
    woken = sum(after[thread] - before.get(thread, 0) for thread in after)
    return (woken + len(set(before) - set(after))) / seconds


class Daemon:
    """Runs of the daemon on one state directory; all of them end with the program."""

    running = []

    def __init__(self, build, root):
        self.build, self.root = build, root
        self.process = None
        self.port = None

    def start(self):
        environment = dict(os.environ, VMM_FAKE="installer-ms=1,ready-ms=1", G_DEBUG="")
        environment.pop("NOTIFY_SOCKET", None)
        self.process = subprocess.Popen(
            [
                self.build / "daemon/vm-manager",
                "serve",
                "--listen=127.0.0.1:0",
                f"--listen-unix={self.root}/api.sock",
                f"--state-dir={self.root}/state",
                f"--image-dir={self.root}/images",
                f"--plugin-dir={self.build}/plugins:{self.build}/tests/lib",
                f"--ovmf-code={self.root}/firmware",
                f"--ovmf-vars={self.root}/firmware",
            ],
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        Daemon.running.append(self)
        for line in self.process.stderr:
            match = re.search(r"127\.0\.0\.1:(\d+)", line)
            if match:
                self.port = int(match.group(1))
                break
        else:
            raise SystemExit(f"the daemon did not start (status {self.process.wait()})")
        # Nothing may block on a full pipe.
        threading.Thread(target=self.process.stderr.read, daemon=True).start()
        return self

    def end(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        self.process.wait(60)
        Daemon.running.remove(self)

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)

    def get(self, connection, path):
        connection.request("GET", path)
        response = connection.getresponse()
        body = response.read()
        if response.status != 200:
            raise SystemExit(f"GET {path}: {response.status} {body[:300]!r}")
        return body


def prepare(root):
    images = root / "images"
    images.mkdir()
    for suffix in ("efi", "raw"):
        (images / f"bench_1.0.0.{suffix}").write_bytes(b"bench")
    (root / "firmware").write_bytes(b"bench")
    return root


def create_fleet(daemon, count):
    def create(index):
        connection = daemon.connect()
        body = json.dumps({"name": f"vm-{index}", "network": "wide", "wait_for": "none", "disk_gib": 1,
                           "require_attestation": False})
        connection.request("POST", "/api/v1/vms", body)
        response = connection.getresponse()
        text = response.read()
        connection.close()
        if response.status != 201:
            raise SystemExit(f"create: {response.status} {text[:300]!r}")

    connection = daemon.connect()
    connection.request("POST", "/api/v1/networks", json.dumps({"name": "wide", "cidr": "10.90.0.0/16"}))
    response = connection.getresponse()
    text = response.read()
    if response.status != 201:
        raise SystemExit(f"network: {response.status} {text[:300]!r}")
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(create, range(count)))


def settle(daemon, count):
    """Until no VM is on its way any more."""
    connection = daemon.connect()
    while True:
        states = [vm["state"] for vm in json.loads(daemon.get(connection, "/api/v1/vms"))]
        if len(states) == count and not {"creating", "installing", "booting"} & set(states):
            return
        time.sleep(0.2)


def latency_ms(connection, path, rounds):
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        connection.request("GET", path)
        connection.getresponse().read()
        times.append((time.perf_counter() - start) * 1000)
    return statistics.median(times)


def wrk(port, path, pid, seconds=4):
    """Requests per second of processor time of the server."""
    before = cpu_seconds(pid)
    output = subprocess.run(
        ["wrk", "-t1", "-c8", f"-d{seconds}s", f"http://127.0.0.1:{port}{path}"],
        capture_output=True, text=True, check=True,
    ).stdout
    used = cpu_seconds(pid) - before
    requests = int(re.search(r"(\d+) requests in", output).group(1))
    if "Non-2xx" in output:
        raise SystemExit(output)
    return requests / used if used else float("inf")


class Floor:
    """A bare libsoup server with the same body."""

    def __init__(self, build, body, root):
        path = root / "floor.json"
        path.write_bytes(body)
        self.process = subprocess.Popen([build / "tests/bench/bench-floor", path], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline())

    def end(self):
        self.process.stdin.close()
        self.process.wait(10)


class Rows:
    def __init__(self):
        self.rows = []

    def add(self, name, value, unit, peer=None, peer_name="", less_is_better=True):
        ratio = None
        if peer:
            ratio = round(value / peer if less_is_better else peer / value, 3)
        row = {"name": name, "value": round(value, 3), "unit": unit,
               "peer": round(peer, 3) if peer is not None else None, "peer_name": peer_name, "ratio": ratio}
        self.rows.append(row)
        beside = f"   {peer_name} {row['peer']:g}, ratio {ratio:g}" if peer else ""
        print(f"{name:32} {row['value']:>12g} {unit:8}{beside}", flush=True)


def bench_idle(rows, build, root):
    daemon = Daemon(build, prepare(root)).start()
    connection = daemon.connect()
    daemon.get(connection, "/api/v1/vms")
    connection.close()
    time.sleep(SETTLE_SECONDS)
    rows.add("daemon-wakeups-per-s", wakeups_per_second(daemon.process.pid, IDLE_SECONDS), "1/s")
    floor = Floor(build, b"{}", root)
    rows.add("daemon-idle-mib", status_field(daemon.process.pid, "VmRSS") / 1024, "MiB",
             status_field(floor.process.pid, "VmRSS") / 1024, "bare libsoup")
    rows.add("daemon-idle-pss-mib", pss_mib(daemon.process.pid), "MiB", pss_mib(floor.process.pid), "bare libsoup")
    floor.end()
    daemon.end()


def restart(daemon, count):
    """Milliseconds from the start of the program until the list is complete."""
    start = time.perf_counter()
    daemon.start()
    connection = daemon.connect()
    states = [vm["state"] for vm in json.loads(daemon.get(connection, "/api/v1/vms"))]
    took = (time.perf_counter() - start) * 1000
    if len(states) != count:
        raise SystemExit(f"{len(states)} of {count} VMs after a restart")
    return took


def bench_fleet(rows, build, root):
    daemon = Daemon(build, prepare(root)).start()
    start = time.perf_counter()
    create_fleet(daemon, MACHINES)
    rows.add("create-1000-s", time.perf_counter() - start, "s")
    settle(daemon, MACHINES)
    pid = daemon.process.pid
    connection = daemon.connect()
    body = daemon.get(connection, "/api/v1/vms")
    one = json.loads(body)[0]["id"]
    single = daemon.get(connection, f"/api/v1/vms/{one}")
    floor = Floor(build, body, root)
    floor_connection = http.client.HTTPConnection("127.0.0.1", floor.port, timeout=60)
    latency_ms(connection, "/api/v1/vms", 20)
    rows.add("list-1000-p50-ms", latency_ms(connection, "/api/v1/vms", 200), "ms",
             latency_ms(floor_connection, "/", 200), "bare libsoup")
    floor.end()

    floor = Floor(build, single, root)
    rows.add("get-per-cpu-s", wrk(daemon.port, f"/api/v1/vms/{one}", pid), "1/s",
             wrk(floor.port, "/", floor.process.pid), "bare libsoup", less_is_better=False)
    floor.end()
    start = time.perf_counter()
    daemon.get(connection, "/metrics")
    rows.add("metrics-1000-ms", (time.perf_counter() - start) * 1000, "ms")

    daemon.end(signal.SIGKILL)
    rows.add("restart-1000-live-ms", restart(daemon, MACHINES), "ms")
    settle(daemon, MACHINES)
    times = []
    for _ in range(5):
        daemon.end(signal.SIGKILL)
        times.append(restart(daemon, MACHINES))
    rows.add("restart-1000-ms", statistics.median(times), "ms")
    # Here the fakes keep nothing any more: what is left is the daemon's own.
    rows.add("daemon-1000-vms-mib", status_field(daemon.process.pid, "VmRSS") / 1024, "MiB")
    daemon.end()


def bench_network(rows, build, root):
    """In processes of their own, of which some become part of another network namespace."""
    if not (build / "plugins/netd/vmm-netd").exists():
        print("vmm-netd is not built: its rows and those of real VMs are left out", flush=True)
        return
    for name in ("bench-vm.py", "bench-network.py", "bench-network-fairness.py"):
        found = root / f"{name}.json"
        program = pathlib.Path(__file__).with_name(name)
        subprocess.run([sys.executable, program, "--build", build, "--json", found], check=True)
        if found.exists():
            rows.rows += json.loads(found.read_text())


def add_figures(rows, build):
    """What the last './run test' counted: kills, points, executions."""
    path = build.parent / "figures.json"
    if path.exists():
        rows.rows += json.loads(path.read_text())


def main():
    parser = argparse.ArgumentParser(prog="./run bench", description="Measures vm-manager.")
    parser.add_argument("--build", type=pathlib.Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write the rows to FILE")
    arguments = parser.parse_args()
    build = arguments.build.resolve()
    rows = Rows()
    for bench in (bench_idle, bench_fleet, bench_network):
        root = pathlib.Path(tempfile.mkdtemp(prefix="vmm.", dir="/tmp"))
        try:
            bench(rows, build, root)
        finally:
            for daemon in list(Daemon.running):
                daemon.end(signal.SIGKILL)
            shutil.rmtree(root, ignore_errors=True)
    add_figures(rows, build)
    if arguments.json:
        arguments.json.write_text(json.dumps(rows.rows, indent=2) + "\n")


if __name__ == "__main__":
    sys.exit(main())
