#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Real VMs from creation to deletion: daemon, monitor, network, metadata, QEMU, OVMF and swtpm are the real
ones, the guest is the mini guest. Speaks TAP.

Usage: test-first-vm.py PROGRAM PLUGIN-FOLDERS HELPER-FOLDERS [QEMU-SUITE]

With the host's QEMU, or with that of another suite of Debian.

The tests are in an order: all use the same VMs, since a boot takes a dozen seconds where the processor is
emulated. "one" and "two" are on one network, "far" on another with the same addresses.
"""

import contextlib
import functools
import hashlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "tests/integration"))
import daemon as kit  # noqa: E402
from daemon import Daemon, Skip, eventually, run  # noqa: E402

PROGRAM, PLUGINS, HELPERS = sys.argv[1:4]
QEMU_SUITE = "".join(sys.argv[4:])
kit.DEADLINE = 30 * 60  # of anything that is waited for; only a hang reaches it
CIDR = "10.66.0.0/24"
USER_DATA = '{"ignition":{"version":"3.3.0"},"secret":"cucumber"}'
STREAM = 50 << 20
SETTLED = ("ready", "running", "failed", "stopped")


def build_image():
    done = subprocess.run([ROOT / "images/mini/build"], capture_output=True, text=True, check=False)
    if "cannot get" in done.stderr or "missing" in done.stderr:
        raise Skip("the mini guest cannot be built: " + done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def unpacked(suite, package):
    """The folder of a package's programs, if it can be had."""
    done = subprocess.run([ROOT / "tests/debian-unpack", suite, package], capture_output=True, text=True, check=False)
    return [done.stdout.strip() + "/usr/bin"] if done.returncode == 0 else []


def path_of_programs():
    """With the program that carries a guest's vsock on a host without the kernel's, and the QEMU that is wanted."""
    folders = unpacked("sid", "vhost-device-vsock")
    if QEMU_SUITE:
        folders += unpacked(QEMU_SUITE, "qemu-system-x86") or [f"/no QEMU of {QEMU_SUITE} can be had"]
    return os.pathsep.join([*folders, os.environ["PATH"]])


def processes_of(folder):
    """Command lines that name the folder, but for the daemon's own and whoever started it."""
    found = {}
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes().split(b"\0")
            if any(os.fsencode(folder) in word for word in words) and b"serve" not in words:
                found[int(entry.name)] = b" ".join(words).decode(errors="replace")
    found.pop(os.getpid(), None)
    return found


class VM:
    def __init__(self, lab, name, network):
        body = {"name": name, "network": network, "memory_mib": 256, "disk_gib": 1, "user_data": USER_DATA,
                "hostname": name + "-host", "metadata": {"colour": "red"}}
        self.api = lab.daemon.api
        self.id = lab.daemon.create(**body)["id"]
        self.base = f"/vms/{self.id}"

    def record(self):
        return self.api("GET", self.base, status=200).json

    def wait_ready(self, after=""):
        """Ready, and by a READY=1 later than one before."""
        while True:
            record = self.record()
            if record["state"] == "ready" and record["readyAt"] > after:
                return record
            if record["state"] in SETTLED and record["state"] != "ready":
                raise AssertionError(f"{record['state']}: {record.get('lastError')}\n{self.console()}")
            time.sleep(0.3)

    def post(self, what):
        return self.api("POST", f"{self.base}/{what}", status=200).json

    def console(self):
        return self.api("GET", self.base + "/console?lines=200", status=200).json["console"]

    def exec(self, *command):
        return self.api("POST", self.base + "/exec", {"command": command}, 200).json

    def shell(self, text):
        result = self.exec("sh", "-c", text)
        assert result["exitCode"] == 0, (text, result)
        return result["stdout"].strip()

    def say_goodbye(self, command):
        """What ends the guest may also end the connection before its answer."""
        self.api("POST", self.base + "/exec", {"command": [command]})

    def background(self, text):
        """Goes on when the session has ended."""
        self.shell(f"setsid sh -c '{text}' >/dev/null 2>&1 </dev/null &")

    def listen(self, port, text):
        """One connection to the port meets the command's input and output; it is there when this returns."""
        self.background(f"nc -l -p {port} {text}")
        self.shell(f"until netstat -ltn | grep -q :{port}; do usleep 20000; done")

    def forward(self, port):
        host, number = self.api("POST", self.base + "/forward", {"port": port}, 200).json["address"].rsplit(":", 1)
        return host, int(number)


