# SPDX-License-Identifier: LGPL-2.1-or-later
"""Runs the real vmm-netd on folders of its own, with guests, a resolver and metadata servers around it,
all inside a private network namespace that stands for the host, and speaks TAP."""

import array
import ctypes
import ipaddress
import itertools
import json
import mmap
import os
import pathlib
import queue
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback

import frames

HERE = pathlib.Path(__file__).resolve().parent
DEADLINE = 120  # of anything that is waited for; only a hang reaches it
OUTSIDE = "198.51.100.1"  # an address of the host
BLACK_HOLE = "203.0.113.9"  # where packets of the host go and never come back
INSIDE = "VMM_TEST_INSIDE"
PRCTL_PDEATHSIG, PRCTL_SUBREAPER = 1, 36


class Skip(Exception):
    pass


class Refused(Exception):
    """An error that netd or a guest answered; its code is the first argument."""

    @property
    def code(self):
        return self.args[0]


def die_with_parent():
    ctypes.CDLL(None).prctl(PRCTL_PDEATHSIG, signal.SIGKILL)


def works(*words):
    return subprocess.run(words, capture_output=True).returncode == 0


def namespace_command():
    """What puts a command into a network namespace of its own."""
    for words in (["unshare", "-Urn"], ["unshare", "-n"]):
        if works(*words, "true"):
            return words
    raise Skip("no network namespace can be made here")


def enter_namespace():
    """Starts the program again in a namespace that is the host of the test; returns on the inside."""
    if not os.environ.get(INSIDE):
        try:
            words = namespace_command()
        except Skip as reason:
            print(f"1..0 # SKIP {reason}")
            sys.exit(0)
        os.environ[INSIDE] = "1"
        os.execvp(words[0], [*words, sys.executable, *sys.argv])
    ctypes.CDLL(None).prctl(PRCTL_SUBREAPER, 1)  # what is left behind is seen at the end
    for line in (
        "link set lo up",
        f"addr add {OUTSIDE}/32 dev lo",
        "link add uplink type veth peer name nobody",
        "link set uplink up",
        "link set nobody up",
        "addr add 192.0.2.1/24 dev uplink",
        "neigh add 192.0.2.2 lladdr 02:00:00:00:00:99 dev uplink nud permanent",
        "route add default via 192.0.2.2 dev uplink",
    ):
        subprocess.run(["ip", *line.split()], check=True)


def eventually(check, what, seconds=DEADLINE):
    end = time.monotonic() + seconds
    while not (result := check()):
        assert time.monotonic() < end, what() if callable(what) else what
        time.sleep(0.01)
    return result


def children(pid):
    try:
        return [int(word) for word in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def status_field(pid, name):
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(rf"^{name}:\s+(\d+)", text, re.M).group(1))


