#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""What one guest can take from the others of its network, by kind of misbehaviour.

A guest does requests and answers while a paced transfer of its goes on; beside it another one is quiet or
does its worst, turn and turn about. The network process, the working guest and whom that one talks to share
one processor, and whoever floods has another, so that what is lost is lost in the network process. On a
machine with other work the losses are mostly that. What a flood costs is then better seen in the
processor time that the network process spends for a second of it, with nobody else at work: 10 ms are one
per cent of what the others might have had. Rows as those of bench.py; what they are beside is the most
that may be."""

import argparse
import json
import os
import pathlib
import statistics
import struct
import subprocess
import sys
import time

SOURCE = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCE / "tests/netd"))

import frames  # noqa: E402
import netd  # noqa: E402

LOSS_PERCENT = 10
MEMORY_MIB = 64  # of both halves of the network process
BURST_SECONDS = 0.3
PACE = 50e6 / 8  # bytes per second
PIECE = 16384
WORK_CPU, FLOOD_CPU = 0, 1

# Runs in the namespace of the working guest, or of the one that misbehaves: no orders, no interpreter between.
WORKER = """
import select, socket, sys, threading, time
address, rr_port, sink_port, seconds, pace, piece = sys.argv[1], *map(float, sys.argv[2:])
end = time.monotonic() + seconds
sent = 0
def transfer():
    global sent
    data = bytes(int(piece))
    with socket.create_connection((address, int(sink_port)), timeout=60) as stream:
        start = time.monotonic()
        while (now := time.monotonic()) < end:
            if sent > (now - start) * pace:
                time.sleep(0.002)
            else:
                sent += stream.send(data)
thread = threading.Thread(target=transfer)
thread.start()
count = 0
poll = select.epoll()
streams = {}
for _ in range(16):
    stream = socket.create_connection((address, int(rr_port)), timeout=60)
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    streams[stream.fileno()] = stream
    poll.register(stream, select.EPOLLIN)
    stream.sendall(b"x")
while time.monotonic() < end:
    for number, _ in poll.poll(1):
        streams[number].recv(1)
        streams[number].sendall(b"x")
        count += 1
thread.join()
print(count / seconds, sent / seconds)
"""
CONNECTOR = """
import socket, sys, time
address, port, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
end = time.monotonic() + seconds
count, kept = 0, []
while time.monotonic() < end:
    stream = socket.socket()
    stream.setblocking(False)
    try:
        stream.connect((address, port))
    except BlockingIOError:
        pass
    except OSError:
        pass
    kept.append(stream)
    count += 1
    if count % 10 == 0:
        time.sleep(0.001)  # more of them would be slow for the kernel, whoever carries them
    if len(kept) > 200:
        kept.pop(0).close()
print(count)
"""
FLOODER = """
import socket, sys, time
stream = socket.socket(fileno=int(sys.argv[1]))
stream.settimeout(0.05)
data = memoryview(open(sys.argv[2], "rb").read())
at = 0
for line in sys.stdin:
    end = time.monotonic() + float(line)
    sent = 0
    while time.monotonic() < end:
        try:
            count = stream.send(data[at:at + 262144])
        except TimeoutError:
            continue
        sent += count
        at = (at + count) % len(data)
    print(sent, flush=True)
