#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""The metadata service of the real daemon, asked as guests ask it: over the sockets that their network leads them to.

Nothing here is timed: what must not hold others up is left hanging while the others are served."""

import hashlib
import http.client
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading

from daemon import DEADLINE, Answer, Daemon, Skip, eventually, read_all, run, write

PROGRAM, PLUGINS = sys.argv[1], sys.argv[2]
BASE = "/giantswarm/v1"
LARGE = 300 * 1024 * 1024
PIECE = 1024 * 1024


def serve(*flags, env=None, **more):
    # A sanitizer keeps what was freed; here it is measured what the daemon keeps.
    options = os.environ.get("ASAN_OPTIONS", "") + ":quarantine_size_mb=1"
    return Daemon(PROGRAM, PLUGINS, *flags, env={"ASAN_OPTIONS": options, **(env or {})}, **more)


def socket_of(daemon, vm):
    return os.path.join(daemon.state, "vms", vm["id"], "metadata.sock")


def dial(daemon, vm):
    client = socket.socket(socket.AF_UNIX)
    client.connect(socket_of(daemon, vm))  # waits while there are too many; with a time limit it would fail
    client.settimeout(DEADLINE)
    return client


class Connection(http.client.HTTPConnection):
    def __init__(self, daemon, vm):
        super().__init__("169.254.169.254", timeout=DEADLINE)
        self.dial = lambda: dial(daemon, vm)

    def connect(self):
        self.sock = self.dial()


def ask(daemon, vm, path, method="GET", body=None, headers=None):
    connection = Connection(daemon, vm)
    try:
        connection.request(method, BASE + path, body=body, headers=headers or {})
        answer = connection.getresponse()
        return Answer(answer.status, dict(answer.getheaders()), answer.read())
    finally:
        connection.close()


def value(daemon, vm, path):
    answer = ask(daemon, vm, path)
    assert answer.status == 200, (path, answer)
    assert answer.headers["Content-Type"] == "text/plain; charset=utf-8", answer.headers
    return answer.body.decode()


def large_file(daemon):
    """Holes but for a mark in each of its mebibytes."""
    path = os.path.join(daemon.images, "sysupdate/base/large.raw")
    write(path, "")
    with open(path, "r+b") as file:
        file.truncate(LARGE)
        for at in range(0, LARGE, PIECE):
            file.seek(at)
            file.write(b"%08d" % (at // PIECE))
    return path


def resident(daemon):
    """In KiB: now, and the most so far."""
    with open(f"/proc/{daemon.process.pid}/status", encoding="ascii") as file:
        rows = dict(line.split(":", 1) for line in file)
    return int(rows["VmRSS"].split()[0]), int(rows["VmHWM"].split()[0])


def reset_peak(daemon):
    with open(f"/proc/{daemon.process.pid}/clear_refs", "w", encoding="ascii") as file:
        file.write("5")


# --- use ---

def test_keys():
    with serve() as daemon:
        one = daemon.create("one", hostname="host-one", metadata={"role": "a", "empty": ""},
                            ssh_authorized_keys=["ssh-ed25519 AAAA me"])
        two = daemon.create("two")
        assert value(daemon, one, "/instance-id") == one["id"]
        assert value(daemon, two, "/instance-id") == two["id"]
        assert value(daemon, one, "/hostname") == "host-one"
        assert value(daemon, two, "/hostname") == "two"
        assert value(daemon, one, "/zone") == "default"
        assert value(daemon, one, "/region") == socket.gethostname()
        assert value(daemon, one, "/public-keys/") == "0\n1"
        assert value(daemon, one, "/public-keys/0").startswith("ssh-ed25519 ")
        assert value(daemon, one, "/metadata/empty") == ""
        for path in ("/metadata/none", "/kubernetes-version", "/nothing", "/../v1/hostname", "//hostname"):
            absent = ask(daemon, one, path)
            assert (absent.status, absent.body, absent.headers["Content-Length"]) == (404, b"", "0"), absent
        assert ask(daemon, one, "/hostname", "PUT").status == 405
        assert any("metadata request" in line and "path=/giantswarm/v1/hostname" in line for line in daemon.log)


def test_gate():
    """The whole way of a boot: gated, a nonce, a quote, released; a reboot gates again."""
    quote = {"stage": "initrd", "nonce": "", "ak_pub": "YQ==", "quote": "YQ==", "signature": "YQ==",
             "pcrs": {"sha256": {"0": "00"}}}
    with serve(env={"VMM_FAKE": "ready-ms=never"}) as daemon:
        secret = "#!/bin/sh\necho \u00e4\n"
        vm = daemon.create("gated", require_attestation=True, user_data=secret)
        assert ask(daemon, vm, "/user-data").status == 503
        for _ in range(2):
            eventually(lambda: daemon.vms()[0]["state"] == "booting", "it does not boot")
            gated = ask(daemon, vm, "/user-data")
            assert gated.status == 503 and gated.headers["Retry-After"] == "2", gated
            quote["nonce"] = value(daemon, vm, "/attest/nonce")
            eventually(lambda: daemon.vms()[0]["state"] == "attesting", "the nonce is not noticed")
            verdict = ask(daemon, vm, "/attest/quote", "POST", json.dumps(quote))
            assert verdict.status == 200 and verdict.headers["Content-Type"] == "application/json", verdict
            assert verdict.json["verified"] and verdict.json["user_data_released"], verdict
            assert value(daemon, vm, "/user-data") == secret
            daemon.api("POST", f"/vms/{vm['id']}/stop", status=200)
            assert daemon.request("POST", f"/api/v1/vms/{vm['id']}/start").status == 200
        assert any("quote judged" in line and "stage=initrd" in line and "user_data_released=true" in line
                   for line in daemon.log)
        assert secret.splitlines()[1] not in "\n".join(daemon.log)
        plain = daemon.create("plain", require_attestation=False)
        assert ask(daemon, plain, "/user-data").status == 204


def test_report():
    with serve() as daemon:
        vm = daemon.create("one")
        report = {"mediaType": "application/vnd.io.systemd.report", "metrics": [{"name": "x", "value": 1}]}
        assert daemon.api("GET", f"/vms/{vm['id']}/report").status == 404
        assert ask(daemon, vm, "/report", "POST", json.dumps(report)).status == 204
        assert daemon.api("GET", f"/vms/{vm['id']}/report", status=200).json == report
        assert f'vm_guest_x{{vm="{vm["id"]}"' in daemon.request("GET", "/metrics").body.decode()
        entries = [{"name": f"n{i}", "value": i} for i in range(50000)]
        large = json.dumps({"metrics": entries})
        assert ask(daemon, vm, "/report", "POST", large).status == 204
        bad = ask(daemon, vm, "/report", "POST", large[:-1])
        assert (bad.status, bad.body) in ((400, b"report is not valid JSON"), (503, b"too many requests")), bad
        stored = os.path.join(daemon.state, "vms", vm["id"], "report.json")
        assert os.stat(stored).st_mode & 0o777 == 0o600


# --- life ---

def test_restart():
    folder = tempfile.mkdtemp(prefix="vmm-", dir="/tmp")
    try:
        with serve(folder=folder) as daemon:
            vm = daemon.api("POST", "/vms", {"name": "one", "require_attestation": False, "user_data": "x"}, 201).json
            path = socket_of(daemon, vm)
            assert value(daemon, vm, "/user-data") == "x"
        assert not os.path.exists(path)
        killed = serve(folder=folder).start()
        try:
            assert value(killed, vm, "/hostname") == "one"
            killed.process.kill()
            killed.wait()
            assert os.path.exists(path)
        finally:
            killed.clean()
        with serve(folder=folder) as daemon:
            assert value(daemon, vm, "/hostname") == "one"
            assert value(daemon, vm, "/user-data") == "x"
            daemon.api("DELETE", f"/vms/{vm['id']}", status=204)
            assert not os.path.exists(path)
    finally:
        shutil.rmtree(folder)


def test_end():
    """A guest that asks for a file when the daemon ends does not keep it."""
    daemon = serve().start()
    try:
        large_file(daemon)
        vm = daemon.create("one")
        client = dial(daemon, vm)
        client.sendall(f"GET {BASE}/sysupdate/base/large.raw HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        assert client.recv(9) == b"HTTP/1.1 "
        daemon.stop()
        client.close()
    finally:
        daemon.clean()


# --- artifacts ---

def test_large_file():
    with serve() as daemon:
        path = large_file(daemon)
        vm = daemon.create("one")
        with open(path, "rb") as file:
            want = hashlib.file_digest(file, "sha256").hexdigest()
        before, _ = resident(daemon)
        reset_peak(daemon)
        connections = [Connection(daemon, vm) for _ in range(4)]
        digests = []
        for connection in connections:
            connection.request("GET", BASE + "/sysupdate/base/large.raw")
        # One after the other: three of them wait, half read by the kernel, while one is taken.
        for connection in connections:
            answer = connection.getresponse()
            assert answer.status == 200 and int(answer.headers["Content-Length"]) == LARGE
            digest = hashlib.sha256()
            while piece := answer.read(PIECE):
                digest.update(piece)
            digests.append(digest.hexdigest())
            connection.close()
        assert digests == [want] * 4
        _, peak = resident(daemon)
        assert peak - before < 32 * 1024, f"{before} KiB before, {peak} KiB at most"
        print(f"# {4 * LARGE >> 20} MiB sent; {before} KiB resident before, {peak} KiB at most")


def test_ranges():
    """A download in pieces, each on from where the one before it ended."""
    with serve() as daemon:
        path = large_file(daemon)
        vm = daemon.create("one")
        with open(path, "rb") as file:
            want = hashlib.file_digest(file, "sha256").hexdigest()
        digest, at = hashlib.sha256(), 0
        connection = Connection(daemon, vm)
        while at < LARGE:
            last = min(at + 37 * PIECE + 11, LARGE) - 1
            connection.request("GET", BASE + "/sysupdate/base/large.raw", headers={"Range": f"bytes={at}-{last}"})
            answer = connection.getresponse()
            assert answer.status == 206, answer.status
            assert answer.headers["Content-Range"] == f"bytes {at}-{last}/{LARGE}"
            body = answer.read()
            assert len(body) == last + 1 - at
            digest.update(body)
            at = last + 1
        connection.close()
        assert digest.hexdigest() == want
        beyond = ask(daemon, vm, "/sysupdate/base/large.raw", headers={"Range": f"bytes={LARGE}-"})
        assert (beyond.status, beyond.body, beyond.headers["Content-Range"]) == (416, b"", f"bytes */{LARGE}")
        head = ask(daemon, vm, "/sysupdate/base/large.raw", "HEAD")
        assert int(head.headers["Content-Length"]) == LARGE and head.body == b""


def test_curl():
    if shutil.which("curl") is None:
        raise Skip("curl is not installed")
    with serve() as daemon:
        path = large_file(daemon)
        vm = daemon.create("one")
        target = os.path.join(daemon.folder, "taken")
        url = f"http://169.254.169.254{BASE}/sysupdate/base/large.raw"
        curl = ["curl", "--silent", "--show-error", "--fail", "--unix-socket", socket_of(daemon, vm), "--output", target]
        subprocess.run([*curl, "--range", "0-99999999", url], check=True, timeout=DEADLINE)
        assert os.path.getsize(target) == 100000000
        subprocess.run([*curl, "--continue-at", "-", url], check=True, timeout=DEADLINE)
        assert subprocess.run(["cmp", path, target], check=False, timeout=DEADLINE).returncode == 0
        report = os.path.join(daemon.folder, "report")
        write(report, json.dumps({"metrics": [], "padding": "x" * 2000000}))
        subprocess.run(["curl", "--silent", "--fail", "--unix-socket", socket_of(daemon, vm), "--data-binary", "@" + report,
                        f"http://x{BASE}/report"], check=True, timeout=DEADLINE)


# --- greed ---

def served_besides(daemon, vm):
    """Another VM and the API, each by many requests while something hangs."""
    for _ in range(50):
        assert value(daemon, vm, "/hostname") == vm["name"]
        assert daemon.request("GET", "/healthz").body == b"ok"
    assert daemon.api("GET", "/vms", status=200)


def test_slow_heads():
    with serve() as daemon:
        greedy, other = daemon.create("greedy"), daemon.create("other")
        slow = []
        for _ in range(32):
            client = dial(daemon, greedy)
            client.sendall(f"GET {BASE}/hostname HTTP/1.1\r\nX-Slow: ".encode())
            slow.append(client)
        for client in slow:
            client.sendall(b"a")
        served_besides(daemon, other)
        for client in slow:
            assert read_all(client).startswith(b"HTTP/1.1 408 "), "a slow head was waited for"
            client.close()
        assert value(daemon, greedy, "/hostname") == "greedy"


def test_deaf_readers():
    """Guests that ask for large files and never read cost what the limits say, and nobody waits for them."""
    with serve() as daemon:
        large_file(daemon)
        greedy, other = daemon.create("greedy"), daemon.create("other")
        before, _ = resident(daemon)
        deaf = []
        for _ in range(32):
            client = dial(daemon, greedy)
            client.sendall(f"GET {BASE}/sysupdate/base/large.raw HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            deaf.append(client)
        begun = {client.recv(12) for client in deaf}
        assert begun == {b"HTTP/1.1 200", b"HTTP/1.1 503"}, begun
        served_besides(daemon, other)
        now, _ = resident(daemon)
        assert now - before < 16 * 1024, (before, now)
        print(f"# {now - before} KiB for {len(deaf)} clients that do not read")
        for client in deaf:
            client.close()
        eventually(lambda: ask(daemon, greedy, "/hostname").status == 200, "it is not served again")


def connect_without_waiting(path):
    client = socket.socket(socket.AF_UNIX)
    client.setblocking(False)
    try:
        client.connect(path)
    except BlockingIOError:
        client.close()
        return None
    return client


def test_thousand_connections():
    with serve() as daemon:
        greedy, other = daemon.create("greedy"), daemon.create("other")
        clients = [connect_without_waiting(socket_of(daemon, greedy)) for _ in range(1000)]
        held = [client for client in clients if client is not None]
        assert 32 <= len(held) < 1000, len(held)
        served_besides(daemon, other)
        descriptors = os.listdir(f"/proc/{daemon.process.pid}/fd")
        assert len(descriptors) < 200, len(descriptors)
        print(f"# {len(held)} of 1000 connections wait in the kernel or are served, {len(descriptors)} descriptors")
        for client in held:
            client.close()
        eventually(lambda: ask(daemon, greedy, "/hostname").body == b"greedy", "it is not served again")


def test_flood():
    """Requests all at once: answered or refused, and others are served besides."""
    with serve() as daemon:
        greedy, other = daemon.create("greedy"), daemon.create("other")
        count = 5000
        request = f"GET {BASE}/hostname HTTP/1.1\r\nHost: x\r\n".encode()
        data = (request + b"\r\n") * (count - 1) + request + b"Connection: close\r\n\r\n"
        client = dial(daemon, greedy)
        sender = threading.Thread(target=client.sendall, args=(data,))
        sender.start()
        served_besides(daemon, other)
        answers = read_all(client)
        sender.join()
        client.close()
        answered, refused = answers.count(b"HTTP/1.1 200 "), answers.count(b"HTTP/1.1 503 ")
        assert answered + refused == count and answered >= 199, (answered, refused)
        print(f"# {answered} answered, {refused} refused")


def test_bodies():
    """More large bodies at once than a VM may have: some are refused, none is kept."""
    with serve() as daemon:
        greedy, other = daemon.create("greedy"), daemon.create("other")
        before, _ = resident(daemon)
        clients = []
        for _ in range(6):
            client = dial(daemon, greedy)
            client.setblocking(False)
            clients.append(client)
        sent = dict.fromkeys(clients, 0)
        head = f"POST {BASE}/report HTTP/1.1\r\nHost: x\r\nContent-Length: {8 * PIECE}\r\n\r\n".encode()
        data = head + b" " * (7 * PIECE)
        refused = set()
        while pending := [client for client in clients if client not in refused and sent[client] < len(data)]:
            readable, writable, _ = select.select(pending, pending, [], DEADLINE)
            assert readable or writable, "the bodies are not taken"
            for client in readable:
                assert client.recv(12) == b"HTTP/1.1 503"
                refused.add(client)
            for client in set(writable) - refused:
                try:
                    sent[client] += client.send(data[sent[client]:sent[client] + 65536])
                except (BrokenPipeError, ConnectionResetError):
                    refused.add(client)
        assert 0 < len(refused) < len(clients), len(refused)
        served_besides(daemon, other)
        now, _ = resident(daemon)
        assert now - before < 64 * 1024, (before, now)
        print(f"# {len(refused)} of {len(clients)} bodies refused, {now - before} KiB held")
        for client in clients:
            client.close()


run([test for name, test in list(globals().items()) if name.startswith("test_")])