class Lab:
    def __init__(self, images):
        self.daemon = Daemon(PROGRAM, PLUGINS, "--image-dir=" + images, "--attestation=noop", "--install-timeout=30m",
                             "--boot-timeout=30m", "--stop-timeout=10m", images=False, firmware=False,
                             env={"VM_MANAGER_HELPER_DIR": HELPERS, "PATH": path_of_programs()}).start()
        self.images = images
        self.vms = {}

    def create(self):
        missing = self.daemon.api("GET", "/host", status=200).json.get("missing", [])
        ours = [name for name in missing if name.startswith("vmm-") or "plugin" in name]
        assert not ours, f"the build lacks {ours}"
        if missing:
            raise Skip("this host cannot run VMs; it lacks " + ", ".join(missing))
        for network in ("near", "far"):
            self.daemon.api("POST", "/networks", {"name": network, "cidr": CIDR}, 201)
        for name, network in (("one", "near"), ("two", "near"), ("far", "far")):
            self.vms[name] = VM(self, name, network)

    def close(self):
        try:
            if self.daemon.process.poll() is None:
                self.daemon.stop()
        finally:
            self.daemon.clean()


@functools.cache
def attempt():
    """What all tests share, or why there is none of it."""
    lab = None
    try:
        lab = Lab(build_image())
        lab.create()
        return lab, None
    except (AssertionError, OSError, Skip) as error:
        if lab is not None:
            lab.close()
        return None, error


def the_lab():
    lab, error = attempt()
    if error is not None:
        raise error
    return lab


def the(name):
    return the_lab().vms[name]


def say(text):
    print("#", text, flush=True)


def test_vms_become_ready():
    for name in ("one", "two", "far"):
        record = the(name).wait_ready()
        qemu = os.readlink(f"/proc/{record['processes']['qemu']['pid']}/exe")
        assert QEMU_SUITE in qemu, qemu
        say(f"{name}: created {record['createdAt']}, installed {record['installedAt']}, booted {record['bootedAt']}, "
            f"ready {record['readyAt']} ({record['accelerator']})")
        assert record["phase"] == "boot" and record["booted"] and not record.get("lastError"), record
        assert record["status"] == "running", record["status"]


def test_boot_is_measured_as_foretold():
    policy = json.loads(pathlib.Path(the_lab().images, "policy.json").read_text(encoding="utf-8"))
    expected = policy["pcr11"]["enter-initrd:leave-initrd:sysinit:ready"]
    for name in ("one", "two"):
        assert the(name).shell("mini-helper pcr-read 11") == expected, name


def test_guest_has_what_the_host_gave():
    vm = the("one")
    assert vm.shell("hostname") == "one-host"
    assert vm.shell("cat /etc/machine-id") == vm.record()["machineID"]
    assert vm.shell("cat /var/lib/mini/user-data") == USER_DATA
    base = "http://169.254.169.254/giantswarm/v1"
    assert vm.shell(f"wget -q -O - {base}/instance-id") == vm.id
    assert vm.shell(f"wget -q -O - {base}/metadata/colour") == "red"
    console = vm.console()
    assert f"user-data: {len(USER_DATA)} bytes" in console, console
    assert "cucumber" not in console, console


def test_exec_tells_how_a_command_ended():
    result = the("one").exec("sh", "-c", "echo \"$1\"; echo sorry >&2; exit 3", "sh", "two  'words'")
    assert result == {"stdout": "two  'words'\n", "stderr": "sorry\n", "exitCode": 3}, result


