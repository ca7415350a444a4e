#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Figures of real VMs: what the daemon itself adds until QEMU answers and its monitor watches it, and how long the
mini guest takes until it is ready, and the whole Debian where its image is there ('./run test --all' builds it).

The first is the time of a create_vm request less that of the same programs with the same arguments
started one after the other by hand, in turns with the requests. Rows as those of bench.py."""

import argparse
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

SOURCE = pathlib.Path(__file__).resolve().parents[2]
ROUNDS = 11
DEADLINE = 600
REAL_GUEST = SOURCE / ".deps/guest/images"
HELPERS = ("plugins/netd", "daemon/monitor")


class Daemon:
    def __init__(self, build, root, images):
        self.root, self.state = root, root / "state"
        environment = dict(os.environ, G_DEBUG="", VM_MANAGER_HELPER_DIR=":".join(str(build / name) for name in HELPERS))
        environment.pop("NOTIFY_SOCKET", None)
        self.process = subprocess.Popen(
            [build / "daemon/vm-manager", "serve", "--listen=127.0.0.1:0", f"--listen-unix={root}/api.sock",
             f"--state-dir={self.state}", f"--image-dir={images}", f"--plugin-dir={build}/plugins", "--launcher=process",
             "--network=slirp", "--storage=files", "--attestation=noop", "--install-timeout=1h", "--boot-timeout=1h",
             "--config="],
            stderr=subprocess.PIPE, text=True, env=environment)
        lines = []
        for line in self.process.stderr:
            lines.append(line)
            found = re.search(r"listening on 127\.0\.0\.1:(\d+)", line)
            if found:
                self.port = int(found.group(1))
                break
        else:
            raise SystemExit("the daemon did not start:\n" + "".join(lines[-20:]))
        threading.Thread(target=self.process.stderr.read, daemon=True).start()  # nothing may block on a full pipe

    def api(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE)
        connection.request(method, "/api/v1" + path, json.dumps(body) if body is not None else None)
        response = connection.getresponse()
        text = response.read()
        if response.status >= 300:
            raise SystemExit(f"{method} {path}: {response.status} {text[:2000].decode()}")
        return json.loads(text) if text else None

    def create(self, wait_for, disk_gib=1, memory_mib=512):
        return self.api("POST", "/vms", {"name": "bench", "disk_gib": disk_gib, "memory_mib": memory_mib,
                                         "wait_for": wait_for, "require_attestation": False})

    def delete(self, vm):
        self.api("DELETE", f"/vms/{vm['id']}")

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(DEADLINE)


def wait_answer(path):
    """Until QEMU has answered a command there."""
    end = time.monotonic() + DEADLINE
    while time.monotonic() < end:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as channel:
            try:
                channel.connect(str(path))
                lines = channel.makefile()
                lines.readline()
                channel.sendall(b'{"execute":"qmp_capabilities"}\n')
                lines.readline()
                return
            except (FileNotFoundError, ConnectionRefusedError):
                time.sleep(0.0005)
    raise SystemExit(f"nothing answers at {path}")


def wait_path(path):
    while not path.exists():
        time.sleep(0.0005)


def arguments_of(vm, role):
    pid = vm["processes"][role]["pid"]
    return pathlib.Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8").split("\0")[:-1]


class Bare:
    """The programs of one VM, learnt from a run of the daemon."""

    def __init__(self, vm, directory, folder):
        self.directory, self.folder = directory, folder
        self.programs = {role: arguments_of(vm, role) for role in ("tpm", "vsock", "qemu") if role in vm["processes"]}
        self.disk = folder / "target.raw"
        self.volume = vm["paths"]["volume"]
        self.variables = (directory / "ovmf_vars.fd").read_bytes()

    def start(self, role, where):
        argv = [word.replace(str(self.directory), str(where)).replace(self.volume, str(self.disk))
                for word in self.programs[role]]
        with (where / (role + ".log")).open("wb") as log:
            return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def run(self, number):
        where = self.folder / f"bare-{number}"
        (where / "tpm").mkdir(parents=True)
        (where / "ovmf_vars.fd").write_bytes(self.variables)
        with self.disk.open("wb") as disk:
            disk.truncate(1 << 30)
        started = []
        begin = time.monotonic()
        subprocess.run(["swtpm_setup", "--tpm2", "--tpm-state", f"dir://{where}/tpm", "--pcr-banks", "sha256"],
                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
        started.append(self.start("tpm", where))
        wait_path(where / "tpm/swtpm.sock")
        if "vsock" in self.programs:
            started.append(self.start("vsock", where))
            wait_path(where / "vhost.sock")
        started.append(self.start("qemu", where))
        wait_answer(where / "qmp.sock")
        took = time.monotonic() - begin
        for process in reversed(started):
            process.kill()
            process.wait()
        shutil.rmtree(where)
        return took


def own_share(build, root, report):
    images = root / "images"
    images.mkdir()
    for suffix in ("efi", "raw"):
        (images / f"bench_1.0.0.{suffix}").write_bytes(bytes(1 << 20))
    daemon = Daemon(build, root, images)
    try:
        vm = daemon.create("none")
        bare = Bare(vm, daemon.state / "vms" / vm["id"], root)
        daemon.delete(vm)
        whole, alone = [], []
        for number in range(ROUNDS):
            begin = time.monotonic()
            vm = daemon.create("none")
            whole.append(time.monotonic() - begin)
            daemon.delete(vm)
            alone.append(bare.run(number))
        whole, alone = (statistics.median(times) * 1000 for times in (whole, alone))
        report("create-own-share-ms", whole - alone, "ms")
        report("create-until-qemu-answers-ms", whole, "ms", alone, "the same programs by hand")
    finally:
        daemon.end()


def seconds_between(vm, first, second):
    def seconds(text):
        main, _, fraction = text.rstrip("Z").partition(".")
        return time.mktime(time.strptime(main, "%Y-%m-%dT%H:%M:%S")) + float("0." + (fraction or "0"))
    return seconds(vm[second]) - seconds(vm[first])


def boot_times(build, root, report, name, images, **sizes):
    daemon = Daemon(build, root, images)
    try:
        vm = wait_ready(daemon, daemon.create("none", **sizes))
        report(f"{name}-install-s", seconds_between(vm, "createdAt", "installedAt"), "s")
        report(f"{name}-first-boot-s", seconds_between(vm, "bootedAt", "readyAt"), "s")
        begin = time.monotonic()
        daemon.api("POST", f"/vms/{vm['id']}/stop")
        report(f"{name}-stop-s", time.monotonic() - begin, "s")
        vm = wait_ready(daemon, daemon.api("POST", f"/vms/{vm['id']}/start"))
        report(f"{name}-second-boot-s", seconds_between(vm, "bootedAt", "readyAt"), "s")
        daemon.delete(vm)
    finally:
        daemon.end()


def mini_guest(build, root, report):
    done = subprocess.run([SOURCE / "images/mini/build"], stdout=subprocess.PIPE, text=True, check=True)
    boot_times(build, root, report, "mini", pathlib.Path(done.stdout.strip().splitlines()[-1]))


def real_guest(build, root, report):
    if REAL_GUEST.exists():
        boot_times(build, root, report, "real", REAL_GUEST, disk_gib=8, memory_mib=1024)
    else:
        print("the whole Debian is left out: './run test --all' builds its image", flush=True)


def wait_ready(daemon, vm):
    while vm["state"] != "ready":
        if vm["state"] in ("failed", "stopped"):
            raise SystemExit(f"the VM is {vm['state']}: {vm.get('lastError')}")
        time.sleep(0.2)
        vm = daemon.api("GET", f"/vms/{vm['id']}")
    return vm


def main():
    parser = argparse.ArgumentParser(description="Measures real VMs.")
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    rows = []

    def report(name, value, unit, peer=None, peer_name=""):
        ratio = round(value / peer, 3) if peer else None
        rows.append({"name": name, "value": round(value, 3), "unit": unit, "peer": round(peer, 3) if peer else None,
                     "peer_name": peer_name, "ratio": ratio})
        beside = f"   {peer_name} {peer:.5g}, ratio {ratio:g}" if peer else ""
        print(f"{name:32} {value:>12.5g} {unit:8}{beside}", flush=True)

    for part in (own_share, mini_guest, real_guest):
        root = pathlib.Path(tempfile.mkdtemp(prefix="vmm.", dir="/tmp"))
        try:
            part(arguments.build.resolve(), root, report)
        finally:
            shutil.rmtree(root, ignore_errors=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
