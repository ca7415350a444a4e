#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""The network with real virtual machines: the QEMU of this Debian, and a newer one unpacked at the side.
Emulated, because not every machine has hardware help.

Usage: test-netd-qemu.py VMM-NETD STREAM-TAP"""

import os
import pathlib
import re
import signal
import socket
import struct
import subprocess
import sys

import frames
import netd
import transfer

SOURCE = pathlib.Path(__file__).resolve().parents[2]
UNPACKED = "VMM_TEST_UNPACKED"  # what was found before the network was left behind


def unpack(*words):
    done = subprocess.run(words, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else None


def find_everything():
    """Runs on the outside: what is not there yet has to be downloaded."""
    if UNPACKED in os.environ:
        return
    guest = unpack(SOURCE / "tests/netd/make-test-guest")
    newer = unpack(SOURCE / "tests/debian-unpack", "bookworm-backports", "qemu-system-x86")
    program = f"{newer}/usr/bin/qemu-system-x86_64" if newer else ""
    os.environ[UNPACKED] = f"{guest or ''}:{program}"


def archive(name, text):
    """A file for the initial RAM disk: a cpio archive, "newc", that the kernel unpacks behind the first."""
    data = b""
    for path, content, mode in ((name, text.encode(), 0o100755), ("TRAILER!!!", b"", 0)):
        values = (0, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(path) + 1, 0)
        entry = b"070701" + b"".join(b"%08X" % value for value in values) + path.encode() + b"\0"
        entry += bytes(-len(entry) % 4) + content
        data += entry + bytes(-len(entry) % 4)
    return data


class Qemu:
    def __init__(self, bench, program, machine, task):
        guest = os.environ[UNPACKED].partition(":")[0]
        if not guest:
            raise netd.Skip("no guest: see tests/netd/make-test-guest")
        initrd = machine.folder / "initrd"
        base = pathlib.Path(guest, "initrd").read_bytes()
        initrd.write_bytes(base + bytes(-len(base) % 4) + archive("task", "#!/bin/sh\n" + task))
        self.serial = machine.folder / "serial"
        command = [
            program, "-L", "/usr/share/qemu", "-L", "/usr/share/seabios", "-M", "q35", "-cpu", "max", "-accel", "tcg",
            "-m", "128", "-nodefaults", "-no-user-config", "-display", "none", "-serial", f"file:{self.serial}",
            "-kernel", f"{guest}/vmlinux", "-initrd", initrd,
            "-append", "console=ttyS0 quiet panic=-1 mitigations=off do=sh+/task",
            "-netdev", f"stream,id=n,server=on,addr.type=unix,addr.path={machine.socket}",
            "-device", f"virtio-net-pci,netdev=n,romfile=,mac={machine.mac}",
        ]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=netd.die_with_parent)
        bench.keep(self)

    def text(self):
        return self.serial.read_text(errors="replace") if self.serial.exists() else ""

    def wait(self, pattern):
        return netd.eventually(lambda: re.search(pattern, self.text(), re.M),
                               lambda: f"no {pattern!r} on the console:\n{self.text()[-3000:]}", 300)

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


def programs():
    newer = os.environ[UNPACKED].partition(":")[2]
    return {"debian": "qemu-system-x86_64", "newer": newer}


def version(which):
    program = programs()[which]
    if not program:
        raise netd.Skip("the newer QEMU cannot be had")
    try:
        text = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise netd.Skip(f"{program}: {error}")
    print("#", text.splitlines()[0], flush=True)
    return program


def answer(message, over_tcp):
    if message[-4:-2] != b"\0\1":  # not for an IPv4 address
        return message[:2] + struct.pack("!HHHHH", 0x8180, 1, 0, 0, 0) + message[12:]
    head = message[:2] + struct.pack("!HHHHH", 0x8180, 1, 1, 0, 0)
    return head + message[12:] + b"\xc0\x0c" + struct.pack("!HHIH", 1, 1, 60, 4) + bytes([198, 51, 100, 77])


def basics(bench, which, mtu):
    program = version(which)
    size = 8 << 20
    source = bench.keep(transfer.listen(netd.OUTSIDE, mode=f"source 6 {size}"))
    digest = bench.keep(transfer.listen(netd.OUTSIDE, mode="digest"))
    bench.keep(netd.Resolver("127.0.0.11", answer))
    network = bench.network(mtu=mtu)
    machine = network.machine("a")
    bench.keep(netd.Metadata(machine, "this is a"))
    network.start()
    virtual = Qemu(bench, program, machine, f"""
        cat /sys/class/net/eth0/address
        nslookup host.example.org
        echo "metadata: $(wget -q -O - http://169.254.169.254/)"
        echo "down: $(nc {netd.OUTSIDE} {source.port} </dev/null | sha256sum)"
        nc {netd.OUTSIDE} {source.port} </dev/null >/tmp/data
        echo "up: $(nc {netd.OUTSIDE} {digest.port} </tmp/data)"
        (echo refused | nc -w 5 169.254.1.1 80) || echo "link-local: refused"
        nc -ll -p 7000 -e cat &
        echo listening
        while [ ! -e /tmp/end ]; do sleep 1; done
        """)
    lease = virtual.wait(r"^TEST-LEASE (\S+) (\S+) (\S+) (\S+)")
    assert lease.groups() == (machine.ip, network.gateway, str(mtu), network.gateway), lease.groups()
    virtual.wait("^" + machine.mac)
    virtual.wait(r"198\.51\.100\.77")
    assert virtual.wait(r"^metadata: (.*?)\r?$").group(1) == "this is a"
    assert virtual.wait(r"^down: (\w+)").group(1) == transfer.digest(6, size)
    assert virtual.wait(r"^up: (.*?)\r?$").group(1) == f"{size} {transfer.digest(6, size)}"
    virtual.wait(r"^link-local: refused")
    virtual.wait(r"^listening")
    port = network.forward("one", machine, 7000)
    for connect in (lambda: network.control.dial("a", 7000),
                    lambda: socket.create_connection(("127.0.0.1", port), timeout=netd.DEADLINE)):
        with netd.eventually(lambda: try_echo(connect), "the guest's server does not answer") as connection:
            assert transfer.swap(connection, 7, 2 << 20)["sha256"] == transfer.digest(7, 2 << 20)
            connection.shutdown(socket.SHUT_WR)
            assert transfer.receive(connection)["size"] == 0
    counters = network.control.counters()
    assert counters["bytes-sent"] > 2 * size and counters["bytes-received"] > size, counters
    spoofs = {name: value for name, value in counters.items() if name.startswith("spoofed") and value}
    assert not spoofs, spoofs


def try_echo(connect):
    try:
        connection = connect()
    except (netd.Refused, ConnectionError):
        return None
    connection.settimeout(netd.DEADLINE)
    try:
        connection.sendall(b"x")
        if connection.recv(1) == b"x":
            return connection
    except ConnectionError:
        pass
    connection.close()
    return None


def restart(bench, which):
    program = version(which)
    sink = bench.keep(transfer.listen(netd.OUTSIDE, mode="digest"))
    network = bench.network()
    machine = network.machine("a")
    bench.keep(netd.Metadata(machine, "this is a"))
    network.start()
    virtual = Qemu(bench, program, machine, f"""
        nc -ll -p 7000 -e cat &
        while :; do dd if=/dev/zero bs=64k count=256 2>/dev/null | nc -w 10 {netd.OUTSIDE} {sink.port} >/dev/null; done
        """)
    virtual.wait(r"^TEST-LEASE")
    port = network.forward("one", machine, 7000)
    for _ in range(3):
        netd.eventually(lambda: network.control.counters()["bytes-received"] > 4 << 20, "the guest sends nothing")
        network.kill()
        network.start()
        network.wait_connected(machine)
    netd.eventually(lambda: network.control.counters()["bytes-received"] > 20 << 20, "no connection came after it")
    with netd.eventually(lambda: try_echo(lambda: socket.create_connection(("127.0.0.1", port), timeout=20)),
                         "the forward is dead"):
        pass
    assert virtual.process.poll() is None


def pause(bench, which):
    """A virtual machine that is paused takes nothing from its socket; the neighbour goes on."""
    program = version(which)
    network = bench.network()
    machine, other = network.machine("a"), network.machine("b")
    source = bench.keep(transfer.listen(netd.OUTSIDE, mode=f"source 6 {64 << 20}"))
    worker = bench.guest(other)
    network.start()
    worker.lease()
    virtual = Qemu(bench, program, machine, f"nc {netd.OUTSIDE} {source.port} </dev/null | sha256sum")
    virtual.wait(r"^TEST-LEASE")
    netd.eventually(lambda: network.control.port("a")["counters"]["bytes-sent"] > 1 << 20, "no download")
    os.kill(virtual.process.pid, signal.SIGSTOP)
    try:
        thing = worker.do("tcp_open", address=netd.OUTSIDE, port=source.port)
        assert worker.do("tcp_receive", thing=thing)["sha256"] == transfer.digest(6, 64 << 20)
        broadcast = frames.arp(1, other.mac, other.ip, "00:00:00:00:00:00", "10.77.0.99")
        worker.do("inject", frame=broadcast.hex(), count=5000)
    finally:
        os.kill(virtual.process.pid, signal.SIGCONT)
    assert virtual.wait(r"^(\w{64})\b").group(1) == transfer.digest(6, 64 << 20)
    virtual.wait(r"^TEST-STATUS 0")
    assert virtual.process.wait(netd.DEADLINE) == 0


def test_debian_basics(bench):
    basics(bench, "debian", 1500)


def test_debian_large_mtu(bench):
    basics(bench, "debian", 65520)


def test_debian_netd_killed_under_transfer(bench):
    restart(bench, "debian")


def test_debian_paused(bench):
    pause(bench, "debian")


def test_newer_basics(bench):
    basics(bench, "newer", 1500)


def test_newer_large_mtu(bench):
    basics(bench, "newer", 65520)


def test_newer_netd_killed_under_transfer(bench):
    restart(bench, "newer")


def test_newer_paused(bench):
    pause(bench, "newer")


TESTS = [function for name, function in list(globals().items()) if name.startswith("test_")]

if __name__ == "__main__":
    find_everything()
    netd.enter_namespace()
    netd.run(TESTS, *sys.argv[1:3])