def test_stream_into_the_guest():
    vm = the("one")
    vm.listen(5001, "| sha256sum >/tmp/sum.new; mv /tmp/sum.new /tmp/sum")
    block = os.urandom(1 << 20)
    digest = hashlib.sha256()
    with socket.create_connection(vm.forward(5001), timeout=kit.DEADLINE) as connection:
        for _ in range(STREAM // len(block)):
            connection.sendall(block)
            digest.update(block)
        connection.shutdown(socket.SHUT_WR)
        kit.read_all(connection)
    assert vm.shell("until [ -e /tmp/sum ]; do usleep 20000; done; cat /tmp/sum").split()[0] == digest.hexdigest()


def test_stream_out_of_the_guest():
    vm = the("one")
    vm.shell(f"dd if=/dev/urandom of=/tmp/data bs=1M count={STREAM >> 20} 2>/dev/null")
    made = vm.shell("sha256sum </tmp/data").split()[0]
    vm.listen(5002, "</tmp/data")
    with socket.create_connection(vm.forward(5002), timeout=kit.DEADLINE) as connection:
        data = kit.read_all(connection)
    vm.shell("rm /tmp/data")
    assert (len(data), hashlib.sha256(data).hexdigest()) == (STREAM, made)


def test_neighbours_reach_each_other():
    """And the same address on the other network is somebody else, who reaches neither."""
    one, two, far = the("one"), the("two"), the("far")
    addresses = [vm.record()["ip"] for vm in (one, two, far)]
    assert addresses[0] == addresses[2], addresses  # the first of each network
    for vm, text in ((two, "two"), (far, "far")):
        vm.shell(f"echo i-am-{text} >/tmp/word")
    two.listen(7000, "</tmp/word")
    far.listen(7001, "</tmp/word")
    # What must fail comes first: the listeners are still there for what must not.
    for vm, address, port in ((far, addresses[1], 7000), (one, addresses[2], 7001), (two, addresses[2], 7001)):
        result = vm.exec("sh", "-c", f"nc -w 5 {address} {port} </dev/null")
        assert result["exitCode"] != 0 and result["stdout"] == "", (address, port, result)
    assert one.shell(f"nc {addresses[1]} 7000 </dev/null") == "i-am-two"
    host, port = far.forward(7001)
    with socket.create_connection((host, port), timeout=kit.DEADLINE) as connection:
        assert kit.read_all(connection) == b"i-am-far\n"


def test_others_go_while_one_stays():
    lab = the_lab()
    for name in ("two", "far"):
        lab.daemon.api("DELETE", lab.vms[name].base, status=204)
    lab.daemon.api("DELETE", "/networks/far", status=204)
    assert the("one").shell("echo here") == "here"


def test_metrics_have_the_guests_report():
    lab, vm = the_lab(), the("one")
    eventually(lambda: vm.api("GET", vm.base + "/metrics", status=200).json["guest"] is not None, "no report")
    metrics = vm.api("GET", vm.base + "/metrics", status=200).json
    assert metrics["host"]["state"] == "ready" and metrics["host"]["cpu_seconds"] > 0, metrics
    names = {entry["name"] for entry in metrics["guest"]["sample"]}
    assert {"mini.UptimeSeconds", "mini.Boots"} <= names and metrics["guest"]["series_dropped"] == 0, metrics["guest"]
    text = lab.daemon.request("GET", "/metrics").body.decode()
    assert "vm_guest_mini_uptime_seconds{" in text, text[:4000]


def boots(vm):
    return int(vm.shell("cat /var/lib/mini/boots"))


def test_reboot_keeps_the_disk():
    vm = the("one")
    before, ready = boots(vm), vm.record()["readyAt"]
    vm.shell("echo kept >/var/mark")
    vm.post("reboot")
    vm.wait_ready(ready)
    assert boots(vm) == before + 1
    assert vm.shell("cat /var/mark") == "kept"
    assert "user-data" not in vm.console(), "the first boot was repeated"


def crash_in(console):
    """What the firmware said of its own crash, in one line."""
    start = console.find("X64 Exception Type")
    lines = console[start:].splitlines() if start >= 0 else []
    told = [line.strip() for line in lines if line.startswith(("X64", "Exc", "RIP", "CR0", "CR3", "RSP", "!!!! Find"))]
    return " | ".join(told)


def test_reboot_from_inside():
    vm = the("one")
    before, ready, pid = boots(vm), vm.record()["readyAt"], vm.record()["processes"]["qemu"]["pid"]
    vm.shell("echo a reset >/dev/console")
    vm.say_goodbye("reboot")
    eventually(lambda: vm.record().get("readyAt", "") != ready, "no reset was seen")
    while vm.record()["state"] != "ready":
        crash = crash_in(vm.console().rpartition("a reset")[2])
        assert not crash, "the firmware crashed: " + crash
        time.sleep(0.3)
    assert boots(vm) == before + 1
    assert vm.record()["processes"]["qemu"]["pid"] == pid, "another QEMU"


def test_stop_and_start():
    vm = the("one")
    before, ready = boots(vm), vm.record()["readyAt"]
    record = vm.post("stop")
    assert record["state"] == "stopped" and not record.get("lastError") and not record.get("processes"), record
    console = vm.console()
    assert "power button" in console and "reboot: Power down" in console, console
    left = processes_of(record["paths"]["dir"])
    assert not left, left
    vm.post("start")
    vm.wait_ready(ready)
    assert boots(vm) == before + 1 and vm.shell("cat /var/mark") == "kept"


def test_power_off_from_inside():
    vm = the("one")
    vm.say_goodbye("poweroff")
    eventually(lambda: vm.record()["state"] == "stopped", "the VM does not end")
    record = vm.record()
    assert record["lastError"] == "guest shut down", record


def test_nothing_is_left():
    lab, vm = the_lab(), the("one")
    ports = [int(row["address"].rsplit(":", 1)[1]) for row in vm.api("GET", vm.base + "/forwards", status=200).json]
    assert len(ports) == 2, ports
    folder = vm.record()["paths"]["dir"]
    vm.api("DELETE", vm.base, status=204)
    assert vm.api("GET", "/vms", status=200).json == []
    assert vm.api("GET", "/networks/near", status=200).json["leases"] == []
    assert not os.path.exists(folder) and os.listdir(os.path.join(lab.daemon.state, "volumes")) == []
    assert os.listdir(os.path.join(lab.daemon.state, "vms")) == []
    for port in ports:
        with socket.create_server(("127.0.0.1", port)):  # bears the last connections, but no listener
            pass
    left = processes_of(folder)
    assert not left, left
    vm.api("DELETE", "/networks/near", status=204)
    lab.daemon.stop()
    left = processes_of(lab.daemon.folder)
    assert not left, left
    sockets = [line.split()[-1] for line in pathlib.Path("/proc/net/unix").read_text(encoding="ascii").splitlines()
               if lab.daemon.folder in line]
    assert not sockets, sockets


class FirstVM:
    """What './run' does once everything is built."""

    def __init__(self, folder, images, *options):
        self.lines = []
        environment = dict(os.environ, PATH=path_of_programs())
        self.process = subprocess.Popen(
            [ROOT / "images/mini/first-vm", "--program", PROGRAM, "--plugins", PLUGINS, "--helpers", HELPERS,
             "--images", images, "--state", os.path.join(folder, "state"), *options],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))

    def says(self, text):
        return any(text in line for line in list(self.lines))

    def wait_said(self, text):
        eventually(lambda: self.says(text) or self.process.poll() is not None, f"never said {text}")
        assert self.says(text), "\n".join(self.lines)

    def wait(self):
        status = self.process.wait(kit.DEADLINE)
        self.reader.join()
        self.process.stdout.close()
        assert status == 0, "\n".join(self.lines)


