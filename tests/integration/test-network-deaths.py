#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""The real daemon with real networks, while one of them is killed again and again: the daemon, or either
half of a network's process, at any moment of what the API is asked for. Afterwards all is as it is recorded.

Usage: test-network-deaths.py PROGRAM PLUGIN-FOLDER HELPER-FOLDER FAKES-FOLDER

VMM_TEST_ROUNDS: deaths in each scene, VMM_TEST_SEED: of the chance."""

import collections
import contextlib
import ctypes
import http.client
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time

from daemon import Daemon, eventually, run

PROGRAM, FOLDER, HELPERS, FAKES = sys.argv[1:5]
ROUNDS = int(os.environ.get("VMM_TEST_ROUNDS", "4"))
SEED = int(os.environ.get("VMM_TEST_SEED", str(int(time.time()))))
PR_SET_CHILD_SUBREAPER = 36
NETWORKS = ("default", "lab")


def stat_of(pid):
    """(state, parent)"""
    words = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return words[0], int(words[1])


def processes():
    for path in pathlib.Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                yield int(path.name), path.joinpath("cmdline").read_bytes().split(b"\0"), *stat_of(path.name)
            except (OSError, IndexError):
                pass


def carriers(state, name):
    """The halves of a network's process that run: (wardens, switches)."""
    folder = os.path.join(state, "networks", name).encode()
    found = {pid: parent for pid, words, how, parent in processes() if how not in "ZX" and folder in words}
    return ([pid for pid, parent in found.items() if parent not in found],
            [pid for pid, parent in found.items() if parent in found])


def those_of(folder):
    """The processes that were told a path in this folder: {pid: words}"""
    start = os.path.join(folder, "").encode()
    return {pid: words for pid, words, how, _ in processes()
            if how not in "ZX" and any(start in word for word in words)}


def end_all(folder):
    """At once, and until nothing that they started meanwhile is left."""
    while pids := those_of(folder):
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass


