#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""The real vmm-monitor beside a real QEMU, and beside one that misbehaves: deaths, floods, peers that do not
read, disks that are full.

Usage: test-monitor.py PROGRAM"""

import contextlib
import ctypes
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading

from daemon import Skip, eventually, run

PROGRAM = sys.argv[1]
CID, PORT = "840294", "1234567"
MIB = 1 << 20
FLOOD = int(os.environ.get("VMM_TEST_FLOOD_MIB", "128")) * MIB
QEMU = shutil.which("qemu-system-x86_64")
LIMIT = 60  # of what is waited for; only a hang reaches it

# A boot sector that says hello on the serial port and then echoes what is typed, but resets at "r".
SECTOR = bytes.fromhex(
    "31c0" "8ed8" "fc"         # ax = ds = 0, forward
    "be2b7c"                   # si = the text
    "ac" "08c0" "7406"         # next: al = *si++; none left: echo
    "baf803" "ee" "ebf5"       # out; next
    "bafd03" "ec" "a801" "74f8"  # echo: is there any?
    "baf803" "ec" "3c72" "7403"  # in; "r": reset
    "ee" "ebed"                # out; echo
    "b0fe" "e664" "f4"         # reset: the keyboard controller's line; wait
)


def sector():
    code = bytearray(SECTOR)
    code[6:8] = (0x7C00 + len(code)).to_bytes(2, "little")
    return bytes(code + b"hello\r\n\0").ljust(510, b"\0") + b"\x55\xaa" + bytes(MIB - 512)


def connect(path):
    """To a socket that is about to be served."""
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(LIMIT)

    def there():
        with contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
            connection.connect(path)
            return True
        return False

    eventually(there, f"{path} is served")
    return connection


class Peer:
    """A connection of lines."""

    def __init__(self, path):
        self.connection = connect(path)
        self.file = self.connection.makefile("rb")

    def hear(self):
        return json.loads(self.file.readline())

    def say(self, **message):
        self.connection.sendall(json.dumps(message).encode() + b"\n")

    def close(self):
        self.file.close()
        self.connection.close()


class Journal(Peer):
    def __init__(self, folder, read_from=0):
        super().__init__(os.path.join(folder, "monitor.sock"))
        hello = self.hear()
        assert hello["vmm-monitor"] == 1 and "journal" in hello["features"], hello
        self.say(**{"read-from": read_from})
        self.seq = read_from

    def next(self):
        entry = self.hear()
        assert entry["seq"] > self.seq, entry
        self.seq = entry["seq"]
        return entry["event"], entry["data"]

    def expect(self, *events):
        for event in events:
            found = self.next()
            assert found == (event if isinstance(event, tuple) else (event, {})), (found, event)

    def until(self, event):
        """All before it, and it."""
        seen = [self.next()]
        while seen[-1][0] != event:
            seen.append(self.next())
        return seen


class Qemu:
    """A real one."""

    def __init__(self, folder):
        if QEMU is None:
            raise Skip("there is no qemu-system-x86_64")
        disk = pathlib.Path(folder, "disk.raw")
        disk.write_bytes(sector())
        paths = {name: os.path.join(folder, name) for name in ("console.sock", "qmp.sock", "monitor-qmp.sock")}
        self.process = subprocess.Popen([
            QEMU, "-S", "-M", "q35,accel=tcg", "-m", "64", "-nodefaults", "-display", "none",
            "-drive", f"if=ide,format=raw,file={disk}",
            "-chardev", f"socket,id=console,path={paths['console.sock']},server=on,wait=off",
            "-serial", "chardev:console",
            "-qmp", f"unix:{paths['qmp.sock']},server=on,wait=off",
            "-qmp", f"unix:{paths['monitor-qmp.sock']},server=on,wait=off",
        ])
        self.qmp = Peer(paths["qmp.sock"])
        self.qmp.hear()
        self.execute("qmp_capabilities")

    def execute(self, command):
        self.qmp.say(execute=command)
        while "return" not in (answer := self.qmp.hear()):
            assert "error" not in answer, answer

    def end(self):
        self.process.kill()
        self.process.wait(LIMIT)
        self.qmp.close()


class FakeQemu:
    """One that says what a test wants."""

    def __init__(self, folder):
        self.listeners = {}
        for name in ("console.sock", "monitor-qmp.sock"):
            path = os.path.join(folder, name)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            self.listeners[name] = socket.socket(socket.AF_UNIX)
            self.listeners[name].settimeout(LIMIT)
            self.listeners[name].bind(path)
            self.listeners[name].listen()

    def accept(self):
        self.qmp = self.listeners["monitor-qmp.sock"].accept()[0]
        self.qmp.sendall(b'{"QMP": {"version": {}, "capabilities": []}}\r\n')
        file = self.qmp.makefile("rb")
        assert json.loads(file.readline())["execute"] == "qmp_capabilities"
        self.qmp.sendall(b'{"return": {}, "id": 1}\r\n')
        assert json.loads(file.readline())["execute"] == "query-status"
        self.qmp.sendall(b'{"return": {"status": "running", "running": true}, "id": 2}\r\n')
        self.console = self.listeners["console.sock"].accept()[0]
        self.console.settimeout(LIMIT)

    def tell(self, event, **data):
        self.qmp.sendall(json.dumps({"event": event, "data": data}).encode() + b"\r\n")

    def end(self):
        for connection in (*self.listeners.values(), getattr(self, "qmp", None), getattr(self, "console", None)):
            if connection is not None:
                connection.close()


class Monitor:
    def __init__(self, folder, *more, vsock=True):
        flags = ["--vsock-socket", os.path.join(folder, "vsock.sock")] if vsock else []
        self.folder = folder
        self.process = subprocess.Popen(
            [PROGRAM, "--directory", folder, "--cid", CID, "--notify-port", PORT, *flags, *more],
            stderr=subprocess.PIPE, text=True)

    def notify(self, text):
        """As the guest's PID 1: it waits for the other side to close."""
        with connect(os.path.join(self.folder, f"vsock.sock_{PORT}")) as connection:
            with contextlib.suppress(BrokenPipeError):
                connection.sendall(text)
            with contextlib.suppress(ConnectionResetError):
                assert connection.recv(1) == b""

    def end(self, how=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(how)
        self.said = self.process.communicate(timeout=LIMIT)[1]
        assert "Sanitizer" not in self.said and "runtime error" not in self.said, self.said
        return self.process.returncode

    def status(self, name):
        for line in pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(name + ":"):
                return line.split()[1]
        raise AssertionError(name)


class Console:
    def __init__(self, folder, write):
        self.connection = connect(os.path.join(folder, "console-attach.sock"))
        file = self.connection.makefile("rb", 0)
        assert json.loads(file.readline()) == {"vmm-console": 1}
        self.connection.sendall(json.dumps({"write": write}).encode() + b"\n")
        self.answer = json.loads(file.readline())
        file.close()

    def until(self, end):
        text = b""
        while end not in text:
            data = self.connection.recv(4096)
            assert data, text
            text += data
        return text

    def close(self):
        self.connection.close()


class Scene:
    """A VM's folder with a QEMU and a monitor."""

    def __init__(self, qemu, folder=None, **more):
        self.folder = folder or tempfile.mkdtemp(prefix="vmm-", dir="/tmp")
        self.qemu = qemu(self.folder) if qemu is not None else None
        self.monitor = Monitor(self.folder, **more)
        if qemu is FakeQemu:
            self.qemu.accept()

    def __enter__(self):
        return self

    def restart(self, how):
        self.monitor.end(how)
        self.monitor = Monitor(self.folder)

    def path(self, name):
        return os.path.join(self.folder, name)

    def __exit__(self, kind, *unused):
        status = self.monitor.end()
        if self.qemu is not None:
            self.qemu.end()
        shutil.rmtree(self.folder, ignore_errors=True)
        assert kind is not None or status == 0, self.monitor.said
        if kind is not None:
            print("# " + self.monitor.said.replace("\n", "\n# "))


def test_a_guest_from_boot_to_end():
    with Scene(Qemu) as scene:
        journal = Journal(scene.folder)
        console = Console(scene.folder, True)
        assert console.answer == {"ok": True}
        scene.qemu.execute("cont")
        journal.expect("resume")
        console.until(b"hello\r\n")
        console.connection.sendall(b"abc")
        console.until(b"abc")
        scene.monitor.notify(b"STATUS=Startup finished\nREADY=1\n")
        journal.expect(("status", {"text": "Startup finished"}), "ready")
        console.connection.sendall(b"r")
        console.until(b"hello\r\n")
        scene.qemu.execute("stop")
        # The firmware resets the machine once more.
        *resets, stop = journal.until("stop")
        assert resets and all(event == "reset" for event, unused in resets), resets
        assert stop == ("stop", {"reason": "stopped"}), stop
        scene.qemu.execute("cont")
        scene.qemu.execute("system_reset")
        journal.expect("resume", "reset")
        console.until(b"hello\r\n")
        scene.qemu.execute("quit")
        journal.until("shutdown")
        journal.expect("exit")
        text = pathlib.Path(scene.path("console.log")).read_bytes()
        assert text == b"hello\r\nabchello\r\nhello\r\n", text
        assert console.connection.recv(1) == b"", "the console goes on after the end"
        console.close()
        assert "does not run" in Console(scene.folder, False).answer["error"]
        Journal(scene.folder, journal.seq - 2).expect(("shutdown", {"guest": False, "reason": "host-qmp-quit"}), "exit")


def test_a_monitor_that_is_killed():
    with Scene(Qemu) as scene:
        journal = Journal(scene.folder)
        scene.qemu.execute("cont")
        journal.expect("resume")
        Console(scene.folder, False).until(b"hello\r\n")
        scene.restart(signal.SIGKILL)
        scene.qemu.execute("stop")
        journal = Journal(scene.folder)
        journal.expect("resume", ("stop", {"reason": "stopped"}))
        scene.qemu.execute("cont")
        journal.expect("resume")
        console = Console(scene.folder, True)
        console.connection.sendall(b"again")
        console.until(b"again")
        # The console goes on, too, and keeps what was there.
        assert pathlib.Path(scene.path("console.log")).read_bytes() == b"hello\r\nagain"
        scene.monitor.end(signal.SIGKILL)
        scene.qemu.execute("stop")
        scene.monitor = Monitor(scene.folder)
        Journal(scene.folder, journal.seq).expect(("stop", {"reason": "stopped"}))


def test_a_qemu_that_is_killed():
    with Scene(Qemu) as scene:
        journal = Journal(scene.folder)
        scene.qemu.execute("cont")
        journal.expect("resume")
        scene.qemu.process.kill()
        journal.expect("exit")
        # Its next run is another one, and the numbers go on.
        scene.qemu.end()
        scene.monitor.end()
        scene.qemu = Qemu(scene.folder)
        scene.monitor = Monitor(scene.folder)
        journal = Journal(scene.folder)
        scene.qemu.execute("cont")
        journal.expect("resume")
        assert journal.seq == 3, journal.seq
        Console(scene.folder, False).until(b"hello\r\n")
        assert pathlib.Path(scene.path("console.log")).read_bytes() == b"hello\r\n"


def test_a_monitor_that_comes_first():
    with Scene(None) as scene:
        journal = Journal(scene.folder)
        scene.qemu = Qemu(scene.folder)
        scene.qemu.execute("cont")
        listens = threading.Event()

        def reset_until_seen():
            """Nothing shows from outside when the monitor listens to QEMU but that it tells of what happens."""
            while not listens.wait(0.1):
                scene.qemu.execute("system_reset")

        resets = threading.Thread(target=reset_until_seen)
        resets.start()
        try:
            seen = journal.until("reset")
        finally:
            listens.set()
            resets.join()
        assert seen in ([("reset", {})], [("resume", {}), ("reset", {})]), seen
        Console(scene.folder, False).until(b"hello\r\n")


def test_a_flood_on_the_console():
    with Scene(FakeQemu) as scene:
        journal = Journal(scene.folder)
        deaf = Console(scene.folder, False)
        chunk = b"".join(b"%07d\n" % number for number in range(8192))
        scene.qemu.console.sendall(b"the beginning\n")
        for sent in range(0, FLOOD, len(chunk)):
            scene.qemu.console.sendall(chunk)
            if sent % (16 * MIB) == 0:
                # Nothing else waits for the console, and the disk has little of it at any time.
                scene.qemu.tell("RESET")
                journal.expect("reset")
                size = sum(os.stat(scene.path(name)).st_size for name in os.listdir(scene.folder)
                           if name.startswith("console.log"))
                assert size <= 26 * MIB, size
        scene.qemu.console.sendall(b"the end\n")
        scene.qemu.end()
        journal.expect("exit")
        text = pathlib.Path(scene.path("console.log")).read_bytes()
        assert 8 * MIB <= len(text) <= 16 * MIB, len(text)
        assert text.startswith(b"the beginning\n0000000\n0000001\n"), text[:100]
        assert text.endswith(chunk[-1000000:] + b"the end\n"), text[-100:]
        deaf.close()


def test_a_flood_of_notifications():
    with Scene(FakeQemu) as scene:
        scene.qemu.tell("RESET")
        Journal(scene.folder).expect("reset")
        for number in range(3000):
            scene.monitor.notify(b"STATUS=%d %s\nREADY=1\n" % (number, b"x" * 3000))
        scene.monitor.notify(b"STATUS=the last one\n")
        Journal(scene.folder).until("status")
        size = os.stat(scene.path("monitor.journal")).st_size
        assert size < 256 * 1024, size
        scene.qemu.tell("SHUTDOWN", guest=True, reason="guest-shutdown")
        scene.qemu.end()
        seen = Journal(scene.folder).until("exit")
        assert seen[0][0] == "reset" and seen[1][0] == "ready", seen[:3]
        assert seen[2:] == [("status", {"text": "the last one"}),
                            ("shutdown", {"guest": True, "reason": "guest-shutdown"}), ("exit", {})], seen[2:]


def test_notifications_that_are_none():
    with Scene(FakeQemu) as scene:
        idle = [connect(scene.path(f"vsock.sock_{PORT}")) for unused in range(30)]
        for text in (b"\0" * 70000, b"READY=2\n", b"=\n=\n", b"READY", b"\xff" * 1000):
            scene.monitor.notify(text)
        scene.monitor.notify(b"STATUS=\xff\0\x1b[2J\"\\\nREADY=1\n")
        Journal(scene.folder).expect(("status", {"text": "\ufffd\ufffd\x1b[2J\"\\"}), "ready")
        for connection in idle:
            connection.close()


def test_readers_that_do_not_read():
    with Scene(FakeQemu) as scene:
        deaf = [Journal(scene.folder) for unused in range(6)]
        for unused in range(3000):
            scene.qemu.tell("RESET")
        journal = Journal(scene.folder)
        scene.qemu.tell("SHUTDOWN", guest=True, reason="guest-reset")
        assert len(journal.until("shutdown")) <= 3001
        # They lose the middle, not the order.
        assert len(deaf[0].until("shutdown")) <= 3001


def test_clients_that_are_none():
    with Scene(FakeQemu) as scene:
        for text in (b"\n", b"hello\n", b"{}\n", b'{"read-from": -1}\n', b'{"read-from": "1"}\n', b"x" * 10000,
                     b'{"read-from": 1e99}\n', b'{"read-from": 9007199254740992}\n'):
            client = connect(scene.path("monitor.sock"))
            client.sendall(text)
            client.shutdown(socket.SHUT_WR)
            with contextlib.suppress(ConnectionResetError):
                while client.recv(4096):
                    pass
            client.close()
        silent = [connect(scene.path("monitor.sock")) for unused in range(40)]
        journal = Journal(scene.folder)
        scene.qemu.tell("RESET")
        journal.expect("reset")
        for client in silent:
            client.close()


def test_a_qemu_that_lies():
    with Scene(FakeQemu) as scene:
        journal = Journal(scene.folder)
        for text in (b"nonsense\r\n", b"[" * 100000, b'{"event": "RESET"\r\n'):
            scene.qemu.qmp.sendall(text)
            scene.qemu.qmp.close()
            scene.qemu.console.close()
            scene.qemu.accept()
            scene.qemu.tell("RESET")
            journal.expect("reset")


@contextlib.contextmanager
def small_disk(size):
    folder = tempfile.mkdtemp(prefix="vmm-", dir="/tmp")
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"tmpfs", folder.encode(), b"tmpfs", 0, b"size=%d" % size) != 0:
        os.rmdir(folder)
        raise Skip("only root can mount a small disk: " + os.strerror(ctypes.get_errno()))
    try:
        yield folder
    finally:
        libc.umount2(folder.encode(), 2)
        os.rmdir(folder)