class Control:
    """A client of the control socket."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(DEADLINE)
        self.socket.connect(str(path))
        self.buffer, self.descriptors, self.events = b"", [], []
        self.numbers = itertools.count(1)
        self.hello = self.read()
        self.page = None
        if self.descriptors:
            fd = self.descriptors.pop()
            self.page = mmap.mmap(fd, os.fstat(fd).st_size, prot=mmap.PROT_READ)
            os.close(fd)

    def close(self):
        self.socket.close()

    def read(self):
        while b"\n" not in self.buffer:
            data, ancillary, flags, _ = self.socket.recvmsg(65536, socket.CMSG_SPACE(16), socket.MSG_CMSG_CLOEXEC)
            assert not flags & socket.MSG_CTRUNC, "descriptors lost"
            for level, kind, content in ancillary:
                assert (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS)
                numbers = array.array("i")
                numbers.frombytes(content[:len(content) - len(content) % 4])
                self.descriptors += list(numbers)
            if not data:
                raise ConnectionResetError("netd closed the control connection")
            self.buffer += data
        line, self.buffer = self.buffer.split(b"\n", 1)
        return json.loads(line)

    def send(self, message, descriptors=()):
        line = message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n"
        if descriptors:
            socket.send_fds(self.socket, [line], list(descriptors))
        else:
            self.socket.sendall(line)

    def request(self, method, parameters=None, descriptors=()):
        number = next(self.numbers)
        self.send({"id": number, "method": method, "params": parameters or {}}, descriptors)
        while True:
            answer = self.read()
            if "event" in answer:
                self.events.append(answer)
                continue
            assert answer["id"] == number, answer
            if "error" in answer:
                raise Refused(answer["error"]["code"], answer["error"]["message"])
            return answer["result"]

    def dial(self, vm, port, timeout_ms=None):
        parameters = {"vm": vm, "port": port}
        if timeout_ms is not None:
            parameters["timeout_ms"] = timeout_ms
        self.request("dial", parameters)
        assert len(self.descriptors) == 1, "dial came without a descriptor"
        connection = socket.socket(fileno=self.descriptors.pop())
        connection.setblocking(True)
        connection.settimeout(DEADLINE)
        return connection

    def counters(self):
        magic, version, count = struct.unpack_from("=QII", self.page, 0)
        assert magic == 0x766D6D2D6E657464 and version == 1 and count == len(self.hello["counters"])
        return dict(zip(self.hello["counters"], struct.unpack_from(f"={count}Q", self.page, 16)))

    def port(self, vm):
        ports = [port for port in self.request("status")["ports"] if port["vm"] == vm]
        return ports[0] if ports else None


class Machine:
    """What a VM is to the network."""

    def __init__(self, root, name, network, ip):
        self.name, self.ip = name, ip
        self.mac = frames.derived_mac(network, ip)
        self.folder = root / "vms" / name
        self.folder.mkdir(parents=True, exist_ok=True)
        self.socket, self.metadata = self.folder / "net.sock", self.folder / "imds.sock"


class Network:
    """One vmm-netd and its folder."""

    def __init__(self, bench, name="default", cidr="10.77.0.0/24", program=None, **settings):
        self.bench, self.name, self.program = bench, name, program or bench.program
        prefix = ipaddress.IPv4Network(cidr)
        self.prefix = prefix
        self.root = bench.root / f"state{next(bench.numbers)}"
        self.folder = self.root / "networks" / name
        self.folder.mkdir(parents=True)
        self.gateway = str(prefix.network_address + 1)
        self.alias = str(prefix.broadcast_address - 1)
        self.gateway_mac = frames.derived_mac(name, self.gateway)
        self.settings = {
            "name": name, "cidr": cidr, "gateway": self.gateway, "gateway_mac": self.gateway_mac, "mtu": 1500,
            "enable_imds": True, "enable_host_alias": False, **settings,
        }
        self.machines, self.forwards = [], []
        self.process = self.control = None
        self.resolv_conf = self.root / "resolv.conf"
        self.set_resolvers("127.0.0.11")
        self.log = self.root / "log"
        bench.networks.append(self)

    def machine(self, name):
        """A VM that netd knows from its file."""
        ip = str(self.prefix.network_address + 2 + len(self.machines))
        machine = Machine(self.root, name, self.name, ip)
        self.machines.append(machine)
        return machine

    def set_resolvers(self, *addresses):
        part = self.resolv_conf.with_suffix(".new")
        part.write_text("".join(f"nameserver {address}\n" for address in addresses))
        part.rename(self.resolv_conf)

    def write(self):
        ports = [{"vm": machine.name, "mac": machine.mac, "ip": machine.ip, "socket": str(machine.socket),
                  "metadata": str(machine.metadata)} for machine in self.machines]
        text = json.dumps({"version": 1, "network": self.settings, "ports": ports, "forwards": self.forwards})
        part = self.folder / "netd.json.new"
        part.write_text(text)
        part.chmod(0o600)
        part.rename(self.folder / "netd.json")

    def start(self):
        self.write()
        # Leaks are looked for where the parts are tested alone: the sandbox has no way to stop threads.
        options = os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"
        environment = dict(os.environ, VMM_NETD_RESOLV_CONF=str(self.resolv_conf), ASAN_OPTIONS=options)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen([self.program, self.folder], stdin=subprocess.DEVNULL, stdout=log,
                                            stderr=log, env=environment, preexec_fn=die_with_parent)
        path = self.folder / "control.sock"

        def connect():
            assert self.process.poll() is None, "vmm-netd ended:\n" + self.tail()
            try:
                return Control(path)
            except (FileNotFoundError, ConnectionRefusedError, ConnectionResetError):
                return None

        self.control = eventually(connect, lambda: "no control socket:\n" + self.tail())
        return self

    def tail(self):
        return self.log.read_text(errors="replace")[-4000:]

    def pids(self):
        """The warden and the switch."""
        return [self.process.pid, *children(self.process.pid)]

    def rss_mib(self):
        return sum(status_field(pid, "VmRSS") for pid in self.pids()) / 1024

    def kill(self):
        """As the out-of-memory killer would: the warden; the other half has to follow by itself."""
        halves = self.pids()
        self.process.kill()
        self.process.wait()
        for pid in halves[1:]:
            eventually(lambda: not alive(pid), f"process {pid} outlived its warden")
        self.control.close()

    def stop(self):
        halves = self.pids()
        self.process.terminate()
        status = self.process.wait(DEADLINE)
        text = self.log.read_text(errors="replace")
        assert status == 0, f"exit status {status}:\n{text[-4000:]}"
        assert "runtime error:" not in text and "Sanitizer" not in text, text[-8000:]
        for pid in halves[1:]:
            assert not alive(pid), f"process {pid} is still there"
        self.control.close()

    def clean(self):
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if self.control:
            self.control.close()

    def add(self, machine):
        """Writes the file, tells netd."""
        self.write()
        self.control.request("attach", {"vm": machine.name, "mac": machine.mac, "ip": machine.ip})

    def forward(self, number, machine, port, protocol="tcp", address="127.0.0.1", host_port=0):
        spec = {"id": number, "vm": machine.name, "port": port, "protocol": protocol, "host_address": address,
                "host_port": host_port}
        result = self.control.request("forward", spec)
        self.forwards = [one for one in self.forwards if one["id"] != number]
        self.forwards.append({**spec, "host_port": result["host_port"]})
        self.write()
        return result["host_port"]

    def wait_connected(self, machine, connected=True):
        eventually(lambda: (port := self.control.port(machine.name)) and port["connected"] == connected,
                   lambda: f"port of {machine.name} is not {'up' if connected else 'down'}:\n{self.tail()}")


def alive(pid):
    """Whether it runs: a zombie does not."""
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state not in "ZX"


class Guest:
    """A guest with a kernel's TCP/IP, in a namespace of its own (guest.py)."""

    def __init__(self, bench, machine, *flags, mtu=1500):
        command = [*bench.namespace, sys.executable, HERE / "guest.py", "--stream-tap", bench.stream_tap,
                   "--socket", machine.socket, "--mac", machine.mac, "--mtu", mtu, *flags]
        self.machine = machine
        self.process = subprocess.Popen([str(word) for word in command], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, preexec_fn=die_with_parent)
        self.numbers, self.answers = itertools.count(1), {}
        self.condition = threading.Condition()
        bench.guests.append(self)
        self.gone = False
        threading.Thread(target=self.read, daemon=True).start()
        self.wait(0)

    def read(self):
        for line in self.process.stdout:
            answer = json.loads(line)
            with self.condition:
                self.answers[answer.get("id", 0)] = answer
                self.condition.notify_all()
        with self.condition:
            self.gone = True
            self.condition.notify_all()

    def wait(self, number, seconds=DEADLINE):
        with self.condition:
            assert self.condition.wait_for(lambda: number in self.answers or self.gone, seconds), "the guest is silent"
            assert number in self.answers, "the guest has ended"
            answer = self.answers.pop(number)
        if "error" in answer:
            raise Refused(answer["error"], answer.get("text", ""))
        return answer.get("result")

    def begin(self, what, **parameters):
        """Gives the order; wait() for the number that is returned."""
        number = next(self.numbers)
        self.process.stdin.write(json.dumps({"id": number, "do": what, "with": parameters}) + "\n")
        self.process.stdin.flush()
        return number

    def do(self, what, **parameters):
        return self.wait(self.begin(what, **parameters))

    def lease(self):
        return self.do("lease")

    def end(self):
        self.process.stdin.close()
        self.process.wait(DEADLINE)
        self.process.stdout.close()


