#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""The disk fails at each call that changes something in the state folder: the daemon is killed beside it or half
through it, with what it had not synced lost, or the call fails, once, for a while or until somebody makes room.
Which calls there are is found out from a life of VMs and a network that nothing happens to (tests/lib/storage-faults.c).
After each fault a daemon has to start on what there is, everything in it has to be usable, and to go without a trace.
A daemon that met a failing disk has to serve, and to work again when the disk does.

Usage: test-storage-faults.py BUILD-FOLDER

VMM_FAULTS: how many of the points' faults are tried, spread over all of them; or "all"; or "KIND POINT", that one."""

import concurrent.futures
import contextlib
import http.client
import itertools
import json
import os
import re
import shutil
import sys
import tempfile
import threading

from daemon import Daemon, eventually, run, write
from fleet import kill, those_of

BUILD = os.path.abspath(sys.argv[1])
AMOUNT = os.environ.get("VMM_FAULTS", "32")
AT_ONCE = 2
KILLS = ("kill-after", "power")
ERRORS = ("ENOSPC", "EIO", "ENOSPC-5", "EROFS-on")
DATA = ("torn", "short")
TEMPORARY = re.compile(r"^\..*[0-9a-f]{8}")
# What the fakes write, which stand for programs of their own.
FOREIGN = ("tpm/tpm2-00.permall.",)
UNIQUE = ("id", "name", "cid", "machineID", "ip", "mac")