def test_run_shows_a_first_vm():
    images = the_lab().images
    with tempfile.TemporaryDirectory(prefix="vmm-", dir="/tmp") as folder:
        first = FirstVM(folder, images, "--keep")
        first.wait_said("Ctrl-C stops the VM and ends the daemon")
        assert first.says('  "state": "ready",') and first.says("it says: Linux first"), "\n".join(first.lines)
        other = FirstVM(folder, images, "--once")
        assert other.process.wait(kit.DEADLINE) == 1
        other.reader.join()
        assert other.says("a daemon is running with this state already"), other.lines
        other.process.stdout.close()
        first.process.send_signal(signal.SIGINT)
        first.wait()
        assert first.says("the next ./run starts it again"), first.lines
        again = FirstVM(folder, images, "--once")
        again.wait()
        assert again.says("which an earlier call kept") and again.says('  "state": "ready",'), again.lines
        assert again.says("deleting VM "), again.lines
        left = processes_of(folder)
        assert not left, left
        assert os.listdir(os.path.join(folder, "state/vms")) == []


try:
    run([test_vms_become_ready, test_boot_is_measured_as_foretold, test_guest_has_what_the_host_gave,
         test_exec_tells_how_a_command_ended, test_stream_into_the_guest, test_stream_out_of_the_guest,
         test_neighbours_reach_each_other, test_others_go_while_one_stays, test_metrics_have_the_guests_report,
         test_reboot_keeps_the_disk, test_reboot_from_inside, test_stop_and_start, test_power_off_from_inside,
         test_nothing_is_left, test_run_shows_a_first_vm])
finally:
    if attempt.cache_info().currsize and attempt()[0] is not None:
        attempt()[0].close()
