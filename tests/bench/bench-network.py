#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Figures of the network process beside slirp4netns, passt and gvproxy in the same run, and beside the
floor: what the same bytes cost when they are only read and written.

slirp4netns is started as Podman starts it: it confines itself, as all others do.

Each carries the traffic of a guest without a processor: a namespace behind a TAP device. What counts is
the processor time that the network process takes for a byte; rates depend on the machine. Runs are
interleaved, so that what else the machine does hits all of them. Rows as those of bench.py."""

import argparse
import json
import os
import pathlib
import resource
import socket
import statistics
import subprocess
import sys
import time

SOURCE = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCE / "tests/netd"))

import netd  # noqa: E402
import transfer  # noqa: E402

MTUS = (1500, 65520)
DIRECTIONS = ("g2h", "h2g")
WARM_SECONDS, MEASURE_SECONDS = 1, 3
STALLED = 8 << 20  # a run with less than this has stalled: it says nothing about the cost of a byte
IDLE_SECONDS = 20
FLOWS = 500
TICK_NS = 1e9 / os.sysconf("SC_CLK_TCK")
GVPROXY = "VMM_BENCH_GVPROXY"
PEER = "slirp4netns"


def family(pid):
    """A process and all that it started."""
    found = [pid]
    for parent in found:
        found += netd.children(parent)
    return found


def cpu_ns(pids):
    total = 0
    for pid in pids:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += (int(fields[11]) + int(fields[12])) * TICK_NS
    return total


def wakeups(pids):
    total = 0
    for pid in pids:
        for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
            text = (task / "status").read_text()
            total += int(text.rpartition("\nvoluntary_ctxt_switches:")[2].split()[0])
    return total


def memory_mib(pids, name):
    total = 0
    for pid in pids:
        for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith(name + ":"):
                total += int(line.split()[1])
    return total / 1024


class Engine:
    """A network process and its guest."""

    name = None

    def __init__(self, bench, mtu):
        self.bench, self.mtu = bench, mtu
        self.machine = netd.Machine(bench.root / f"{self.name}-{mtu}", "a", "default", "10.77.0.2")
        self.process = None

    def start_process(self, *words):
        self.process = subprocess.Popen([str(word) for word in words], stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                        preexec_fn=netd.die_with_parent)
        self.bench.keep(self)

    def pids(self):
        return family(self.process.pid)

    def guest_bytes(self, direction):
        """What the guest's device has carried."""
        for line in pathlib.Path(f"/proc/{self.guest.process.pid}/net/dev").read_text().splitlines():
            if line.strip().startswith("tap0:"):
                fields = line.split(":")[1].split()
                return int(fields[8 if direction == "g2h" else 0])
        return 0

    def close(self):
        self.process.kill()
        self.process.wait()


class Netd(Engine):
    name = "slirp"

    def start(self):
        self.network = self.bench.network(mtu=self.mtu)
        self.machine = self.network.machine("a")
        self.guest = self.bench.guest(self.machine)
        # A neighbour, for idle wake-ups and memory as they are in use.
        self.neighbour = self.bench.guest(self.network.machine("b"))
        self.network.start()
        self.process = self.network.process
        self.guest.lease()
        self.neighbour.lease()


class Slirp4netns(Engine):
    name = PEER

    def start(self):
        self.guest = self.bench.guest(self.machine, "--no-tap")
        self.start_process("slirp4netns", "--configure", f"--mtu={self.mtu}", "--disable-host-loopback",
                           "--enable-sandbox", "--enable-seccomp", self.guest.process.pid, "tap0")
        netd.eventually(lambda: self.guest.do("execute", words=["ip", "route", "get", netd.OUTSIDE])["status"] == 0,
                        "slirp4netns does not come up", 20)


class Passt(Engine):
    name = "passt"

    def start(self):
        self.start_process("passt", "-f", "--runas", "0", "-s", self.machine.socket, "-i", "uplink", "-4",
                           "-a", "10.0.2.15", "-n", "24", "-g", "10.0.2.2", "-m", self.mtu)
        netd.eventually(self.machine.socket.exists, "passt does not come up", 20)
        self.guest = self.bench.guest(self.machine, "--connect")
        self.guest.lease()


