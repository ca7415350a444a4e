#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""A VM of real programs: QEMU (emulating), OVMF, swtpm, the vsock device, the monitor and the network process.

The image is a stand-in: its installer is an EFI application that resets the machine, which is all that the success of an
installation is to QEMU; the disk stays empty, so that the installed boot stays in the firmware.

Usage: test-real-vm.py PROGRAM PLUGIN-FOLDER HELPER-FOLDERS DEBIAN-UNPACK
"""

import glob
import os
import shutil
import signal
import struct
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from daemon import Daemon, Skip, eventually, run

PROGRAM, PLUGINS, HELPERS, UNPACK = sys.argv[1:]
ROLES = {"qemu": "qemu-system-x86_64", "tpm": "swtpm", "monitor": "vmm-monitor", "vsock": "vhost-device-vsock"}
STATE = "tpm2-00.permall"
# mov $0xcf9,%dx; mov $2,%al; out; mov $6,%al; out; hlt: what resets a PC
RESET = bytes.fromhex("66baf90cb002eeb006eef4ebfd")
# mov $0x604,%dx; mov $0x2000,%ax; out %ax: powers off by QEMU's ACPI, once the firmware has set it up
POWER_OFF = bytes.fromhex("66ba040666b8002066eff4ebfd")


def efi_application(code):
    """These instructions as a PE32+ image, long enough for QEMU to take it for a kernel."""
    dos = b"MZ".ljust(60, b"\0") + struct.pack("<I", 0x80)
    coff = struct.pack("<4sHHIIIHH", b"PE\0\0", 0x8664, 1, 0, 0, 0, 240, 0x22)
    optional = struct.pack("<HBBIIIIIQIIHHHHHHIIIIHHQQQQII", 0x20b, 0, 0, 0x1000, 0, 0, 0x1000, 0x1000, 0, 0x1000,
                           0x1000, 0, 0, 0, 0, 0, 0, 0, 0x2000, 0x1000, 0, 10, 0, 0, 0, 0, 0, 0, 16) + bytes(128)
    section = struct.pack("<8sIIIIIIHHI", b".text", 0x1000, 0x1000, 0x1000, 0x1000, 0, 0, 0, 0, 0x60000020)
    return (dos.ljust(0x80, b"\0") + coff + optional + section).ljust(0x1000, b"\0") + code.ljust(0x1000, b"\xf4")


def vsock_folder():
    """Where vhost-device-vsock is, when neither the kernel nor this system has the device."""
    if os.access("/dev/vhost-vsock", os.R_OK | os.W_OK) or shutil.which("vhost-device-vsock"):
        return []
    unpacked = subprocess.run([UNPACK, "sid", "vhost-device-vsock"], stdout=subprocess.PIPE, text=True, check=False)
    if unpacked.returncode != 0:
        raise Skip("there is neither /dev/vhost-vsock nor vhost-device-vsock")
    return [os.path.join(unpacked.stdout.strip(), "usr/bin")]


def serve(folder=None):
    for program in ("qemu-system-x86_64", "swtpm", "swtpm_setup"):
        if not shutil.which(program):
            raise Skip(f"there is no {program}")
    path = ":".join([*vsock_folder(), os.environ["PATH"]])
    return RealDaemon(PROGRAM, PLUGINS, "--launcher=process", "--network=slirp", "--storage=files",
                      "--attestation=noop", "--stop-timeout=4s", firmware=False, folder=folder, images=folder is None,
                      env={"PATH": path, "VM_MANAGER_HELPER_DIR": HELPERS})


class RealDaemon(Daemon):
    def write_images(self):
        os.makedirs(self.images)
        for name, code in (("resets", RESET), ("powers-off", POWER_OFF)):
            with open(os.path.join(self.images, name + "_1.0.0.efi"), "wb") as file:
                file.write(efi_application(code))
            with open(os.path.join(self.images, name + "_1.0.0.raw"), "wb") as file:
                file.truncate(1 << 20)


def create(daemon, image, status):
    return daemon.api("POST", "/vms", {"name": "web", "image": image, "cpus": 1, "memory_mib": 512, "disk_gib": 1,
                                       "require_attestation": False, "wait_for": "installed"}, status)


def running(vm):
    """The processes that name the VM's folder."""
    found = {}
    for entry in glob.glob("/proc/[0-9]*"):
        try:
            with open(entry + "/cmdline", "rb") as file:
                words = file.read().split(b"\0")
            here = os.readlink(entry + "/cwd")
        except OSError:
            continue
        if f"/vms/{vm}/" in b" ".join(words).decode(errors="replace") + " " + here + "/":
            found[int(os.path.basename(entry))] = os.path.basename(words[0].decode(errors="replace"))
    return found


class Machine:
    """One VM in its first installed boot."""

    def __init__(self, daemon):
        self.daemon = daemon
        self.id = create(daemon, "resets", 201).json["id"]
        self.folder = os.path.join(daemon.state, "vms", self.id)
        self.await_state("booting")
        eventually(lambda: set(self.get().get("processes", {})) >= self.roles(), "not all processes are recorded")

    def roles(self):
        return set(ROLES) - ({"vsock"} if self.daemon.api("GET", "/host").json["vsock"] == "vhost" else set())

    def get(self):
        return self.daemon.api("GET", "/vms/" + self.id, status=200).json

    def await_state(self, state):
        eventually(lambda: self.get()["state"] == state, f"not {state}: {self.get()}")

    def post(self, operation):
        return self.daemon.api("POST", f"/vms/{self.id}/{operation}", {}, 200).json


def test_host_is_ready():
    with serve() as daemon:
        host = daemon.api("GET", "/host").json
        assert host["ready"], host.get("missing")
        assert host["accelerator"] == "tcg" and host["vsock"] in ("vhost", "vhost-user"), host
        assert host["kvm"]["usable"] is False, host["kvm"]


