#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""The real daemon as root, with and without the account that its children are to run as: what that one can
reach, what it cannot, and that networks work as it.

The account is that of a private mount namespace with its own /etc/passwd: nothing is made on the host.

Usage: test-account.py PROGRAM PLUGIN-FOLDER HELPER-FOLDER FAKES-FOLDER"""

import contextlib
import ctypes
import errno
import json
import os
import pathlib
import shutil
import signal
import socket
import sys
import tempfile

from daemon import Daemon, Skip, eventually, run

PROGRAM, PLUGINS, HELPERS, FAKES = sys.argv[1:5]
NAME = "vm-manager"
ID = 64321
CLONE_NEWNS = 0x20000
MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x40000
LIBC = ctypes.CDLL(None, use_errno=True)


def call(function, *arguments):
    if function(*arguments) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def mount(source, target, flags):
    call(LIBC.mount, source and source.encode(), target.encode(), None, ctypes.c_ulong(flags), None)


def without(name, path):
    return [line for line in pathlib.Path(path).read_text().splitlines() if not line.startswith(name + ":")]


class Host:
    """Whether there is an account, for all that is started from now on."""

    def __init__(self, folder):
        self.lines = {"passwd": without(NAME, "/etc/passwd"), "group": without(NAME, "/etc/group")}
        self.more = {"passwd": f"{NAME}:x:{ID}:{ID}::/nonexistent:/usr/sbin/nologin", "group": f"{NAME}:x:{ID}:"}
        self.folder = pathlib.Path(folder)
        try:
            call(LIBC.unshare, CLONE_NEWNS)
            mount(None, "/", MS_REC | MS_PRIVATE)
            self.set_account(True)
            for name in self.lines:
                mount(str(self.folder / name), f"/etc/{name}", MS_BIND)
        except OSError as error:
            raise Skip(f"no private mount namespace: {error}") from None

    def set_account(self, exists):
        for name, lines in self.lines.items():
            (self.folder / name).write_text("\n".join([*lines, *([self.more[name]] if exists else [])]) + "\n")


def as_account(deed, *arguments):
    """None, or why the account cannot."""
    child = os.fork()
    if child == 0:
        code = 255
        try:
            os.setgroups([])
            os.setresgid(ID, ID, ID)
            os.setresuid(ID, ID, ID)
            deed(*arguments)
            code = 0
        except OSError as error:
            code = error.errno
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code != 255, "the deed failed otherwise"
    return errno.errorcode[code] if code else None


def read(path):
    with open(path, "rb") as file:
        file.read(1)


def write(path):
    os.close(os.open(path, os.O_RDWR))


def dial(path):
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path)


def make(path):
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))


def replace(path):
    make(path + ".mine")
    try:
        os.rename(path + ".mine", path)
    except OSError:
        os.unlink(path + ".mine")
        raise


class Place:
    """A state directory, with one daemon after the other. Each is killed, so that the next one finds a VM
    that was plugged in: with a launcher whose processes end with the daemon, no VM is after a stop."""

    def __init__(self, folder):
        self.folder = folder
        self.state = os.path.join(folder, "state")
        self.helpers = os.path.join(folder, "helpers")
        os.mkdir(self.helpers)
        os.chmod(self.helpers, 0o755)
        shutil.copy(os.path.join(HELPERS, "vmm-netd"), self.helpers)  # the build may be where only root is

    @contextlib.contextmanager
    def daemon(self, launcher):
        daemon = Daemon(PROGRAM, PLUGINS, f"--launcher={launcher}", "--network=slirp", "--storage=files",
                        "--attestation=fake", folder=self.folder, plugin_dir=f"{PLUGINS}:{FAKES}",
                        env={"VM_MANAGER_HELPER_DIR": self.helpers, "VMM_FAKE": "lasting=no"})
        try:
            yield daemon.start()
        except BaseException:
            for line in daemon.log[-30:]:
                print("#", line)
            raise
        finally:
            daemon.clean()

    def path(self, *names):
        return os.path.join(self.state, *names)

    def carriers(self):
        """The halves of the network's process: {pid: uid}"""
        folder = self.path("networks", "default").encode()
        found = {}
        for path in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if folder in path.joinpath("cmdline").read_bytes().split(b"\0"):
                    status = path.joinpath("status").read_text().splitlines()
                    fields = dict(line.split(":\t", 1) for line in status if ":\t" in line)
                    if fields["State"][0] not in "ZX":
                        found[int(path.name)] = {int(word) for word in fields["Uid"].split()}
            except FileNotFoundError:
                pass
        return found

    def ask_network(self):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as channel:
            channel.settimeout(60)
            channel.connect(self.path("networks", "default", "control.sock"))
            lines = channel.makefile("rwb")
            json.loads(lines.readline())
            lines.write(b'{"id": 1, "method": "status", "params": {}}\n')
            lines.flush()
            while True:
                answer = json.loads(lines.readline())
                if answer.get("id") == 1:
                    return answer["result"]

    def why_not(self, daemon, vm, port):
        """None when the network is up, knows the VM and listens for it."""
        rows = daemon.api("GET", "/networks", status=200).json
        if any("error" in row for row in rows):
            return rows
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=60):
                pass
            status = self.ask_network()
        except (ConnectionError, FileNotFoundError) as error:
            return error
        names = [[row["vm"] for row in status[what]] for what in ("ports", "forwards")]
        return None if names == [[vm], [vm]] else status

    def check_network(self, daemon, vm, port, uid):
        """It works, and is whose it should be: {pid: uids}"""
        why = [None]

        def works():
            why[0] = self.why_not(daemon, vm, port)
            return why[0] is None

        try:
            eventually(works, "")
        except AssertionError:
            raise AssertionError(why[0]) from None
        halves = self.carriers()
        assert len(halves) == 2 and set.union(*halves.values()) == {uid}, halves
        return halves

    def check_reach(self, vm):
        """As the account."""
        secrets = [("networks.json",), ("lock",), ("vms", vm, "vm.json"), ("vms", vm, "ssh_key"), ("vms", vm, "user-data")]
        for names in secrets:
            assert os.path.exists(self.path(*names)), names
            assert as_account(read, self.path(*names)) == "EACCES", names
            assert as_account(replace, self.path(*names)) in ("EACCES", "EPERM"), names
            assert as_account(os.unlink, self.path(*names)) in ("EACCES", "EPERM"), names
        for names in ((), ("vms",), ("networks",), ("volumes",)):
            # The disks are the account's, so that it may know their names.
            assert names == ("volumes",) or as_account(os.listdir, self.path(*names)) == "EACCES", names
            assert as_account(make, self.path(*names, "mine")) == "EACCES", names
        for folder in ("vms", "tpm"):
            assert as_account(os.rename, self.path("vms", vm, "tpm"), self.path("vms", vm, "other")) == "EPERM"
        plan = self.path("networks", "default", "netd.json")
        assert as_account(read, plan) is None
        assert as_account(write, plan) == "EACCES"
        assert as_account(replace, plan) == "EPERM"
        assert as_account(os.unlink, plan) == "EPERM"

        for names in ((), ("tpm",)):
            path = self.path("vms", vm, *names, "mine")
            assert as_account(make, path) is None, path
            os.unlink(path)
        metadata = self.path("vms", vm, "metadata.sock")
        assert as_account(dial, metadata) is None
        assert os.stat(metadata).st_mode & 0o7777 == 0o660
        assert as_account(replace, metadata) in ("EACCES", "EPERM")
        assert as_account(os.unlink, metadata) in ("EACCES", "EPERM")
        assert as_account(write, self.path("vms", vm, "ovmf_vars.fd")) is None
        assert as_account(write, os.path.realpath(self.volume())) is None
        for part in ("efi", "raw"):
            assert as_account(read, os.path.join(self.folder, "images", f"demo_1.0.0.{part}")) is None
            assert as_account(write, os.path.join(self.folder, "images", f"demo_1.0.0.{part}")) == "EACCES"

    def volume(self):
        [volume] = pathlib.Path(self.path("volumes")).glob("*.volume")
        return volume

    def age(self, vm):
        """All as a root daemon without the account left it."""
        for names in (("volumes",), ("vms", vm, "ovmf_vars.fd"), ("vms", vm, "tpm")):
            os.chown(self.path(*names), 0, 0)
        os.chmod(self.path("volumes"), 0o750)
        os.chmod(self.path("vms", vm, "tpm"), 0o700)
        os.chown(self.volume(), 0, 0)
        kept = self.path("vms", vm, "tpm", "tpm2-00.permall")
        pathlib.Path(kept).write_text("state")
        os.chmod(kept, 0o600)
        return kept


