# SPDX-License-Identifier: LGPL-2.1-or-later
"""Runs the real daemon with the fake backends, talks to it in clean and in hostile ways, and speaks TAP."""

import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback

DEADLINE = 120  # of anything that is waited for; only a hang reaches it


class Skip(Exception):
    pass


class Answer:
    def __init__(self, status, headers, body):
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def error(self):
        return self.json["error"]

    def __repr__(self):
        return f"{self.status} {self.body[:300]!r}"


class Daemon:
    """One vm-manager process with a folder of its own."""

    def __init__(self, program, plugins, *flags, env=None, folder=None, wrapper=(), images=True, plugin_dir=None,
                 firmware=True):
        self.folder = folder or tempfile.mkdtemp(prefix="vmm-", dir="/tmp")
        self.own_folder = folder is None
        self.state = os.path.join(self.folder, "state")
        self.images = os.path.join(self.folder, "images")
        self.socket = os.path.join(self.folder, "api.sock")
        if images:
            self.write_images()
        plugin_dir = plugins if plugin_dir is None else plugin_dir
        self.arguments = [
            program, "--verbose", "serve",
            "--state-dir=" + self.state, "--image-dir=" + self.images,
            "--listen=127.0.0.1:0", "--listen-unix=" + self.socket,
            "--plugin-dir=" + plugin_dir, "--config=", *(self.write_firmware() if firmware else ()), *flags,
        ]
        environment = {**os.environ, **self.host_environment(), **(env or {})}
        self.log = []
        self.port = None
        self.ready = threading.Event()
        self.process = subprocess.Popen([*wrapper, *self.arguments], stderr=subprocess.PIPE,
                                        stdout=subprocess.DEVNULL, env=environment, text=True)
        self.reader = threading.Thread(target=self.read_log, daemon=True)
        self.reader.start()

    def host_environment(self):
        """The host is the same everywhere: no KVM, and a program for vsock that fake launchers never run."""
        path = os.path.join(self.folder, "bin", "vhost-device-vsock")
        write(path, "#!/bin/false\n")
        os.chmod(path, 0o755)
        return {"VM_MANAGER_ACCELERATOR": "tcg", "PATH": os.path.dirname(path) + ":" + os.environ["PATH"]}

    def write_images(self):
        for part in ("efi", "raw"):
            write(os.path.join(self.images, "demo_1.0.0." + part), part)

    def write_firmware(self):
        for name in ("code", "vars"):
            write(os.path.join(self.folder, name + ".fd"), name)
            yield f"--ovmf-{name}=" + os.path.join(self.folder, name + ".fd")

    def read_log(self):
        for line in self.process.stderr:
            self.log.append(line.rstrip())
            found = re.search(r"listening on 127\.0\.0\.1:(\d+)", line)
            if found:
                self.port = int(found.group(1))
            if "msg=started" in line:
                self.ready.set()
        self.ready.set()

    def start(self):
        assert self.ready.wait(DEADLINE), "the daemon does not start"
        assert self.process.poll() is None and self.port, "the daemon ended:\n" + "\n".join(self.log[-20:])
        return self

    def wait(self):
        """The exit status, and what it said last."""
        status = self.process.wait(DEADLINE)
        self.reader.join(DEADLINE)
        return status, "\n".join(self.log)

    def stop(self, number=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(number)
        status, log = self.wait()
        assert status == 0, f"exit status {status}:\n{log[-4000:]}"
        assert not os.path.exists(self.socket), "the socket is still there"
        for line in self.log:
            assert "domain=GLib" not in line and "domain=libsoup" not in line, line

    def clean(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.process.stderr.close()
        if self.own_folder:
            shutil.rmtree(self.folder)

    def __enter__(self):
        return self.start()

    def __exit__(self, kind, value, trace):
        try:
            if kind is None:
                self.stop()
            else:
                for line in self.log[-30:]:
                    print("#", line)
        finally:
            self.clean()

    def request(self, method, path, body=None, headers=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE)
        try:
            if isinstance(body, (dict, list)):
                body = json.dumps(body)
            connection.request(method, path, body=body, headers=headers or {})
            answer = connection.getresponse()
            return Answer(answer.status, dict(answer.getheaders()), answer.read())
        finally:
            connection.close()

    def api(self, method, path, body=None, status=None):
        answer = self.request(method, "/api/v1" + path, body)
        assert status is None or answer.status == status, f"{method} {path}: {answer}"
        return answer

    def create(self, name, **more):
        body = {"name": name, "wait_for": "none", "require_attestation": False, **more}
        return self.api("POST", "/vms", body, 201).json

    def vms(self):
        return self.api("GET", "/vms", status=200).json

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=DEADLINE)

    def raw(self, data, finish=True):
        """Sends exactly these bytes; all that comes back until the server closes."""
        with self.connect() as connection:
            try:
                connection.sendall(data)
            except (BrokenPipeError, ConnectionResetError):
                pass
            return read_all(connection)

    def state_root(self):
        """The state directory as the daemon sees it, which may have mounts of its own."""
        return f"/proc/{self.process.pid}/root{self.state}"


def read_all(connection):
    parts = []
    while True:
        try:
            part = connection.recv(65536)
        except ConnectionResetError:
            break
        if not part:
            break
        parts.append(part)
    return b"".join(parts)


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def eventually(check, what):
    end = time.monotonic() + DEADLINE
    while not check():
        assert time.monotonic() < end, what
        time.sleep(0.02)


def run(tests):
    """Runs functions one after the other, or those that VMM_TEST_ONLY names, and says how it went."""
    failed = 0
    chosen = os.environ.get("VMM_TEST_ONLY", "").split()
    tests = [test for test in tests if not chosen or test.__name__ in chosen]
    print(f"1..{len(tests)}", flush=True)
    for number, test in enumerate(tests, 1):
        name = test.__name__.removeprefix("test_").replace("_", "-")
        try:
            test()
            print(f"ok {number} {name}", flush=True)
        except Skip as reason:
            print(f"ok {number} {name} # SKIP {reason}", flush=True)
        except Exception:
            failed += 1
            for line in traceback.format_exc().splitlines():
                print("#", line)
            print(f"not ok {number} {name}", flush=True)
    sys.exit(1 if failed else 0)