def test_processes_are_as_recorded():
    with serve() as daemon:
        machine = Machine(daemon)
        vm = machine.get()
        assert vm["accelerator"] == "tcg" and vm["installedAt"], vm
        processes = running(machine.id)
        for role in machine.roles():
            pid = vm["processes"][role]["pid"]
            assert processes.get(pid) == ROLES[role], (role, pid, processes)
        # Nothing else of the VM: swtpm_setup and the installer's processes have ended.
        others = [name for pid, name in processes.items() if name not in ROLES.values()]
        assert not others and len(processes) == len(machine.roles()), processes
        with open(os.path.join(machine.folder, "tpm", "swtpm-setup.log"), encoding="utf-8") as file:
            assert "activated PCR banks sha256 among" in file.read()


def test_each_helper_is_missed():
    with serve() as daemon:
        machine = Machine(daemon)
        for role, text in (("tpm", "the vtpm (swtpm) ended"), ("vsock", "the vsock helper ended"),
                           ("monitor", "the monitor of console and readiness ended")):
            if role not in machine.roles():
                continue
            os.kill(machine.get()["processes"][role]["pid"], signal.SIGKILL)
            eventually(lambda: text in machine.get().get("lastError", ""), f"{role}: {machine.get()}")
            vm = machine.get()
            assert vm["state"] == "booting" and role not in vm["processes"] and "qemu" in vm["processes"], vm
        os.kill(machine.get()["processes"]["qemu"]["pid"], signal.SIGKILL)
        machine.await_state("failed")
        assert machine.get()["lastError"].startswith("qemu exited: signal: killed"), machine.get()
        assert not running(machine.id)


def test_torn_tpm_is_given_back():
    with serve() as daemon:
        machine = Machine(daemon)
        state = os.path.join(machine.folder, "tpm", STATE)
        assert machine.post("stop")["state"] == "stopped"
        assert not running(machine.id)
        with open(state, "rb") as file:
            before = file.read()
        assert len(before) > 1000 and "tpmRestoredAt" not in machine.get()
        os.truncate(state, 100)
        machine.post("start")
        assert machine.get()["tpmRestoredAt"], machine.get()
        machine.post("stop")
        with open(state, "rb") as file:
            assert len(file.read()) >= len(before) // 2
        shutil.rmtree(os.path.join(machine.folder, "tpm.good"))
        os.truncate(state, 0)
        answer = daemon.api("POST", f"/vms/{machine.id}/start", {})
        assert answer.status == 500 and "the vtpm's state is lost" in answer.error["message"], answer
        assert machine.get()["state"] == "failed" and os.path.getsize(state) == 0
        daemon.api("DELETE", "/vms/" + machine.id, status=204)


def test_installer_that_powers_off_has_failed():
    with serve() as daemon:
        answer = create(daemon, "powers-off", None)
        assert answer.status == 500, answer
        assert "installer shut down instead of rebooting" in answer.error["message"], answer


def test_nothing_is_left():
    with serve() as daemon:
        machine = Machine(daemon)
        daemon.api("DELETE", "/vms/" + machine.id, status=204)
        assert not running(machine.id)
        assert not os.path.exists(machine.folder)
        left = [name for name in glob.glob(daemon.state + "/**", recursive=True) if machine.id in name]
        assert not left, left


def delete_all_of(daemon, vm):
    daemon.api("DELETE", "/vms/" + vm, status=204)
    assert not running(vm), running(vm)
    left = [name for name in glob.glob(daemon.state + "/**", recursive=True) if vm in name]
    assert not left, left
    assert daemon.api("GET", "/networks/default", status=200).json["leases"] == []


def test_daemon_is_killed():
    """Its children die with it; the next one says what was lost, and can clear it away."""
    for state in ("installing", "booting"):
        first = serve().start()
        try:
            body = {"image": "resets", "cpus": 1, "memory_mib": 512, "disk_gib": 1}
            vm = first.create("web", **body)["id"]
            eventually(lambda: first.api("GET", "/vms/" + vm, status=200).json["state"] == state, f"not {state}")
            first.process.kill()
            first.wait()
            eventually(lambda: not running(vm), f"{state}: processes outlive the daemon: {running(vm)}")
            with serve(first.folder) as second:
                record = second.api("GET", "/vms/" + vm, status=200).json
                assert record["state"] == "stopped" and not record.get("processes"), record
                assert f"vm-manager restarted while the VM was {state}" in record["lastError"], record
                delete_all_of(second, vm)
        finally:
            first.clean()


def test_calls_at_once():
    """Of two creates of a name one wins; of two deletes of an installing VM neither leaves anything."""
    with serve() as daemon, ThreadPoolExecutor(2) as pool:
        body = {"name": "web", "image": "resets", "cpus": 1, "memory_mib": 512, "disk_gib": 1,
                "require_attestation": False, "wait_for": "none"}
        answers = list(pool.map(lambda _: daemon.api("POST", "/vms", body), range(2)))
        assert sorted(answer.status for answer in answers) == [201, 409], answers
        [vm] = daemon.vms()
        answers = list(pool.map(lambda _: daemon.api("DELETE", "/vms/" + vm["id"]), range(2)))
        statuses = sorted(answer.status for answer in answers)
        assert statuses[0] == 204 and statuses[1] in (204, 404, 409), answers
        assert daemon.vms() == [] and not running(vm["id"])


run([
    test_host_is_ready,
    test_processes_are_as_recorded,
    test_each_helper_is_missed,
    test_torn_tpm_is_given_back,
    test_installer_that_powers_off_has_failed,
    test_nothing_is_left,
    test_daemon_is_killed,
    test_calls_at_once,
])
