# SPDX-License-Identifier: LGPL-2.1-or-later
"""The real daemon with VMs whose programs are real processes, though most of them fakes: whoever is killed,
what there is can be compared with what is recorded."""

import contextlib
import ctypes
import http.client
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time

from daemon import Daemon, eventually

PR_SET_CHILD_SUBREAPER = 36
LIVE = ("installing", "booting", "attesting", "ready", "running", "stopping")
ROLES = ("qemu", "tpm", "monitor", "vsock", "tpm-setup")


def adopt_orphans():
    """So that what is left behind is found, and waited for."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)


def those_of(folder):
    """The processes that were told a path in this folder: {pid: words}"""
    start = os.path.join(folder, "").encode()
    found = {}
    for path in pathlib.Path("/proc").iterdir():
        if path.name.isdigit():
            with contextlib.suppress(OSError, IndexError):
                words = path.joinpath("cmdline").read_bytes().split(b"\0")
                how = path.joinpath("stat").read_text().rpartition(")")[2].split()[0]
                if how not in "ZX" and any(start in word for word in words):
                    found[int(path.name)] = [word.decode() for word in words]
    return found


def kill(pid):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


class Fleet:
    """One daemon after the other on one state folder."""

    def __init__(self, build, fake="", program="tests/lib/vm-manager-killable", launcher="lasting"):
        self.build = os.path.abspath(build)
        self.folder = tempfile.mkdtemp(prefix="vmm-", dir="/tmp")
        self.processes = os.path.join(self.folder, "processes")
        self.points = os.path.join(self.folder, "points")
        self.state = os.path.join(self.folder, "state")
        self.program = os.path.join(self.build, program)
        self.fake = "lasting=all,installer-ms=60" + fake
        self.launcher = launcher
        self.daemon = None
        os.mkdir(self.processes)
        self.start()

    def path(self, *names):
        return ":".join(os.path.join(self.build, name) for name in names)

    def start(self):
        self.launch()
        self.daemon.start()

    def launch(self):
        environment = {
            "VM_MANAGER_HELPER_DIR": self.path("plugins/netd", "daemon/monitor"),
            "VMM_FAKE": self.fake,
            "VMM_FAKE_PROGRAM": self.path("tests/lib/fake-program"),
            "VMM_FAKE_PROCESSES": self.processes,
            "VMM_KILL_POINTS": self.points,
        }
        self.daemon = Daemon(self.program, "", "--launcher=" + self.launcher, "--network=slirp", "--storage=files",
                             "--attestation=fake", plugin_dir=self.path("plugins", "tests/lib"), folder=self.folder,
                             env=environment)

    def died(self):
        """The daemon was killed, and all of it is gone."""
        self.daemon.process.wait()
        self.daemon.reader.join()
        self.daemon.process.stderr.close()
        self.reap()

    def kill_daemon(self):
        self.daemon.process.kill()
        self.died()

    def reap(self):
        """Orphans only: the daemon is waited for by its own."""
        for pid in self.zombies():
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)

    def zombies(self):
        for path in pathlib.Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
            if int(path) != self.daemon.process.pid:
                yield int(path)

    def arm(self, *commands):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.points + ".seen")
        with open(self.points + ".new", "w", encoding="utf-8") as file:
            file.write("\n".join(commands))
        os.rename(self.points + ".new", self.points)

    def disarm(self):
        os.unlink(self.points)
        with contextlib.suppress(FileNotFoundError):
            return pathlib.Path(self.points + ".seen").read_text().split("\n")[:-1]
        return []

    def ask(self, method, path, body=None):
        """Whatever comes of it: a daemon that is killed answers nothing."""
        with contextlib.suppress(OSError, ValueError, http.client.HTTPException):
            return self.daemon.api(method, path, body)
        return None

    def vm(self, name):
        return next((vm for vm in self.daemon.vms() if vm["name"] == name), None)

    def wait_for(self, name, *states):
        eventually(lambda: (self.reap(), self.vm(name)["state"] in states)[1], f"{name} is {states}: {self.vm(name)}")
        return self.vm(name)

    # --- what has to hold ---

    def running(self):
        """({(vm, role): [pid]}, {network: [pid]})"""
        vms, networks = {}, {}
        for pid, words in those_of(self.folder).items():
            if pid == self.daemon.process.pid:
                continue
            if os.path.basename(words[0]) == "fake-program":
                vms.setdefault((words[2], words[3]), []).append(pid)
            elif os.path.basename(words[0]) == "vmm-monitor":
                folder = words[words.index("--directory") + 1]
                vms.setdefault((os.path.basename(folder), "monitor"), []).append(pid)
            elif os.path.basename(words[0]) == "vmm-netd":
                folder = next(word for word in words if "/networks/" in word)
                networks.setdefault(folder.partition("/networks/")[2].partition("/")[0], []).append(pid)
        return vms, networks

    def list(self, *names):
        with contextlib.suppress(FileNotFoundError):
            return sorted(os.listdir(os.path.join(self.state, *names)))
        return []

    def leases(self):
        with open(os.path.join(self.state, "networks.json"), encoding="utf-8") as file:
            return {vm: ip for row in json.load(file) for vm, ip in row.get("leases", {}).items()}

    def disagreement(self):
        """What is not as it is recorded; None when all is."""
        vms = {vm["id"]: vm for vm in self.daemon.vms()}
        rows = self.daemon.api("GET", "/networks", status=200).json
        names = sorted(row["spec"]["name"] for row in rows)
        running, networks = self.running()
        errors = [row for row in rows if "error" in row]
        if errors:
            return errors
        if self.list("vms") != sorted(vms):
            return f"folders of VMs: {self.list('vms')}, recorded: {sorted(vms)}"
        if self.list("networks") != names:
            return f"folders of networks: {self.list('networks')}, recorded: {names}"
        if sorted(networks) != names or any(len(pids) != 2 for pids in networks.values()):
            return f"processes of networks: {networks}, recorded: {names}"
        if not set(self.leases()) <= set(vms):
            return f"leases: {self.leases()}, recorded: {sorted(vms)}"
        volumes = {name.partition(".")[0].removeprefix("vm-") for name in self.list("volumes")}
        if not volumes <= set(vms):
            return f"volumes: {self.list('volumes')}, recorded: {sorted(vms)}"
        strays = {key: pids for key, pids in running.items() if key[0] not in vms or len(pids) != 1}
        if strays:
            return f"processes without a VM, or doubled: {strays}"
        for vm in vms.values():
            what = self.disagreement_of(vm, {role: running.get((vm["id"], role), [None])[0] for role in ROLES}, volumes)
            if what:
                return f"{what}: {vm['state']} {vm.get('lastError')} {vm.get('processes')}"
        return None

    def disagreement_of(self, vm, pids, volumes):
        if vm["state"] in ("creating", "deleting", "stopping"):
            return "under way"
        rests = [name for name in self.list("vms", vm["id"]) if name.startswith(".")]
        if rests:
            return f"left over: {rests}"
        if vm["state"] not in LIVE:
            left = {role: pid for role, pid in pids.items() if pid}
            if left:
                return f"processes of a VM that does not run: {left}"
            if vm["state"] == "stopped" and vm["id"] not in volumes:
                return "no volume"
            return None
        with open(os.path.join(self.state, "vms", vm["id"], "vm.json"), encoding="utf-8") as file:
            recorded = {role: row["pid"] for role, row in json.load(file).get("processes", {}).items()}
        if recorded != {role: pid for role, pid in pids.items() if pid} or "qemu" not in recorded:
            return f"processes: {pids}, recorded: {recorded}"
        if vm["id"] not in volumes or self.leases().get(vm["id"]) != vm["ip"]:
            return f"runs without disk or address: {volumes}, {self.leases()}"
        return None

    def check(self):
        what = [None]

        def agrees():
            self.reap()
            what[0] = self.disagreement()
            return what[0] is None

        try:
            eventually(agrees, "")
        except AssertionError:
            raise AssertionError(what[0]) from None

    def clean_up(self):
        """Every VM can be deleted, whatever happened to it, and nothing is left of any."""
        for vm in self.daemon.vms():
            self.reap()
            self.daemon.api("DELETE", f"/vms/{vm['id']}", status=204)
        self.check()
        left = [self.list("vms"), self.list("volumes"), self.leases(), self.running()[0]]
        assert not any(left), left

    # --- the end ---

    def tell(self):
        for line in [line for line in self.daemon.log if "operation=list_" not in line][-60:]:
            print("#", line)
        for pid, words in those_of(self.folder).items():
            print("#", pid, " ".join(words[:4]))

    def close(self):
        while pids := those_of(self.folder):
            for pid in pids:
                kill(pid)
            time.sleep(0.01)
        with contextlib.suppress(subprocess.SubprocessError):
            self.daemon.process.wait(10)
        self.reap()
        self.daemon.clean()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        try:
            if kind is not None:
                self.tell()
        finally:
            self.close()