def host_says(daemon):
    return daemon.api("GET", "/host", status=200).json


def warned(daemon, folder):
    return any("must be able to pass through this folder" in line and folder in line for line in daemon.log)


def start(daemon, vm):
    daemon.api("POST", f"/vms/{vm}/start", {"wait_for": "ready"}, 200)


def make_vm(place, daemon):
    for part in ("efi", "raw"):
        os.chmod(os.path.join(place.folder, "images", f"demo_1.0.0.{part}"), 0o600)
    vm = daemon.create("web", user_data="#!ignore\n", wait_for="ready")["id"]
    port = daemon.api("POST", f"/vms/{vm}/forward", {"port": 80}, 200).json["address"].rpartition(":")[2]
    return vm, int(port)


def live_as_account(place, host, vm, port):
    with place.daemon("process") as daemon:
        assert host_says(daemon)["childrenRunAs"] == NAME, host_says(daemon)
        assert not warned(daemon, place.folder), daemon.log
        before = place.check_network(daemon, vm, port, ID)
        for choose in (max, min):
            os.kill(choose(before), signal.SIGKILL)
            eventually(lambda: not before.keys() & place.carriers().keys(), "a half does not end with the other")
            before = place.check_network(daemon, vm, port, ID)
    eventually(lambda: not place.carriers(), "the network does not end with the daemon")
    with place.daemon("process") as daemon:
        place.check_network(daemon, vm, port, ID)
        place.check_reach(vm)


def live_without_account(place, host, vm, port):
    host.set_account(False)
    with place.daemon("process") as daemon:
        said = host_says(daemon)
        assert said["childrenRunAs"] == "root" and NAME in said["childrenRunAsReason"], said
        place.check_network(daemon, vm, port, 0)
    host.set_account(True)
    with place.daemon("process") as daemon:
        place.check_network(daemon, vm, port, ID)


def test_account():
    if os.geteuid() != 0:
        raise Skip("only the children of a root daemon change to an account: run it as root")
    folder = tempfile.mkdtemp(prefix="vmm-", dir="/tmp")
    try:
        host = Host(tempfile.mkdtemp(dir=folder))
        place = Place(folder)
        # The VM is a fake; what the daemon made for it is what counts. The folder is for root alone yet.
        with place.daemon("lasting") as daemon:
            assert warned(daemon, folder), daemon.log
            os.chmod(folder, 0o711)
            vm, port = make_vm(place, daemon)
            place.check_network(daemon, vm, port, 0)
            place.check_reach(vm)
        kept = place.age(vm)
        with place.daemon("lasting") as daemon:
            start(daemon, vm)
            place.check_reach(vm)
            assert as_account(write, kept) is None
        live_as_account(place, host, vm, port)
        live_without_account(place, host, vm, port)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    run([test_account])