class RawPort:
    """A guest that is nothing but frames: whoever listens on the VM's socket."""

    def __init__(self, bench, machine):
        self.machine = machine
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        if machine.socket.exists():
            machine.socket.unlink()
        self.listener.bind(str(machine.socket))
        self.listener.listen(1)
        self.listener.settimeout(DEADLINE)
        self.connection, self.frames = None, queue.Queue()
        bench.raw_ports.append(self)

    def accept(self, reading=True):
        self.connection, _ = self.listener.accept()
        self.connection.settimeout(DEADLINE)
        self.frames = queue.Queue()
        if reading:
            threading.Thread(target=self.read, args=(self.connection, self.frames), daemon=True).start()
        return self

    @staticmethod
    def read(connection, found):
        stream = connection.makefile("rb")
        try:
            while len(head := stream.read(4)) == 4:
                found.put(stream.read(struct.unpack("!I", head)[0]))
        except (OSError, ValueError):
            pass
        found.put(None)

    def send(self, *all_frames):
        self.connection.sendall(b"".join(struct.pack("!I", len(frame)) + frame for frame in all_frames))

    def wait(self, wanted, seconds=DEADLINE):
        """The first frame from now on for which @wanted(Packet) holds; None when time is over."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            try:
                frame = self.frames.get(timeout=left)
            except queue.Empty:
                return None
            if frame is None:
                raise ConnectionResetError("netd closed the port's stream")
            packet = frames.Packet(frame)
            if wanted(packet):
                return packet
        return None

    def wait_closed(self):
        while self.frames.get(timeout=DEADLINE) is not None:
            pass

    def send_arp(self, target):
        self.send(frames.arp(1, self.machine.mac, self.machine.ip, "00:00:00:00:00:00", target))

    def arp(self, target, seconds=DEADLINE):
        self.send_arp(target)
        return self.wait(lambda packet: packet.kind == frames.ARP and packet.operation == 2
                         and packet.sender_ip == target, seconds)

    def dhcp(self, kind, hardware=None, options=(), seconds=DEADLINE, transaction=77, **more):
        message = frames.dhcp_message(kind, hardware or self.machine.mac, transaction, options, **more)
        client = more.get("client", "0.0.0.0")
        packet = frames.udp(client, "255.255.255.255", 68, 67, message)
        self.send(frames.ethernet(self.machine.mac, frames.BROADCAST, frames.IPV4, packet))
        return self.wait(lambda found: found.protocol == frames.UDP and found.destination_port in (67, 68), seconds)

    def to_gateway(self, network, packet):
        self.send(frames.ethernet(self.machine.mac, network.gateway_mac, frames.IPV4, packet))

    def close(self):
        if self.connection:
            try:
                self.connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            self.connection.close()
            self.connection = None
        self.listener.close()


class Metadata:
    """The daemon's metadata service of one VM: says whose it is."""

    def __init__(self, machine, text=None, reply=None):
        self.path, self.text = machine.metadata, text or machine.name
        self.requests = []
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        if self.path.exists():
            self.path.unlink()
        self.listener.bind(str(self.path))
        self.listener.listen(64)
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.one, args=(connection,), daemon=True).start()

    def one(self, connection):
        with connection:
            request = b""
            while b"\r\n\r\n" not in request:
                part = connection.recv(4096)
                if not part:
                    return
                request += part
            self.requests.append(request)
            body = self.text.encode()
            connection.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.path.unlink()