def test_a_disk_that_is_full():
    with small_disk(6 * MIB) as disk:
        folder = os.path.join(disk, "vm")
        os.mkdir(folder)
        with Scene(FakeQemu, folder) as scene:
            journal = Journal(scene.folder)
            ballast = os.path.join(disk, "ballast")
            with contextlib.suppress(OSError), open(ballast, "wb", 0) as file:
                while file.write(b"x" * 4096):
                    pass
            # The guest goes on, and so does the journal, for longer than there is room in its file.
            scene.qemu.console.sendall(b"lost" * MIB)
            for unused in range(1500):
                scene.qemu.tell("RESET")
            while journal.seq < 1500:
                journal.next()
            scene.monitor.notify(b"READY=1\n")
            journal.expect("ready")
            os.unlink(ballast)
            scene.qemu.console.sendall(b"found\n")
            scene.qemu.tell("RESET")
            journal.expect("reset")
            path = pathlib.Path(scene.path("console.log"))
            eventually(lambda: path.read_bytes().endswith(b"found\n"), "the console is written again")
            assert b"bytes are missing here" in path.read_bytes()[-200:]
            # And fills the disk by itself.
            scene.qemu.console.sendall(b"more" * 4 * MIB)
            scene.qemu.tell("SHUTDOWN", guest=True, reason="guest-shutdown")
            journal.expect(("shutdown", {"guest": True, "reason": "guest-shutdown"}))
            scene.restart(signal.SIGKILL)
            scene.qemu.end()
            Journal(scene.folder, journal.seq - 1).expect(
                ("shutdown", {"guest": True, "reason": "guest-shutdown"}), "exit")