class Gvproxy(Engine):
    name = "gvproxy"

    def start(self):
        program = os.environ.get(GVPROXY)
        if not program:
            raise netd.Skip("gvproxy cannot be had")
        self.start_process(program, "-ssh-port", "-1", "-mtu", self.mtu, "-listen-qemu", f"unix://{self.machine.socket}")
        netd.eventually(self.machine.socket.exists, "gvproxy does not come up", 20)
        self.machine.mac = "5a:94:ef:e4:0c:ee"  # the one that it has an address for
        self.guest = self.bench.guest(self.machine, "--connect")
        self.guest.lease()


def start_engines(bench, mtu, chosen):
    engines = []
    for kind in (Netd, Slirp4netns, Passt, Gvproxy):
        if chosen and kind.name not in chosen:
            continue
        engine = kind(bench, mtu)
        try:
            engine.start()
        except (netd.Skip, netd.Refused, FileNotFoundError, AssertionError) as error:
            print(f"{engine.name} is left out: {error}", flush=True)
            continue
        engines.append(engine)
    return engines


# --- bytes ---


def carry(engine, direction, port):
    """(processor ns per byte, Mbit/s) of one stream, its first second left out; None when it stalls."""
    words = ["iperf3", "-c", netd.OUTSIDE, "-p", str(port), "-t", str(WARM_SECONDS + MEASURE_SECONDS + 1), "-J"]
    if direction == "h2g":
        words.append("-R")
    pids = engine.pids()
    first = engine.guest_bytes(direction)
    running = engine.guest.begin("execute", words=words)
    end = time.monotonic() + 5
    while engine.guest_bytes(direction) - first < 1 << 20 and time.monotonic() < end:
        time.sleep(0.01)
    time.sleep(WARM_SECONDS)
    before = cpu_ns(pids), engine.guest_bytes(direction), time.monotonic()
    time.sleep(MEASURE_SECONDS)
    after = cpu_ns(pids), engine.guest_bytes(direction), time.monotonic()
    result = engine.guest.wait(running)
    if result["status"] != 0:
        print(f"{engine.name} {direction}: iperf3 failed: {result['output'][-300:]}", flush=True)
        return None
    whole = engine.guest_bytes(direction) - first
    # The device counts headers; the part of it that was data is known for the whole run.
    data = sum(interval["sum"]["bytes"] for interval in json.loads(result["output"])["intervals"])
    count = (after[1] - before[1]) * data / whole if whole else 0
    if count < STALLED:
        return None
    return (after[0] - before[0]) / count, count * 8e-6 / (after[2] - before[2])


class Iperf:
    def __init__(self, bench):
        with socket.create_server((netd.OUTSIDE, 0)) as free:
            self.port = free.getsockname()[1]
        self.process = subprocess.Popen(["iperf3", "-s", "-B", netd.OUTSIDE, "-p", str(self.port)],
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        preexec_fn=netd.die_with_parent)
        bench.keep(self)

    def close(self):
        self.process.kill()
        self.process.wait()


def bench_bytes(rows, bench, engines, mtu, rounds):
    port = Iperf(bench).port
    found = {}
    for _ in range(rounds):
        for direction in DIRECTIONS:
            for engine in engines:
                result = carry(engine, direction, port)
                if result:
                    found.setdefault((engine.name, direction), []).append(result)
    for direction in DIRECTIONS:
        floor = statistics.median(floor_ns(direction, mtu) for _ in range(rounds))
        rows.add(f"net-floor-{direction}-{mtu}-ns-per-byte", floor, "ns/B")
        peers = found.get((PEER, direction))
        for engine in engines:
            results = found.get((engine.name, direction), [])
            if len(results) < rounds:
                print(f"net-{engine.name}-{direction}-{mtu}: stalled in {rounds - len(results)} of {rounds} runs", flush=True)
            if not results:
                continue
            value, rate = (statistics.median(column) for column in zip(*results))
            spread = " ".join(f"{result[0]:.2f}" for result in results)
            peer, peer_rate = (statistics.median(column) for column in zip(*peers)) if peers else (None, None)
            is_peer = engine.name == PEER
            rows.add(f"net-{engine.name}-{direction}-{mtu}-ns-per-byte", value, "ns/B", None if is_peer else peer, PEER)
            rows.add(f"net-{engine.name}-{direction}-{mtu}-mbit-s", rate, "Mbit/s", None if is_peer else peer_rate, PEER,
                     less_is_better=False)
            print(f"{'':8}rounds: {spread} ns/B; {value / floor:.1f} times the floor", flush=True)