class Resolver:
    """A name server whose answers a function makes: (message, is TCP) to bytes, or None for silence."""

    def __init__(self, address, answer):
        self.answer, self.queries = answer, []
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.bind((address, 53))
        self.tcp = socket.create_server((address, 53))
        for run in (self.run_udp, self.run_tcp):
            threading.Thread(target=run, daemon=True).start()

    def run_udp(self):
        while True:
            try:
                message, peer = self.udp.recvfrom(65536)
            except OSError:
                return
            if not message:
                return
            self.queries.append(message)
            reply = self.answer(message, False)
            if reply is not None:
                self.udp.sendto(reply, peer)

    def run_tcp(self):
        while True:
            try:
                connection, _ = self.tcp.accept()
            except OSError:
                return
            threading.Thread(target=self.one, args=(connection,), daemon=True).start()

    def one(self, connection):
        with connection:
            stream = connection.makefile("rb")
            while len(head := stream.read(2)) == 2:
                message = stream.read(struct.unpack("!H", head)[0])
                self.queries.append(message)
                reply = self.answer(message, True)
                if reply is not None:
                    connection.sendall(struct.pack("!H", len(reply)) + reply)

    def close(self):
        self.tcp.shutdown(socket.SHUT_RDWR)
        self.tcp.close()
        try:
            self.udp.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # not connected, and yet it wakes the reader
        self.udp.close()