def test_what_it_gave_up():
    with Scene(FakeQemu) as scene:
        Journal(scene.folder)
        assert scene.monitor.status("NoNewPrivs") == "1"
        assert scene.monitor.status("Seccomp") == "2"
        for name in ("monitor.sock", "console-attach.sock", f"vsock.sock_{PORT}", "console.log", "monitor.journal"):
            eventually(lambda: os.path.exists(scene.path(name)), name)
            assert os.stat(scene.path(name)).st_mode & 0o777 == 0o600, name


def test_a_folder_that_is_removed():
    with Scene(FakeQemu) as scene:
        Journal(scene.folder)
        shutil.rmtree(scene.folder)
        assert scene.monitor.process.wait(LIMIT) == 0


def test_two_in_one_folder():
    with Scene(FakeQemu) as scene:
        Journal(scene.folder)
        second = Monitor(scene.folder)
        assert second.process.wait(LIMIT) == 1
        second.end()
        assert "already running" in second.said, second.said
        Journal(scene.folder)


def test_the_vsock_device_of_the_kernel():
    try:
        socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM).close()
    except OSError as error:
        raise Skip(f"this kernel has no vsock: {error.strerror}") from None
    with Scene(FakeQemu, vsock=False) as scene:
        Journal(scene.folder)
        with Scene(FakeQemu) as other:
            Journal(other.folder)
            other.monitor.end()
            other.monitor = Monitor(other.folder, vsock=False)
            assert other.monitor.process.wait(LIMIT) == 1
            other.monitor.end()
            assert "another process of this host has the notify port" in other.monitor.said, other.monitor.said
            other.monitor = Monitor(other.folder)
            Journal(other.folder)
        with socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM) as stranger:
            stranger.settimeout(1)
            try:
                stranger.connect((1, int(PORT)))
            except OSError:
                return  # no way to connect on this host without a guest
            stranger.sendall(b"READY=1\n")
            assert stranger.recv(1) == b""
        scene.qemu.tell("RESET")
        Journal(scene.folder).expect("reset")


def test_wrong_arguments():
    for arguments in ([], ["--directory", "/tmp"], ["--directory", "/tmp", "--cid", "2", "--notify-port", "1"],
                      ["--directory", "/tmp", "--cid", "3", "--notify-port", "x"], ["--what"],
                      ["--directory", "/tmp", "--cid", "3", "--notify-port", "1", "more"]):
        found = subprocess.run([PROGRAM, *arguments], stderr=subprocess.PIPE, text=True, timeout=LIMIT)
        assert found.returncode == 2 and "vmm-monitor: " in found.stderr, (arguments, found)
    found = subprocess.run([PROGRAM, "--directory", "/nonexistent", "--cid", "3", "--notify-port", "1"],
                           stderr=subprocess.PIPE, text=True, timeout=LIMIT)
    assert found.returncode == 1 and "/nonexistent" in found.stderr, found


if __name__ == "__main__":
    run([value for name, value in list(globals().items()) if name.startswith("test_")])
