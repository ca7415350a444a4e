#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""A whole Debian with systemd 262 as a guest: built, installed, booted, used, booted again. Speaks TAP.

Usage: test-real-guest.py PROGRAM PLUGIN-FOLDERS HELPER-FOLDERS

The image is made by build-real-guest from the mkosi project that VMM_GUEST_PROJECT names, or else from
../shared/cases/guest-image beside this project. There is one VM, which every test uses: installing one
takes minutes where the processor is emulated. They are in an order; what an earlier one left is there.
"""

import datetime
import functools
import os
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.realpath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "tests", "integration"))
import daemon as kit  # noqa: E402
from daemon import Daemon, Skip, run  # noqa: E402

PROGRAM, PLUGINS, HELPERS = sys.argv[1:]
PROJECT = os.environ.get("VMM_GUEST_PROJECT", os.path.join(ROOT, "..", "shared", "cases", "guest-image"))
HOSTNAME = "from-metadata"  # not the VM's name, which is the default
PATIENCE = 90 * 60  # of a boot on a machine with other work; only a hang reaches it
LIMIT = "1h"
kit.DEADLINE = PATIENCE  # of a request, too: one stops the guest, one boots it


def build_images():
    """The folder of images, built unless it is there."""
    if not os.path.exists(os.path.join(PROJECT, "mkosi.conf")):
        raise Skip(f"there is no guest project in {os.path.normpath(PROJECT)}; VMM_GUEST_PROJECT names another")
    tool = os.path.join(HERE, "build-real-guest")
    done = subprocess.run([tool, PROJECT], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    said = done.stderr.strip().splitlines() or [""]
    if done.returncode == 77:
        raise Skip(said[-1])
    assert done.returncode == 0, "\n".join(said[-40:])
    return done.stdout.strip()


def vsock_folder():
    """Where the program is that carries the guest's vsock on a host without the kernel's."""
    tool = os.path.join(ROOT, "tests", "debian-unpack")
    done = subprocess.run([tool, "sid", "vhost-device-vsock"], capture_output=True, text=True, check=False)
    return os.path.join(done.stdout.strip(), "usr", "bin") if done.returncode == 0 else None


class Guest:
    def __init__(self, images):
        self.folder = tempfile.TemporaryDirectory(prefix="vmm-", dir="/tmp")
        self.key = os.path.join(self.folder.name, "key")
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "caller", "-f", self.key], check=True)
        with open(self.key + ".pub", encoding="ascii") as file:
            self.public_key = file.read().strip()
        path = os.pathsep.join(filter(None, [vsock_folder(), os.environ["PATH"]]))
        self.daemon = Daemon(PROGRAM, PLUGINS, "--image-dir=" + images, f"--install-timeout={LIMIT}",
                             f"--boot-timeout={LIMIT}", "--stop-timeout=10m", images=False, firmware=False,
                             env={"VM_MANAGER_HELPER_DIR": HELPERS, "PATH": path}).start()

    def create(self):
        host = self.daemon.api("GET", "/host", status=200).json
        missing = host.get("missing", [])
        ours = [name for name in missing if name.startswith("vmm-")]
        assert not ours, f"the build lacks {ours}"
        if not host["ready"]:
            raise Skip("this host cannot run VMs; it lacks " + ", ".join(missing))
        body = {"name": "real", "hostname": HOSTNAME, "ssh_authorized_keys": [self.public_key], "disk_gib": 8,
                "memory_mib": 1024, "wait_for": "none", "require_attestation": False}
        self.id = self.daemon.api("POST", "/vms", body, 201).json["id"]

    def record(self):
        return self.daemon.api("GET", f"/vms/{self.id}", status=200).json

    def wait_ready(self):
        end = time.monotonic() + PATIENCE
        while True:
            record = self.record()
            if record["state"] == "ready":
                return record
            if record["state"] in ("failed", "stopped", "running") or time.monotonic() > end:
                raise AssertionError(f"state {record['state']}: {record.get('lastError')}\n{self.console()}")
            time.sleep(1)

    def console(self):
        return self.daemon.api("GET", f"/vms/{self.id}/console?lines=60", status=200).json["console"]

    def exec(self, *command):
        return self.daemon.api("POST", f"/vms/{self.id}/exec", {"command": command}, 200).json

    def output(self, *command):
        result = self.exec(*command)
        assert result["exitCode"] == 0, (command, result)
        return result["stdout"].strip()

    def close(self):
        try:
            if self.daemon.process.poll() is None:
                self.daemon.stop()
        finally:
            self.daemon.clean()
            self.folder.cleanup()


@functools.cache
def attempt():
    """The VM that all tests share, or why there is none."""
    guest = None
    try:
        guest = Guest(build_images())
        guest.create()
        return guest, None
    except Exception as error:  # of all tests, not of this one alone
        if guest is not None:
            guest.close()
        return None, error


def the_guest():
    guest, error = attempt()
    if error is not None:
        raise error
    return guest


def seconds(record, start, end):
    times = [datetime.datetime.fromisoformat(record[name].replace("Z", "+00:00")) for name in (start, end)]
    return (times[1] - times[0]).total_seconds()


def say(text):
    print("#", text, flush=True)


def test_installs_and_becomes_ready():
    record = the_guest().wait_ready()
    say(f"install {seconds(record, 'createdAt', 'installedAt'):.1f} s, "
        f"first boot {seconds(record, 'bootedAt', 'readyAt'):.1f} s ({record['accelerator']})")
    assert record["phase"] == "boot" and record["booted"] and not record.get("lastError"), record


def test_hostname_is_the_metadata_services():
    vm = the_guest()
    assert vm.output("cat", "/run/credstore/firstboot.hostname") == HOSTNAME
    assert vm.output("/usr/lib/systemd/systemd-imds", "-K", "hostname") == HOSTNAME
    assert vm.output("cat", "/etc/hostname") == HOSTNAME
    assert vm.output("hostname") == HOSTNAME


def test_no_unit_failed():
    vm = the_guest()
    state = vm.exec("systemctl", "is-system-running", "--wait")["stdout"].strip()
    failed = vm.output("systemctl", "--failed", "--no-legend", "--plain")
    assert (state, failed) == ("running", ""), (state, failed)


def test_credentials_are_sealed_to_the_disk():
    vm = the_guest()
    sealed = vm.output("ls", "/run/credentials/@encrypted").split()
    wanted = ["firstboot.hostname", "ssh.authorized_keys.root", "system.machine_id", "vmm.notify_socket"]
    assert sorted(sealed) == wanted, sealed
    assert vm.output("cat", "/etc/machine-id") == vm.record()["machineID"]


def test_disk_is_partitioned():
    vm = the_guest()
    labels = vm.output("lsblk", "--noheadings", "--output", "PARTLABEL", "/dev/disk/by-id/virtio-target").split()
    assert labels.count("_empty") == 3 and "esp" in labels and "var" in labels and len(labels) == 8, labels
    assert vm.output("findmnt", "--noheadings", "--output", "FSTYPE", "/var") == "ext4"
    assert vm.output("findmnt", "--noheadings", "--output", "FSTYPE", "/") == "erofs"


def test_exec_tells_how_a_command_ended():
    result = the_guest().exec("sh", "-c", "echo \"$1\"; echo sorry >&2; exit 3", "sh", "two  words")
    assert result == {"stdout": "two  words\n", "stderr": "sorry\n", "exitCode": 3}, result


def test_callers_key_opens_ssh():
    vm = the_guest()
    forward = vm.daemon.api("POST", f"/vms/{vm.id}/forward", {"port": 22}, 200).json
    host, port = forward["address"].rsplit(":", 1)
    done = subprocess.run(["ssh", "-i", vm.key, "-p", port, "-o", "BatchMode=yes", "-o", "IdentitiesOnly=yes",
                           "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", f"root@{host}",
                           "hostname"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, HOSTNAME), done


def test_state_survives_a_reboot():
    vm = the_guest()
    host_key = vm.output("cat", "/etc/ssh/ssh_host_ed25519_key.pub")
    boot = vm.output("cat", "/proc/sys/kernel/random/boot_id")
    for folder in ("/etc", "/var", "/root", "/opt"):
        vm.output("sh", "-c", f"echo kept >{folder}/mark && sync {folder}/mark")
    vm.daemon.request("POST", f"/api/v1/vms/{vm.id}/reboot")
    record = vm.wait_ready()
    say(f"second boot {seconds(record, 'bootedAt', 'readyAt'):.1f} s")
    assert vm.output("cat", "/proc/sys/kernel/random/boot_id") != boot
    assert vm.output("cat", "/etc/mark", "/var/mark", "/root/mark", "/opt/mark").split() == ["kept"] * 4
    assert vm.output("cat", "/etc/ssh/ssh_host_ed25519_key.pub") == host_key
    assert vm.output("cat", "/etc/machine-id") == record["machineID"]
    assert vm.output("hostname") == HOSTNAME


def test_powers_down_and_goes():
    vm = the_guest()
    stopped = vm.daemon.api("POST", f"/vms/{vm.id}/stop", status=200).json
    assert stopped["state"] == "stopped" and not stopped.get("lastError"), stopped
    assert "Power down" in vm.console(), vm.console()
    vm.daemon.api("DELETE", f"/vms/{vm.id}", status=204)
    vm.daemon.stop()


try:
    run([test_installs_and_becomes_ready, test_hostname_is_the_metadata_services, test_no_unit_failed,
         test_credentials_are_sealed_to_the_disk, test_disk_is_partitioned, test_exec_tells_how_a_command_ended,
         test_callers_key_opens_ssh, test_state_survives_a_reboot, test_powers_down_and_goes])
finally:
    if attempt.cache_info().currsize and attempt()[0] is not None:
        attempt()[0].close()