"""


def framed(all_frames):
    return b"".join(struct.pack("!I", len(frame)) + frame for frame in all_frames)


class Scene:
    """A guest that works; one that is nothing but frames; others that take; one more that has a kernel of its own."""

    def __init__(self, bench):
        self.bench = bench
        self.network = bench.network()
        self.worker = bench.guest(self.network.machine("worker"))
        self.bad = self.network.machine("bad")
        self.third = self.network.machine("third")
        self.raw = bench.raw(self.bad)
        self.guest = bench.guest(self.network.machine("connector"))
        raw_third = bench.raw(self.third)
        self.network.set_resolvers(netd.BLACK_HOLE)
        self.network.start()
        self.worker.lease()
        self.guest.lease()
        self.raw.accept(reading=False)
        raw_third.accept(reading=True)
        self.rr = Server(bench, "rr")
        self.sink = Server(bench, "hold")
        self.flooders = {}
        self.connects, self.begun = False, None
        pin(WORK_CPU, *self.network.pids(), self.worker.process.pid, self.worker.do("bridge_pid"),
            self.rr.process.pid, self.sink.process.pid)
        pin(FLOOD_CPU, os.getpid(), self.guest.process.pid, self.guest.do("bridge_pid"))

    def to_gateway(self, packet):
        return frames.ethernet(self.bad.mac, self.network.gateway_mac, frames.IPV4, packet)

    def flooder(self, kind):
        if kind not in self.flooders:
            path = self.bench.root / f"flood-{kind}"
            path.write_bytes(framed(FLOODS[kind](self)) * (1 + (1 << 20) // len(framed(FLOODS[kind](self)))))
            number = self.raw.connection.fileno()
            process = subprocess.Popen([sys.executable, "-c", FLOODER, str(number), str(path)], pass_fds=[number],
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                       preexec_fn=netd.die_with_parent)
            pin(FLOOD_CPU, process.pid)
            self.flooders[kind] = self.bench.keep(Flooder(process))
        return self.flooders[kind]

    def taken(self):
        name = "connector" if self.connects else "bad"
        return self.network.control.port(name)["counters"]["frames-received"]

    def work(self, seconds):
        """(requests per second, bytes per second)"""
        words = [sys.executable, "-c", WORKER, netd.OUTSIDE,
                 *map(str, (self.rr.port, self.sink.port, seconds, PACE, PIECE))]
        result = self.worker.do("execute", words=words)
        assert result["status"] == 0, result["errors"][-500:]
        return [float(word) for word in result["output"].split()]

    def begin(self, kind, seconds):
        self.connects = kind == "metadata"
        if self.connects:
            words = [sys.executable, "-c", CONNECTOR, "169.254.169.254", "80", str(seconds)]
            self.begun = self.guest.begin("execute", words=words)
        else:
            self.flooder(kind).begin(seconds)

    def end(self, kind):
        if self.connects:
            self.guest.wait(self.begun)
        else:
            self.flooder(kind).wait()

    def work_beside(self, kind, seconds):
        self.begin(kind, seconds + 0.7)  # longer than the work, which takes a moment to begin
        time.sleep(0.2)
        result = self.work(seconds)
        self.end(kind)
        return result


class Flooder:
    def __init__(self, process):
        self.process = process

    def begin(self, seconds):
        self.process.stdin.write(f"{seconds}\n")
        self.process.stdin.flush()

    def wait(self):
        return int(self.process.stdout.readline() or 0)

    def close(self):
        self.process.kill()
        self.process.wait()


class Server:
    """In a process of its own, so that it has a processor of its own."""

    def __init__(self, bench, mode):
        program = (f"import sys; sys.path.insert(0, {str(SOURCE / 'tests/netd')!r}); import transfer, time\n"
                   f"server = transfer.listen({netd.OUTSIDE!r}, mode={mode!r}); print(server.port, flush=True)\n"
                   "time.sleep(1e6)")
        self.process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True,
                                        stdin=subprocess.DEVNULL, preexec_fn=netd.die_with_parent)
        self.port = int(self.process.stdout.readline())
        bench.keep(self)

    def close(self):
        self.process.kill()
        self.process.wait()


def pin(cpu, *pids):
    """All their threads."""
    for pid in pids:
        for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
            os.sched_setaffinity(int(task.name), {cpu % os.cpu_count()})


def cpu_ns(pids):
    """Of processes with one thread."""
    total = 0
    for pid in pids:
        fields = pathlib.Path(f"/proc/{pid}/schedstat").read_text().split()
        total += int(fields[0])
    return total


def spoofed(scene):
    bad, network = scene.bad, scene.network
    return [frames.ethernet("02:00:00:00:00:01", network.gateway_mac, frames.IPV4,
                            frames.udp(bad.ip, netd.OUTSIDE, 1, 2, bytes(100))),
            frames.ethernet(bad.mac, network.gateway_mac, frames.IPV4,
                            frames.udp(scene.worker.machine.ip, netd.OUTSIDE, 1, 2, bytes(100))),
            frames.arp(2, bad.mac, network.gateway, frames.BROADCAST, network.gateway)]


def broadcasts(scene):
    return [frames.ethernet(scene.bad.mac, frames.BROADCAST, frames.IPV4,
                            frames.udp(scene.bad.ip, "10.77.0.255", 1, 2, bytes(100)))]


def to_third(scene):
    """To one that takes it. Whom it is for has the work of it as on any wire: that is no loss in netd."""
    victim = scene.third
    return [frames.ethernet(scene.bad.mac, victim.mac, frames.IPV4,
                            frames.udp(scene.bad.ip, victim.ip, 1, 2, bytes(1400)))]


def one_black_hole(scene):
    return [scene.to_gateway(frames.udp(scene.bad.ip, netd.BLACK_HOLE, 1000, 9, bytes(1400)))]


def many_black_holes(scene):
    return [scene.to_gateway(frames.udp(scene.bad.ip, f"203.0.113.{number % 250}", 1000 + number, 9, bytes(100)))
            for number in range(2000)]


def half_open(scene):
    return [scene.to_gateway(frames.tcp(scene.bad.ip, netd.BLACK_HOLE, 1024 + number, 80 + number % 7, frames.SYN))
            for number in range(10000)]


def refused(scene):
    """Connections to a port that is closed: each is there for a moment."""
    return [scene.to_gateway(frames.tcp(scene.bad.ip, netd.OUTSIDE, 1024 + number, 1, frames.SYN)) for number in range(10000)]


def fragments(scene):
    """Of packets that will never be whole."""
    found = []
    for number in range(1000):
        packet = bytearray(frames.udp(scene.bad.ip, netd.OUTSIDE, 1, 2, bytes(1400)))
        packet[4:8] = struct.pack("!HH", number, 0x2000)
        packet[10:12] = bytes(2)
        packet[10:12] = struct.pack("!H", frames.checksum(bytes(packet[:20])))
        found.append(scene.to_gateway(bytes(packet)))
    return found


def names(scene):
    return [scene.to_gateway(frames.udp(scene.bad.ip, scene.network.gateway, 2000 + number, 53,
                                        frames.dns_query(f"n{number}.example.org", identity=number)))
            for number in range(500)]


def asks(scene):
    """Wants answers and takes none."""
    return [frames.arp(1, scene.bad.mac, scene.bad.ip, "00:00:00:00:00:00", scene.network.gateway)]


def strays(scene):
    """Segments of no connection: each is answered with a reset."""
    return [scene.to_gateway(frames.tcp(scene.bad.ip, netd.OUTSIDE, 1024 + number, 80, frames.ACK, payload=b"x"))
            for number in range(1000)]


def pings(scene):
    echo = struct.pack("!BBHHH", 8, 0, 0, 1, 1) + bytes(56)
    echo = echo[:2] + struct.pack("!H", frames.checksum(echo)) + echo[4:]
    return [scene.to_gateway(frames.ipv4(scene.bad.ip, scene.network.gateway, frames.ICMP, echo))]


FLOODS = {"never-reads": asks, "spoofed": spoofed, "broadcast": broadcasts, "udp-to-guest": to_third,
          "udp-to-black-hole": one_black_hole, "udp-to-many": many_black_holes, "fragments": fragments,
          "half-open": half_open, "refused": refused, "dns": names, "stray-tcp": strays, "ping-gateway": pings}
KINDS = [*FLOODS, "metadata"]
RARE_KINDS = {"udp-to-many", "stray-tcp", "ping-gateway"}  # much as one of the others


def flood_alone(scene, kind, seconds):
    """(processor ns of netd per second, frames that it took per second) with nobody else at work."""
    scene.begin(kind, BURST_SECONDS)  # what may be had at once is gone then
    scene.end(kind)
    taken, used = scene.taken(), cpu_ns(scene.network.pids())
    start = time.monotonic()
    scene.begin(kind, seconds)
    scene.end(kind)
    used, taken = cpu_ns(scene.network.pids()) - used, scene.taken() - taken
    took = time.monotonic() - start
    return used / took, taken / took


def measure(rows, kind, build, rounds, seconds):
    with netd.Bench(build / "plugins/netd/vmm-netd", build / "tests/netd/stream-tap") as bench:
        scene = Scene(bench)
        used, taken = flood_alone(scene, kind, seconds)
        quiet, beside, losses, transfer_losses = [], [], [], []
        for _ in range(rounds):
            quiet.append(scene.work(seconds))
            beside.append(scene.work_beside(kind, seconds))
            losses.append(100 * (1 - beside[-1][0] / quiet[-1][0]))
            transfer_losses.append(100 * (1 - beside[-1][1] / quiet[-1][1]))
        memory = scene.network.rss_mib()

    def add(name, value, unit, peer=None, peer_name=""):
        rows.append({"name": f"net-fairness-{kind}-{name}", "value": round(value, 2), "unit": unit, "peer": peer,
                     "peer_name": peer_name, "ratio": round(value / peer, 3) if peer else None})

    loss, transfer_loss = statistics.median(losses), statistics.median(transfer_losses)
    add("loss-percent", loss, "%", LOSS_PERCENT, "limit")
    add("transfer-loss-percent", transfer_loss, "%", LOSS_PERCENT, "limit")
    add("cpu-ms-per-s", used / 1e6, "ms/s", 10 * LOSS_PERCENT, "limit")
    add("taken-per-s", taken, "1/s")
    add("rss-mib", memory, "MiB", MEMORY_MIB, "limit")
    alone, others = ([statistics.median(column) for column in zip(*found)] for found in (quiet, beside))
    print(f"{kind:18} requests {alone[0]:6.0f} -> {others[0]:6.0f} /s ({loss:5.1f} % lost), transfer {alone[1] * 8e-6:5.1f} "
          f"-> {others[1] * 8e-6:5.1f} Mbit/s ({transfer_loss:4.1f} % lost), {taken:7.0f} frames/s taken for "
          f"{used / 1e6:5.1f} ms/s, {memory:4.1f} MiB", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=0.5, help="of each half of a round")
    parser.add_argument("--kind", action="append", choices=KINDS,
                        help=f"only these; else all but {', '.join(sorted(RARE_KINDS))}")
    arguments = parser.parse_args()
    netd.enter_namespace()
    rows = []
    for kind in arguments.kind or [kind for kind in KINDS if kind not in RARE_KINDS]:
        measure(rows, kind, arguments.build.resolve(), arguments.rounds, arguments.seconds)
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    sys.exit(main())