# --- the floor ---


def pump(writer, reader, piece, size):
    """Processor ns per byte of writing @piece over and over, and of reading it in large reads."""
    report, answer = os.pipe()
    child = os.fork()
    if child == 0:
        reader.close()
        writer.setblocking(True)
        start = resource.getrusage(resource.RUSAGE_SELF)
        left = size
        while left > 0:
            writer.sendall(piece)
            left -= len(piece)
        used = resource.getrusage(resource.RUSAGE_SELF)
        took = used.ru_utime + used.ru_stime - start.ru_utime - start.ru_stime
        os.write(answer, str(took).encode())
        os._exit(0)
    writer.close()
    os.close(answer)
    buffer = bytearray(256 * 1024)
    start = resource.getrusage(resource.RUSAGE_SELF)
    total = 0
    while count := reader.recv_into(buffer):
        total += count
    used = resource.getrusage(resource.RUSAGE_SELF)
    wrote = float(os.read(report, 100))
    os.close(report)
    os.waitpid(child, 0)
    reader.close()
    read = used.ru_utime + used.ru_stime - start.ru_utime - start.ru_stime
    return wrote * 1e9 / total, read * 1e9 / total


def floor_ns(direction, mtu):
    """Frames through a Unix stream at one end, large pieces of data through TCP at the other."""
    frame = bytes(mtu + 18)
    batch = frame * max(1, 65536 // len(frame))
    frames_written, frames_read = pump(*socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM), batch, 1 << 29)
    with socket.create_server((netd.OUTSIDE, 0)) as server:
        client = socket.create_connection(server.getsockname())
        reader, _ = server.accept()
    data_written, data_read = pump(client, reader, bytes(65536), 1 << 29)
    return frames_read + data_written if direction == "g2h" else frames_written + data_read


# --- time, idling, memory ---


def join_two(bench):
    """Two guests whose bridges face each other: what the way through the stream costs without anything
    behind it. slirp4netns sits on the device itself and is spared that way."""
    first, second = (netd.Machine(bench.root / "bridge", name, "bridge", f"10.5.0.{number}")
                     for number, name in ((1, "a"), (2, "b")))
    second.socket = first.socket
    guests = bench.guest(first), bench.guest(second, "--connect")
    for guest in guests:
        guest.do("address", ip_address=guest.machine.ip, prefix=24)
    return guests


def bench_latency(rows, bench, engines, rounds):
    server = bench.keep(transfer.listen(netd.OUTSIDE, mode="rr"))
    here, there = join_two(bench)
    port = there.do("tcp_listen", mode="rr")["port"]
    ways = [("floor", there, "127.0.0.1", port), ("bridge", here, there.machine.ip, port)]
    ways += [(engine.name, engine.guest, netd.OUTSIDE, server.port) for engine in engines]
    trips, connects = {}, {}
    for _ in range(rounds):
        for name, guest, address, port in ways:
            where = {"address": address, "port": port}
            trips.setdefault(name, []).extend(guest.do("round_trips", **where, count=2000))
            connects.setdefault(name, []).extend(guest.do("connects", **where, count=100))
    for name, found in (("request-response", trips), ("connect-request-close", connects)):
        for engine, times in found.items():
            peer = None if engine in (PEER, "floor", "bridge") else found.get(PEER)
            rows.add(f"net-{engine}-{name}-p50-us", statistics.median(times) * 1e6, "us",
                     statistics.median(peer) * 1e6 if peer else None, PEER)