class Host:
    """One state folder, and one daemon after the other on it."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="vmm-", dir="/tmp")
        self.control = os.path.join(self.folder, "faults")
        self.state = os.path.join(self.folder, "state")
        self.daemon = None

    def path(self, *names):
        return ":".join(os.path.join(BUILD, name) for name in names)

    def launch(self, program):
        environment = {
            "VMM_FAKE": "lasting,installer-ms=1",
            "VM_MANAGER_HELPER_DIR": self.path("plugins/netd", "daemon/monitor"),
            "VMM_FAULTS": self.control,
            "VMM_FAULTS_STATE": self.state,
        }
        self.daemon = Daemon(self.path(program), "", "--launcher=lasting", "--network=slirp", "--storage=files",
                             "--attestation=fake", "--install-timeout=30s", "--boot-timeout=30s", "--stop-timeout=5s",
                             plugin_dir=self.path("plugins", "tests/lib"), folder=self.folder, env=environment)
        assert self.daemon.ready.wait(120), "the daemon neither starts nor ends"
        return self.daemon

    def is_dead(self):
        """A process that is about to end closes its connections first."""
        with contextlib.suppress(Exception):
            self.daemon.process.wait(0 if self.answers() else 60)
        return self.daemon.process.poll() is not None

    def answers(self):
        with contextlib.suppress(OSError, http.client.HTTPException):
            return self.daemon.request("GET", "/healthz").status == 200
        return False

    def passed(self):
        with contextlib.suppress(FileNotFoundError), open(self.control + ".seen", encoding="utf-8") as file:
            return file.read().split("\n")[:-1]
        return []

    def list(self, *names):
        with contextlib.suppress(FileNotFoundError):
            return sorted(os.listdir(os.path.join(self.state, *names)))
        return []

    def networks(self):
        """How many processes each network has."""
        found = {}
        for words in those_of(self.folder).values():
            folder = next((word for word in words if "/networks/" in word), None)
            if folder and os.path.basename(words[0]) == "vmm-netd":
                name = folder.partition("/networks/")[2].partition("/")[0]
                found[name] = found.get(name, 0) + 1
        return found

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        if self.daemon and self.daemon.process.poll() is None:
            self.daemon.process.kill()
            self.daemon.process.wait()
        while pids := those_of(self.folder):
            for pid in pids:
                kill(pid)
        shutil.rmtree(self.folder, ignore_errors=True)


# --- what is done while the disk fails ---

def vm_named(daemon, name):
    return next((vm for vm in daemon.vms() if vm["name"] == name), None)


def on_vm(name, method, action, body=None):
    def act(daemon):
        vm = vm_named(daemon, name)
        if vm:
            daemon.api(method, f"/vms/{vm['id']}{action}", body)

    return act


def without_forward(daemon):
    vm = vm_named(daemon, "vm")
    rows = daemon.api("GET", f"/vms/{vm['id']}/forwards").json if vm else []
    for row in rows:
        daemon.api("DELETE", f"/vms/{vm['id']}/forwards/{row['id']}")


def new_vm(name, **more):
    body = {"name": name, "require_attestation": False, "user_data": "some", "disk_gib": 1, **more}
    return lambda daemon: daemon.api("POST", "/vms", body)


LIFE = (
    lambda daemon: daemon.api("POST", "/networks", {"name": "lab", "cidr": "10.88.0.0/24"}),
    new_vm("vm", network="lab"),
    on_vm("vm", "POST", "/forward", {"port": 22}),
    on_vm("vm", "POST", "/stop"),
    on_vm("vm", "POST", "/start", {"wait_for": "ready"}),
    without_forward,
    new_vm("other", wait_for="none"),
    on_vm("vm", "POST", "/reboot", {"wait_for": "ready"}),
    on_vm("vm", "DELETE", ""),
    lambda daemon: daemon.api("DELETE", "/networks/lab"),
)


def live(host):
    """Whatever comes of each step; FALSE when the daemon died of it."""
    for step in LIFE:
        try:
            step(host.daemon)
        except (OSError, http.client.HTTPException):
            assert host.is_dead(), "it hung up, and lives"
            return False
        except (AssertionError, ValueError):
            if host.is_dead():
                return False
            raise
    return True


# --- what has to hold after it ---

def whole(host):
    """No record is half, before anybody repairs it."""
    for folder, _, names in os.walk(host.state):
        for name in names:
            if name.endswith(".json") and not name.startswith("."):
                with open(os.path.join(folder, name), encoding="utf-8") as file:
                    content = file.read()
                try:
                    json.loads(content)
                except ValueError:
                    raise AssertionError(f"half a file: {folder}/{name}: {content[:100]!r}") from None


def temporaries(host):
    return {os.path.join(folder, name) for folder, _, files in os.walk(host.state) for name in files
            if TEMPORARY.match(name)}


def consistent(host, told_of=frozenset()):
    daemon = host.daemon
    vms = daemon.vms()
    rows = daemon.api("GET", "/networks", status=200).json
    ids = {vm["id"] for vm in vms}
    names = sorted(row["spec"]["name"] for row in rows)
    # What is being written is no longer there soon, or is not what was there.
    rests = temporaries(host)
    eventually(lambda: not rests & temporaries(host), f"left over: {rests}")
    aside = [line for line in daemon.log if "set aside" in line]
    assert not aside, aside
    for vm in vms:
        assert vm["state"] in ("stopped", "failed"), vm
    for field in UNIQUE:
        values = [vm[field] for vm in vms if vm.get(field)]
        assert len(values) == len(set(values)), f"{field} doubled: {values}"
    leases = [lease for row in rows for lease in row["leases"]]
    holders = [lease["vmID"] for lease in leases]
    assert len(holders) == len(set(holders)) and set(holders) <= ids, leases
    assert host.list("vms") == sorted(ids), host.list("vms")
    assert host.list("networks") == names, (host.list("networks"), names)
    volumes = [name.partition(".")[0].removeprefix("vm-") for name in host.list("volumes")]
    assert set(volumes) - ids <= told_of, (volumes, told_of)
    assert not [row for row in rows if "error" in row], rows
    # The one of a network that nobody recorded is being ended.
    eventually(lambda: host.networks() == dict.fromkeys(names, 2), f"{host.networks()}, recorded: {names}")


def usable(host, told_of=frozenset()):
    """What was installed starts, and everything goes without a trace but for the volumes that were told of."""
    daemon = host.daemon
    for vm in daemon.vms():
        # One whose deletion was cut off can only be deleted.
        if "installedAt" in vm and "while the VM was deleting" not in vm.get("lastError", ""):
            daemon.api("POST", f"/vms/{vm['id']}/start", {"wait_for": "ready"}, 200)
    for vm in daemon.vms():
        daemon.api("DELETE", "/vms/" + vm["id"], status=204)
    for row in daemon.api("GET", "/networks", status=200).json:
        daemon.api("DELETE", "/networks/" + row["spec"]["name"], status=204)
    assert daemon.vms() == []
    volumes = [name for name in host.list("volumes") if name.partition(".")[0].removeprefix("vm-") not in told_of]
    left = [host.list("vms"), volumes, host.list("networks"), host.networks()]
    assert not any(left), left
    with open(os.path.join(host.state, "networks.json"), encoding="utf-8") as file:
        assert json.load(file) == []
    assert sorted(set(host.list()) - {"volumes"}) == ["lock", "networks", "networks.json", "vms"], host.list()


def works_again(host):
    """The daemon that met the failing disk, now that it is well."""
    daemon = host.daemon
    eventually(lambda: not [vm for vm in daemon.vms() if "not on disk" in vm.get("lastError", "")],
               "records are not written again")
    rows = daemon.api("GET", "/networks", status=200).json
    if "lab" in [row["spec"]["name"] for row in rows]:
        for vm in daemon.vms():
            if vm["network"] == "lab":
                daemon.api("DELETE", "/vms/" + vm["id"], status=204)
        daemon.api("DELETE", "/networks/lab", status=204)
    daemon.api("POST", "/networks", {"name": "lab", "cidr": "10.88.0.0/24"}, 201)
    vm = daemon.create("again", network="lab", wait_for="ready")
    daemon.api("POST", f"/vms/{vm['id']}/stop", status=200)
    daemon.api("POST", f"/vms/{vm['id']}/start", {"wait_for": "ready"}, 200)


def end_of_first(host, kind):
    """The first daemon, whose disk fails until here; whether it got so far as to serve."""
    daemon = host.daemon
    served = daemon.process.poll() is None and daemon.port is not None
    alive = live(host) if served else False
    if alive:
        daemon.vms()
    if alive and kind in ERRORS + ("short",):
        os.unlink(host.control)
        works_again(host)
    if alive:
        daemon.process.terminate()
    status, log = daemon.wait()
    assert "domain=GLib" not in log, log[-2000:]
    if kind in KILLS + ("torn",):
        assert status == -9 or alive and status == 0, f"exit status {status}:\n{log[-2000:]}"
    elif alive:
        assert status == 0, f"exit status {status}:\n{log[-2000:]}"
    else:
        assert not served and status == 1 and "\nError: " in "\n" + log, f"exit status {status}:\n{log[-2000:]}"


def try_fault(kind, point):
    """Whether the point was passed."""
    with Host() as host:
        try:
            write(host.control, f"{kind} {point}")
            host.launch("tests/lib/vm-manager-faulty")
            end_of_first(host, kind)
            host.daemon.process.stderr.close()
            passed = point in host.passed()
            with contextlib.suppress(FileNotFoundError):
                os.unlink(host.control)
            # A deletion goes on when the storage refuses, and says so.
            told_of = set(re.findall(r"remove volume: volume vm-([0-9a-f]{8}): ", "\n".join(host.daemon.log)))
            whole(host)
            host.launch("daemon/vm-manager").start()
            consistent(host, told_of)
            usable(host, told_of)
            host.daemon.stop()
            return passed
        except Exception as problem:
            log = [line for line in host.daemon.log if "operation=list_" not in line][-12:]
            raise Failure(kind, point, problem, log) from problem


class Failure(Exception):
    def __init__(self, kind, point, problem, log):
        super().__init__("\n".join([f"{kind} {point}: {type(problem).__name__}: {problem}", *log]))


def all_points():
    with Host() as host:
        write(host.control, "list")
        host.launch("tests/lib/vm-manager-faulty").start()
        assert live(host)
        host.daemon.stop()
        points = host.passed()
        host.daemon.process.stderr.close()
        os.unlink(host.control)
        host.launch("daemon/vm-manager").start()
        consistent(host)
        usable(host)
        host.daemon.stop()
    return [point for point in points if not any(text in point for text in FOREIGN)]


def chosen(faults):
    if AMOUNT == "all":
        return faults
    if not AMOUNT.isdigit():
        return [tuple(AMOUNT.split(" ", 1))]
    return [faults[i * len(faults) // int(AMOUNT)] for i in range(int(AMOUNT))]


# Each was a bug once: the daemon's record or its memory was not what was on disk.
ONCE = (
    # A copy of a vTPM's state that was being written stayed beside the VM for ever.
    ("kill-after", "write vms/VM/tpm.good/.tpm2-00.permall.*"),
    # A create that could not be undone was forgotten, and came back with a CID that another VM had by then.
    ("EROFS-on", "copy vms/VM/.ovmf_vars.fd.*"),
    # The folder of a network whose creation could not be undone was in the way of the next of that name.
    ("ENOSPC-5", "write .networks.json.*#2"),
)


def test_what_went_wrong_once():
    for kind, point in ONCE:
        assert try_fault(kind, point), f"{kind} {point} is not passed"


def test_every_point():
    points = all_points()
    assert len(points) >= 300, points
    faults = [(kind, point) for kind, point in itertools.product(KILLS + ERRORS + DATA, points)
              if kind not in DATA or point.split()[0] in ("write", "pwrite", "copy")]
    passed, failures = [], []
    lock = threading.Lock()

    def one(fault):
        try:
            result = try_fault(*fault)
            with lock:
                passed.append(result)
                if len(passed) % 200 == 0:
                    print(f"# {len(passed)} runs", flush=True)
        except Exception as problem:
            with lock:
                failures.append(problem)
                print("#", "\n# ".join(str(problem).splitlines()), flush=True)

    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(one, chosen(faults)))
    print(f"# figure storage-fault-points: {len(points)} points")
    print(f"# figure storage-fault-runs: {len(passed) + len(failures)} runs")
    print(f"# {len(passed) - sum(passed)} were not passed again, of {len(faults)} there are", flush=True)
    assert not failures, f"{len(failures)} of {len(passed) + len(failures)}"
    assert sum(passed) * 2 > len(passed), "most points are not passed again"


if __name__ == "__main__":
    run([value for name, value in list(globals().items()) if name.startswith("test_")])