class Bench:
    """Everything that one test started; all of it is gone at its end."""

    numbers = itertools.count(1)

    def __init__(self, program, stream_tap):
        self.program, self.stream_tap = program, stream_tap
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="vmm.", dir="/tmp"))
        self.namespace = namespace_command()
        self.networks, self.guests, self.raw_ports, self.closing = [], [], [], []

    def network(self, *words, **settings):
        return Network(self, *words, **settings)

    def guest(self, machine, *flags, **settings):
        return Guest(self, machine, *flags, **settings)

    def raw(self, machine):
        return RawPort(self, machine)

    def run_netd(self, *words):
        """One that ends by itself."""
        return subprocess.run([self.program, *words], capture_output=True, text=True, timeout=DEADLINE,
                              stdin=subprocess.DEVNULL, env=dict(os.environ, ASAN_OPTIONS="detect_leaks=0"))

    def keep(self, thing):
        """Closed at the end."""
        self.closing.append(thing)
        return thing

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        try:
            for guest in self.guests:
                guest.end()
            if kind is None:
                for network in self.networks:
                    if network.process and network.process.poll() is None:
                        network.stop()
        finally:
            for network in self.networks:
                if kind is not None and network.log.exists():
                    for line in network.tail().splitlines()[-40:]:
                        print(f"# {network.name}: {line}")
                network.clean()
            for port in self.raw_ports:
                port.close()
            for thing in self.closing:
                try:
                    thing.close()
                except OSError:
                    pass
            shutil.rmtree(self.root, ignore_errors=True)


def left_behind():
    """Processes that somebody forgot: they are this one's children by now."""
    found = []
    for pid in children(os.getpid()):
        try:
            found.append(pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            pass
    return found


def all_gone():
    """Whether nothing is left behind, what has just ended taken away."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
    return not left_behind()


def run(tests, program, stream_tap):
    """Runs functions that take a Bench, or those that VMM_TEST_ONLY names, and says how it went."""
    failed = 0
    chosen = os.environ.get("VMM_TEST_ONLY", "").split()
    tests = [test for test in tests if not chosen or test.__name__.removeprefix("test_").replace("_", "-") in chosen
             or test.__name__ in chosen]
    print(f"1..{len(tests)}", flush=True)
    for number, test in enumerate(tests, 1):
        name = test.__name__.removeprefix("test_").replace("_", "-")
        start = time.monotonic()
        try:
            with Bench(program, stream_tap) as bench:
                test(bench)
            eventually(all_gone, lambda: f"left behind: {left_behind()}", 20)
            print(f"ok {number} {name}", flush=True)
        except Skip as reason:
            print(f"ok {number} {name} # SKIP {reason}", flush=True)
        except Exception:
            failed += 1
            for line in traceback.format_exc().splitlines():
                print("#", line)
            print(f"not ok {number} {name}", flush=True)
        print(f"# {time.monotonic() - start:.1f} s", flush=True)
    sys.exit(1 if failed else 0)