def add_beside_peer(rows, name, unit, values):
    for engine, value in values.items():
        rows.add(f"net-{engine}-{name}", value, unit, None if engine == PEER else values.get(PEER), PEER)


def bench_idle(rows, engines):
    time.sleep(10)  # closed connections are forgotten
    before = {engine.name: wakeups(engine.pids()) for engine in engines}
    start = time.monotonic()
    time.sleep(IDLE_SECONDS)
    took = time.monotonic() - start
    add_beside_peer(rows, "idle-wakeups-per-s", "1/s",
                    {engine.name: (wakeups(engine.pids()) - before[engine.name]) / took for engine in engines})


def bench_memory(rows, engines):
    for name in ("Rss", "Pss"):
        add_beside_peer(rows, f"idle-{name.lower()}-mib", "MiB",
                        {engine.name: memory_mib(engine.pids(), name) for engine in engines})


def bench_flows(rows, bench, engines):
    server = bench.keep(transfer.listen(netd.OUTSIDE, mode="rr"))
    found, slope = {}, {}
    for engine in engines:
        before = memory_mib(engine.pids(), "Pss")
        try:
            opened = engine.guest.do("open_many", address=netd.OUTSIDE, port=server.port, count=FLOWS)
        except netd.Refused as error:
            print(f"{engine.name}: no {FLOWS} flows: {error}", flush=True)
            continue
        found[engine.name] = memory_mib(engine.pids(), "Rss")
        slope[engine.name] = (memory_mib(engine.pids(), "Pss") - before) * 1024 / FLOWS
        for thing in opened:
            engine.guest.do("close", thing=thing)
    add_beside_peer(rows, f"{FLOWS}-flows-rss-mib", "MiB", found)
    add_beside_peer(rows, "kib-per-flow", "KiB", slope)


class Rows:
    def __init__(self):
        self.rows = []

    def add(self, name, value, unit, peer=None, peer_name="", less_is_better=True):
        ratio = None
        if peer:
            ratio = round(value / peer if less_is_better else peer / max(value, 1e-9), 3)
        self.rows.append({"name": name, "value": round(value, 3), "unit": unit,
                          "peer": None if peer is None else round(peer, 3), "peer_name": peer_name, "ratio": ratio})
        beside = f"   {peer_name} {peer:.3g}, ratio {ratio:g}" if peer else ""
        print(f"{name:44} {value:>10.3f} {unit:8}{beside}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--engine", action="append", help="only these")
    parser.add_argument("--only", choices=["bytes", "latency", "idle", "memory", "flows"])
    arguments = parser.parse_args()
    if GVPROXY not in os.environ:
        # On the outside: it may have to be downloaded.
        done = subprocess.run([SOURCE / "tests/debian-unpack", "trixie", "gvproxy"], capture_output=True, text=True)
        os.environ[GVPROXY] = f"{done.stdout.strip()}/usr/bin/gvproxy" if done.returncode == 0 else ""
    netd.enter_namespace()
    build = arguments.build.resolve()
    rows = Rows()

    def wanted(name):
        return arguments.only in (None, name)

    for mtu in MTUS:
        with netd.Bench(build / "plugins/netd/vmm-netd", build / "tests/netd/stream-tap") as bench:
            engines = start_engines(bench, mtu, arguments.engine)
            if mtu == MTUS[0]:
                if wanted("memory"):
                    bench_memory(rows, engines)
                if wanted("idle"):
                    bench_idle(rows, engines)
                if wanted("latency"):
                    bench_latency(rows, bench, engines, arguments.rounds)
                if wanted("flows"):
                    bench_flows(rows, bench, engines)
            if wanted("bytes"):
                bench_bytes(rows, bench, engines, mtu, arguments.rounds)
    if arguments.json:
        arguments.json.write_text(json.dumps(rows.rows, indent=2) + "\n")


if __name__ == "__main__":
    sys.exit(main())