def reap():
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def ask(path, method, parameters=None):
    """One request on the control socket of a network's process."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as channel:
        channel.settimeout(20)
        channel.connect(path)
        lines = channel.makefile("rwb")
        json.loads(lines.readline())
        lines.write(json.dumps({"id": 1, "method": method, "params": parameters or {}}).encode() + b"\n")
        lines.flush()
        while True:
            answer = json.loads(lines.readline())
            if answer.get("id") == 1:
                return answer["result"]


class Scene:
    current = None

    def __init__(self, launcher):
        self.launcher = launcher
        self.daemon = None
        self.folder = tempfile.mkdtemp(prefix="vmm-", dir="/tmp")
        Scene.current = self
        self.chance = random.Random(SEED)
        self.stopping = threading.Event()
        self.asked = self.failed = 0
        self.start()
        self.state = self.daemon.state

    def start(self):
        daemon = Daemon(PROGRAM, FOLDER, "--launcher=lasting", "--network=slirp", "--storage=fake",
                        "--attestation=fake", plugin_dir=f"{FOLDER}:{FAKES}", folder=self.folder,
                        env={"VM_MANAGER_HELPER_DIR": HELPERS, "VMM_FAKE": self.launcher})
        self.daemon = daemon.start()

    def kill_daemon(self):
        self.daemon.process.kill()
        self.daemon.process.wait()
        self.daemon.reader.join()
        self.daemon.process.stderr.close()
        self.start()

    def kill_half(self, which):
        wardens, switches = carriers(self.state, self.chance.choice(NETWORKS))
        for pid in (wardens, switches)[which][:1]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def ask(self, chance, method, path, body=None):
        """Whatever comes of it: a daemon that is killed answers nothing."""
        self.asked += 1
        try:
            answer = self.daemon.api(method, path, body)
            if answer.status >= 400:
                self.failed += 1
                if answer.status >= 500 and answer.status not in (501, 504) or method == "DELETE" and "forwards" in path:
                    print(f"# {method} {path}: {answer.status} {answer.body[:200]!r}", flush=True)
                return None
            return answer.json if answer.body else True
        except (OSError, ValueError, http.client.HTTPException):
            self.failed += 1
            time.sleep(0.02)
            return None

    def work(self, number):
        """One client that does what comes to its mind."""
        chance = random.Random(SEED * 100 + number)
        while not self.stopping.is_set():
            vms = self.ask(chance, "GET", "/vms") or []
            what = chance.random()
            if what < 0.25 and len(vms) < 12:
                self.ask(chance, "POST", "/vms", {"name": f"vm-{chance.randrange(10000)}", "wait_for": "none",
                                                  "network": chance.choice(NETWORKS), "require_attestation": False})
                continue
            if what < 0.35:
                if chance.random() < 0.5:
                    self.ask(chance, "POST", "/networks", {"name": "more", "cidr": "10.99.0.0/24"})
                else:
                    self.ask(chance, "DELETE", "/networks/more")
                continue
            if not vms:
                continue
            vm = chance.choice(vms)["id"]
            forwards = self.ask(chance, "GET", f"/vms/{vm}/forwards") or []
            if what < 0.6:
                body = {"port": chance.randrange(1, 1000), "protocol": chance.choice(["tcp", "udp"])}
                if chance.random() < 0.3:
                    body["host_port"] = chance.randrange(21000, 32000)
                self.ask(chance, "POST", f"/vms/{vm}/forward", body)
            elif what < 0.75 and forwards:
                self.ask(chance, "DELETE", f"/vms/{vm}/forwards/{chance.choice(forwards)['forward']}")
            elif what < 0.85:
                self.ask(chance, "POST", f"/vms/{vm}/{chance.choice(['start', 'stop'])}", {"wait_for": "none"})
            elif what < 0.95:
                self.ask(chance, "DELETE", f"/vms/{vm}")

    # --- what has to hold ---

    def records(self):
        """What the API says of each network: {name: ({vm: ip}, {forward: (vm, port, protocol, host port)})}. Not the
        forwards of a VM that failed, such as by a delete that was cut off: they may be gone or not."""
        found = {row["spec"]["name"]: ({}, {}) for row in self.daemon.api("GET", "/networks", status=200).json}
        for vm in self.daemon.vms():
            leases, forwards = found[vm["network"]]
            if vm.get("ip"):
                leases[vm["id"]] = vm["ip"]
            if vm["state"] == "failed":
                continue
            for row in self.daemon.api("GET", f"/vms/{vm['id']}/forwards", status=200).json:
                port = int(row["address"].rpartition(":")[2])
                forwards[row["forward"]] = (vm["id"], row["port"], row["protocol"], port)
        return found

    def disagreement(self):
        """What is not as it is recorded; None when all is."""
        rows = self.daemon.api("GET", "/networks", status=200).json
        errors = [row for row in rows if "error" in row]
        if errors:
            return errors
        folders = sorted(os.listdir(os.path.join(self.state, "networks")))
        if folders != sorted(row["spec"]["name"] for row in rows):
            return f"folders {folders}"
        failed = {vm["id"] for vm in self.daemon.vms() if vm["state"] == "failed"}
        for name, (leases, forwards) in self.records().items():
            what = self.disagreement_of(os.path.join(self.state, "networks", name), leases, forwards, failed)
            if what:
                return f"{name}: {what}"
        return None

    def disagreement_of(self, folder, leases, forwards, failed):
        with open(os.path.join(folder, "netd.json"), encoding="utf-8") as file:
            recorded = json.load(file)
        status = ask(os.path.join(folder, "control.sock"), "status")
        for what, where in (("netd.json", recorded), ("vmm-netd", status)):
            found = {row["id"]: (row["vm"], row["port"], row["protocol"], row["host_port"])
                     for row in where["forwards"] if row["vm"] not in failed}
            if found != forwards:
                return f"forwards in {what}: {found}, recorded: {forwards}"
            ports = {row["vm"]: row["ip"] for row in where["ports"]}
            if not ports.items() <= leases.items():
                return f"ports in {what}: {ports}, leases: {leases}"
        halves = carriers(self.state, os.path.basename(folder))
        if [len(pids) for pids in halves] != [1, 1]:
            return f"processes {halves}"
        rests = [name for name in os.listdir(folder) if name.startswith(".")]
        return f"left over: {rests}" if rests else None

    def check(self):
        """Also that nothing is left behind by any of the daemons."""
        what = [None]

        def agrees():
            what[0] = self.disagreement()
            return what[0] is None

        try:
            eventually(agrees, "")
        except AssertionError:
            raise AssertionError(what[0]) from None
        reap()
        folder = os.path.join(self.state, "networks").encode()
        names = [row["spec"]["name"] for row in self.daemon.api("GET", "/networks", status=200).json]
        known = {pid for name in names for pids in carriers(self.state, name) for pid in pids}
        strays = {pid: words for pid, words, how, _ in processes()
                  if pid not in known and any(word.startswith(folder) for word in words)}
        assert not strays, strays
        zombies = [pid for pid, _, how, parent in processes() if how == "Z" and parent == self.daemon.process.pid]
        assert not zombies, zombies
        for row in self.records().values():
            for vm, port, protocol, host_port in row[1].values():
                if protocol == "tcp":
                    socket.create_connection(("127.0.0.1", host_port), timeout=20).close()

    def descriptors(self):
        found = []
        for path in pathlib.Path(f"/proc/{self.daemon.process.pid}/fd").iterdir():
            try:
                found.append(re.sub(r":\[\d+\]", "", os.readlink(path)))
            except FileNotFoundError:
                pass
        return collections.Counter(found)

    def tell(self):
        """What helps to find out why: all but the questions of the checks."""
        for line in [line for line in self.daemon.log if "operation=list_" not in line][-100:]:
            print("#", line)
        for path in sorted(pathlib.Path(self.state, "networks").glob("*/*")):
            if path.suffix in (".log", ".json"):
                print(f"# {path.parent.name}/{path.name}: {path.read_text(errors='replace')[-4000:]!r}")
        for pid, words in those_of(self.folder).items():
            print("#", pid, *stat_of(pid), b" ".join(words[:2]).decode())

    def end(self, failed):
        """Whatever happens, nothing of it is left."""
        self.stopping.set()
        try:
            if failed:
                self.tell()
            else:
                self.daemon.stop()
        finally:
            end_all(self.folder)
            self.daemon.clean()
            reap()
            shutil.rmtree(self.folder)
            Scene.current = None


class Clients:
    def __init__(self, scene, count=3):
        self.scene = scene
        scene.stopping.clear()
        self.threads = [threading.Thread(target=scene.work, args=(number,), daemon=True) for number in range(count)]

    def __enter__(self):
        for thread in self.threads:
            thread.start()

    def __exit__(self, *unused):
        self.scene.stopping.set()
        for thread in self.threads:
            thread.join()


def deaths(scene, kinds):
    scene.ask(scene.chance, "POST", "/networks", {"name": "lab", "cidr": "10.88.0.0/24"})
    for number in range(ROUNDS):
        with Clients(scene):
            time.sleep(scene.chance.random() * 0.6)
            kind = scene.chance.choice(kinds)
            scene.kill_daemon() if kind == "daemon" else scene.kill_half(kind == "switch")
            time.sleep(scene.chance.random() * 0.3)
        try:
            scene.check()
        except AssertionError:
            print(f"# seed {SEED}, death {number}, of {kind}", flush=True)
            raise
    print(f"# {scene.asked} requests, {scene.failed} of them in vain", flush=True)


def clean_up(scene):
    for vm in scene.daemon.vms():
        scene.daemon.api("DELETE", f"/vms/{vm['id']}", status=204)
    scene.ask(scene.chance, "DELETE", "/networks/more")
    scene.check()


@contextlib.contextmanager
def scene_of(launcher):
    scene = Scene(launcher)
    try:
        yield scene
    except BaseException:
        scene.end(True)
        raise
    scene.end(False)


def test_deaths_of_a_network_that_outlives_the_daemon():
    with scene_of("lasting") as scene:
        deaths(scene, ["warden", "switch", "daemon"])
        clean_up(scene)


def test_deaths_of_a_network_that_ends_with_the_daemon():
    with scene_of("lasting=no") as scene:
        deaths(scene, ["warden", "switch", "daemon"])
        clean_up(scene)


def test_a_daemon_that_is_spared_keeps_its_size():
    with scene_of("lasting") as scene:
        scene.ask(scene.chance, "POST", "/networks", {"name": "lab", "cidr": "10.88.0.0/24"})
        scene.check()
        before = scene.descriptors()
        deaths(scene, ["warden", "switch"])
        clean_up(scene)
        try:
            eventually(lambda: scene.descriptors().total() <= before.total() + 2, "")
        except AssertionError:
            raise AssertionError(f"left behind: {scene.descriptors() - before}") from None


def interrupted(*unused):
    """Whoever ends this test waits half a second, and then asks nobody."""
    if Scene.current is not None:
        end_all(Scene.current.folder)
        shutil.rmtree(Scene.current.folder, ignore_errors=True)
    os._exit(1)


if __name__ == "__main__":
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)  # so that what is left behind is found and waited for
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, interrupted)
    run([value for name, value in list(globals().items()) if name.startswith("test_")])
