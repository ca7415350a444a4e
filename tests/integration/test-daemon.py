#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""The daemon as a process: requests of every kind, bad surroundings, bad callers, its start and its end."""

import concurrent.futures
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile

from daemon import DEADLINE, Daemon, Skip, eventually, read_all, run, write

PROGRAM, PLUGINS = sys.argv[1], sys.argv[2]
OTHER_UID = 65534


def serve(*flags, **more):
    return Daemon(PROGRAM, PLUGINS, *flags, **more)


def refused(answer, status, code, text):
    assert answer.status == status, answer
    assert answer.headers["Content-Type"] == "application/json", answer.headers
    assert answer.error["code"] == code, answer
    assert text in answer.error["message"], answer


def leaves_nothing(daemon):
    """No VM, no folder of one, no lease."""
    assert daemon.vms() == []
    folder = os.path.join(daemon.state_root(), "vms")
    assert os.listdir(folder) == [], os.listdir(folder)
    for network in daemon.api("GET", "/networks", status=200).json:
        assert network["leases"] == [], network


# --- use ---

def test_use():
    with serve() as daemon:
        assert daemon.request("GET", "/healthz").body == b"ok"
        assert daemon.request("GET", "/readyz").body == b"ok"
        assert daemon.request("GET", "/metrics").status == 200
        assert daemon.request("GET", "/nothing").body == b"404 page not found\n"
        host = daemon.api("GET", "/host", status=200).json
        assert {row["kind"] for row in host["plugins"] if row["chosen"]} == {
            "launcher", "network", "storage", "attestor"}
        assert daemon.api("GET", "/images", status=200).json[0]["id"] == "demo"
        vm = daemon.create("web")
        assert vm["state"] == "installing" and vm["owner"] == f"uid:{os.geteuid()}"
        refused(daemon.api("POST", "/vms", {"name": "web"}), 409, "conflict", "in use by " + vm["id"])
        ready = daemon.api("POST", "/vms", {"name": "two", "require_attestation": False}, 201).json
        assert ready["state"] == "ready" and ready["readyAt"]
        assert [row["name"] for row in daemon.vms()] == ["web", "two"]
        for row in daemon.vms():
            daemon.api("DELETE", "/vms/" + row["id"], status=204)
        leaves_nothing(daemon)


def test_thousand_vms():
    with serve("--network-subnet=10.0.0.0/16") as daemon:
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            made = list(pool.map(lambda i: daemon.create(f"vm-{i}"), range(1000)))
            assert len({vm["id"] for vm in made}) == 1000
            assert len({vm["ip"] for vm in made}) == 1000
            assert {vm["id"] for vm in daemon.vms()} == {vm["id"] for vm in made}
            for answer in pool.map(lambda vm: daemon.api("DELETE", "/vms/" + vm["id"]), made):
                assert answer.status == 204, answer
        leaves_nothing(daemon)


def test_restart():
    folder = tempfile.mkdtemp(prefix="vmm-", dir="/tmp")
    try:
        with serve(folder=folder) as daemon:
            ready = daemon.api("POST", "/vms", {"name": "one", "require_attestation": False}, 201).json
            daemon.api("POST", "/networks", {"name": "lan", "cidr": "10.9.0.0/24"}, 201)
        with serve(folder=folder) as daemon:
            (vm,) = daemon.vms()
            assert vm["id"] == ready["id"] and vm["ip"] == ready["ip"]
            assert vm["state"] == "stopped", vm
            assert [row["spec"]["name"] for row in daemon.api("GET", "/networks").json] == ["default", "lan"]
            daemon.api("DELETE", "/vms/" + vm["id"], status=204)
            leaves_nothing(daemon)
    finally:
        shutil.rmtree(folder)


def test_unix_socket():
    with serve() as daemon:
        assert os.stat(daemon.socket).st_mode & 0o7777 == 0o600
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(daemon.socket)
            client.sendall(b"GET /api/v1/vms HTTP/1.0\r\n\r\n")
            assert read_all(client).startswith(b"HTTP/1.1 200 ")


# --- hostile requests ---

GET = b"GET /api/v1/vms HTTP/1.1\r\nHost: localhost\r\n"
POST = b"POST /api/v1/vms HTTP/1.1\r\nHost: localhost\r\n"
VM = b'{"name": "smuggled", "wait_for": "none", "require_attestation": false}'
INNER = POST + b"Content-Length: %d\r\n\r\n" % len(VM) + VM

SMUGGLING = [
    POST + b"Content-Length: 0\r\nContent-Length: %d\r\n\r\n" % len(INNER) + INNER,
    POST + b"Content-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" % (len(INNER) + 5) + INNER,
    POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n" + INNER,
    POST + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n" + INNER,
    POST + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + INNER,
    POST + b"Transfer-Encoding\r\n : chunked\r\n\r\n0\r\n\r\n" + INNER,
    POST + b"X: y\nContent-Length: 0\r\n\r\n" + INNER,
    POST + b"X: y\rContent-Length: 0\r\n\r\n" + INNER,
    POST + b"Content-Length: 0, 7\r\n\r\n" + INNER,
    POST + b"Content-Length: 0x0\r\n\r\n" + INNER,
    POST + b"Transfer-Encoding: chunked\r\n\r\n0;\n\r\n\r\n" + INNER,
    POST + b"Transfer-Encoding: chunked\r\n\r\n00000000000000000\r\n\r\n" + INNER,
    POST + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\n0\r\n\r\n" + INNER,
    b"POST http://elsewhere/api/v1/vms HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n" + INNER,
    b"GET /api/v1/vms HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n" + INNER,
    b"GET /api/v1/vms HTTP/1.1\r\n\r\n" + INNER,
    b"GET /api/v1/vms\r\n\r\n" + INNER,
]


def test_smuggling():
    with serve() as daemon:
        for data in SMUGGLING:
            answer = daemon.raw(data)
            assert answer.startswith(b"HTTP/1.1 400 "), (data, answer)
            assert answer.count(b"HTTP/1.1") == 1, (data, answer)
            assert b"Connection: close" in answer and b'"invalid_request"' in answer, answer
        leaves_nothing(daemon)


BODIES = [
    ("", "body: "), ("{", "body: "), ("[]", "body: "), ("nul", "body: "), ("{}{}", "body: "), ("'a'", "body: "),
    ('{"name": 7}', "name"), ('{"name": "a", "cpus": "2"}', "cpus"), ('{"name": "a", "cpus": 1.5}', "cpus"),
    ('{"name": "a", "cpus": 1e400}', "body: "), ('{"name": "a", "cpus": 9223372036854775808}', "body: "),
    ('{"name": "a", "bogus": 1}', 'json: unknown field "bogus"'), ('{"name": "a", "metadata": {"b": 1}}', "metadata"),
    ('{"name": "a", "name": "b"}', "name"), ('{"name": "a", "wait_for": "later"}', "wait"),
    ('{"name": "a", "require_attestation": 0}', "require_attestation"),
    ('{"name": "a", "ssh_authorized_keys": "k"}', "ssh_authorized_keys"),
    ('{"name": "a", "ssh_authorized_keys": ["a\\nb"]}', "single lines"), ('{"name": "a", "cpus": -1}', "cpus"),
    ('{"name": "a", "memory_mib": 1}', "memoryMiB"), ('{"name": "a", "disk_gib": 5000}', "diskGiB"),
    ('{"name": "a", "image": "none"}', 'image "none"'), ('{"name": "a", "network": "none"}', 'network "none"'),
    ('{"name": "a", "kubernetes_version": "9.9"}', "kubernetes"), ('{"name": "a", "hostname": "a.b"}', "hostname"),
    ('{"name": "a", "metadata": {"a/b": "c"}}', "metadata key"),
    (b'{"name": "\xff\xfe"}', "body: "), (b'{"name": "\xed\xa0\x80"}', "body: "), (b"\xff\xfe{\x00}\x00", "body: "),
    ("[" * 100000, "body: "), ('{"a":' * 100000, "body: "), ("[" * 50000 + "]" * 50000, "body: "),
    (b'{"name": "' + b"a" * (8 * 1024 * 1024) + b'"}', "body: http: request body too large"),
]


def test_bodies():
    with serve() as daemon:
        for body, text in BODIES:
            refused(daemon.api("POST", "/vms", body), 400, "invalid_request", text)
        leaves_nothing(daemon)
        assert daemon.process.poll() is None


def test_echoes():
    """What is wrong is shown, not sent back whole: one character may become six."""
    with serve() as daemon:
        for body in ({"name": "a", "image": "<" * 4000000}, {"name": "a", "network": "<" * 4000000},
                     {"name": "a", "metadata": {"/" * 4000000: ""}}):
            answer = daemon.api("POST", "/vms", body)
            refused(answer, 400, "invalid_request", "invalid request: ")
            assert len(answer.body) < 2000000, len(answer.body)
        refused(daemon.api("POST", "/networks", {"name": "<" * 4000000, "cidr": "10.0.0.0/24"}), 400, "invalid_request", "")


def test_large_bodies():
    large = b" " * (8 * 1024 * 1024 + 1)
    with serve() as daemon:
        for path in ("/vms", "/networks", "/vms/0a0a0a0a/exec", "/vms/0a0a0a0a/forward"):
            refused(daemon.api("POST", path, large), 400, "invalid_request", "request body too large")
        chunked = daemon.raw(POST + b"Transfer-Encoding: chunked\r\n\r\n" +
                             b"100000\r\n" * 1 + b" " * 0x100000 + b"\r\n" +
                             (b"100000\r\n" + b" " * 0x100000 + b"\r\n") * 8 + b"0\r\n\r\n")
        assert chunked.startswith(b"HTTP/1.1 400 ") and b"request body too large" in chunked, chunked[:300]
        promised = daemon.raw(POST + b"Content-Length: 999999999999\r\n\r\n")
        assert promised.startswith(b"HTTP/1.1 400 ") and b"request body too large" in promised, promised
        leaves_nothing(daemon)


def test_many_large_bodies():
    """Together they have a limit; what is small passes, and there is room again afterwards."""
    start = POST + b"Content-Length: %d\r\n\r\n" % (8 * 1024 * 1024) + b" " * (8 * 1024 * 1024 - 1)
    with serve() as daemon:
        clients = []
        answers = []
        for _ in range(36):
            clients.append(daemon.connect())
            try:
                clients[-1].sendall(start)
            except (BrokenPipeError, ConnectionResetError):
                pass
            readable, _, _ = select.select(clients[-1:], [], [], 0)
            answers += [client.recv(1000) for client in readable]
        eventually(lambda: answers or select.select(clients, [], [], 0)[0], "all are taken")
        answers += [client.recv(1000) for client in select.select(clients, [], [], 0)[0]]
        assert all(b"HTTP/1.1 503 " in answer and b"too many large requests" in answer for answer in answers if answer)
        assert any(answers) and daemon.create("small")
        for client in clients:
            client.close()
        large = {"name": "large", "user_data": "x" * 8000000}
        eventually(lambda: daemon.api("POST", "/vms", {**large, "require_attestation": False}).status == 201, "no room")


NAMES = ["", "-", "a-", "-a", "A", "a.b", "a/b", "../a", "a b", "a\n", "\u00e4", "a" * 64, "a'b", 'a"b', "a,b",
         "a=b", "$(a)", "%s%n"]
CIDRS = ["", "10.0.0.0", "10.0.0.0/", "10.0.0.0/33", "10.0.0.0/8", "10.0.0.0/30", "10.0.0/24", "010.0.0.0/24", "a/24",
         "fd00::/64", "169.254.0.0/16", "169.254.169.0/24", "10.0.0.0/24 ", "10.0.0.0/24/24", "10.0.0.0/-1", "10.0.0.0/ 24"]


def test_names_and_subnets():
    with serve() as daemon:
        for name in NAMES:
            refused(daemon.api("POST", "/vms", {"name": name}), 400, "invalid_request", "name")
            refused(daemon.api("POST", "/networks", {"name": name, "cidr": "10.0.0.0/24"}), 400, "invalid_request", "")
        for cidr in CIDRS:
            refused(daemon.api("POST", "/networks", {"name": "lan", "cidr": cidr}), 400, "invalid_request", "cidr")
        for path in ("/vms/..%2f..%2fetc", "/networks/%00", "/images/%2e%2e", "/vms/" + "a" * 5000, "/vms/%"):
            assert daemon.api("GET", path).status in (400, 404), path
        assert len(daemon.api("GET", "/networks").json) == 1
        leaves_nothing(daemon)


def test_slow_clients():
    with serve() as daemon:
        starts = [b"", b"GET /api", GET, POST + b"X: y\r\n"]
        clients = [daemon.connect() for _ in starts]
        for client, start in zip(clients, starts):
            client.sendall(start)
        # They hold nobody up.
        assert daemon.vms() == []
        for client, start in zip(clients, starts):
            answer = read_all(client)
            assert answer == b"" if start == b"" else answer.startswith(b"HTTP/1.1 408 "), (start, answer)
            client.close()


def test_many_connections():
    with serve() as daemon:
        clients = [daemon.connect() for _ in range(600)]
        refusals = []
        while not refusals:
            readable, _, _ = select.select(clients, [], [], DEADLINE)
            assert readable, "nobody is refused"
            refusals = [text for text in (client.recv(1000) for client in readable) if text]
        assert refusals[0].startswith(b"HTTP/1.1 503 "), refusals
        for client in clients:
            client.close()
        eventually(lambda: daemon.request("GET", "/healthz").status == 200, "no room again")


# --- bad surroundings ---

def test_image_parts():
    folder = tempfile.mkdtemp(prefix="vmm-", dir="/tmp")
    images = os.path.join(folder, "images")
    for name in ("alone_1.0.efi", "nouki_1.0.raw", "noversion.efi", "noversion.raw", "_1.efi", "_1.raw", "a_.efi", "a_.raw"):
        write(os.path.join(images, name), "x")
    os.makedirs(os.path.join(images, "folder_1.0.efi"))
    write(os.path.join(images, "policy.json"), "{")
    try:
        with serve(folder=folder, images=False) as daemon:
            assert "alone" not in daemon.api("GET", "/images", status=200).body.decode()
            for image in ("alone", "alone_1.0", "nouki_1.0", "noversion", "", "../images/alone_1.0"):
                refused(daemon.api("POST", "/vms", {"name": "a", "image": image}), 400, "invalid_request", "image")
            leaves_nothing(daemon)
    finally:
        shutil.rmtree(folder)


def need_root():
    if os.geteuid() != 0:
        raise Skip("only root can mount and change its user")


def in_mount_namespace(state, options):
    """A wrapper that gives the daemon a file system of its own for its state."""
    need_root()
    script = f'mount -t tmpfs -o {options} tmpfs "{state}" && exec "$@"'
    wrapper = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh"]
    probe = subprocess.run([*wrapper, "true"], capture_output=True, check=False)
    if probe.returncode != 0:
        raise Skip("no mount namespaces here: " + probe.stderr.decode().strip())
    return wrapper


def test_full_disk():
    folder = tempfile.mkdtemp(prefix="vmm-", dir="/tmp")
    state = os.path.join(folder, "state")
    os.mkdir(state)
    try:
        wrapper = in_mount_namespace(state, "size=512k")
        with serve(folder=folder, wrapper=wrapper) as daemon:
            made = []
            answer = None
            for i in range(200):
                answer = daemon.api("POST", "/vms", {"name": f"vm-{i}", "wait_for": "none",
                                                     "require_attestation": False})
                if answer.status != 201:
                    break
                made.append(answer.json["id"])
            assert answer.status >= 500 and "space" in answer.error["message"].lower(), answer
            assert {vm["id"] for vm in daemon.vms()} == set(made)
            assert set(os.listdir(os.path.join(daemon.state_root(), "vms"))) == set(made)
            for vm in made:
                daemon.api("DELETE", "/vms/" + vm, status=204)
            leaves_nothing(daemon)
            daemon.create("again")
    finally:
        shutil.rmtree(folder)


def test_file_size_limit():
    """A file that becomes larger than allowed is an error of that call; the signal ends nobody."""
    wrapper = ("sh", "-c", 'ulimit -f 1; exec "$@"', "sh")
    with serve(wrapper=wrapper) as daemon:
        answer = daemon.api("POST", "/vms", {"name": "a", "require_attestation": False})
        assert answer.status == 500 and "too large" in answer.error["message"], answer
        assert daemon.vms() == [] and os.listdir(daemon.state + "/vms") == []
        assert not [name for name in os.listdir(daemon.state) if name.startswith(".")]


def test_read_only_state():
    folder = tempfile.mkdtemp(prefix="vmm-", dir="/tmp")
    state = os.path.join(folder, "state")
    os.mkdir(state)
    try:
        daemon = serve(folder=folder, wrapper=in_mount_namespace(state, "ro"))
        status, log = daemon.wait()
        daemon.clean()
        assert status == 1 and "\nError: " in "\n" + log and state in log.splitlines()[-1], log

        wrapper = in_mount_namespace(state, "size=8m")
        with serve(folder=folder, wrapper=wrapper) as daemon:
            daemon.create("before", wait_for="ready")
            vms = os.path.join(state, "vms")
            inside = ["nsenter", "-t", str(daemon.process.pid), "-m"]
            subprocess.run([*inside, "mount", "--bind", vms, vms], check=True)
            again = [*inside, "mount", "-o", "remount,bind,ro", vms]
            eventually(lambda: subprocess.run(again, check=False).returncode == 0, "it stays writable")
            answer = daemon.api("POST", "/vms", {"name": "during"})
            assert answer.status >= 500 and "ead-only" in answer.error["message"], answer
            assert [vm["name"] for vm in daemon.vms()] == ["before"]
            subprocess.run([*inside, "umount", vms], check=True)
            daemon.create("after")
    finally:
        shutil.rmtree(folder)


def test_second_daemon():
    with serve() as daemon:
        second = serve("--listen-unix=", folder=daemon.folder)
        status, log = second.wait()
        second.clean()
        assert status == 1 and "Error: " in log and "in use" in log, log
        other = serve("--state-dir=" + os.path.join(daemon.folder, "other"), folder=daemon.folder)
        status, log = other.wait()
        other.clean()
        assert status == 1 and "--listen-unix: another program answers on " + daemon.socket in log, log
        assert os.path.exists(daemon.socket)
        assert daemon.vms() == []


def test_failing_steps():
    for call in ("storage.acquire", "network.attach", "launcher.start:tpm", "launcher.start:qemu", "launcher.start:monitor"):
        with serve(env={"VMM_FAKE": "fail=" + call}) as daemon:
            answer = daemon.api("POST", "/vms", {"name": "a", "require_attestation": False, "wait_for": "none"})
            assert answer.status >= 400, (call, answer)
            leaves_nothing(daemon)


def test_without_plugins():
    with serve(plugin_dir="/nonexistent") as daemon:
        host = daemon.api("GET", "/host", status=200).json
        assert host["ready"] is False
        refused(daemon.api("POST", "/networks", {"name": "lan", "cidr": "10.0.0.0/24"}), 501, "unsupported", "unsupported: ")
        assert daemon.api("POST", "/vms", {"name": "a"}).status in (400, 501)
        assert daemon.vms() == []
        assert any("no plugin can run processes" in line for line in daemon.log)
        assert any("no plugin verifies quotes" in line for line in daemon.log)


# --- bad callers ---

def as_other_user(*command):
    need_root()
    return subprocess.run(["setpriv", "--reuid", str(OTHER_UID), "--regid", str(OTHER_UID), "--clear-groups", *command],
                          capture_output=True, check=True, timeout=DEADLINE).stdout


CLIENT = """
import socket, sys
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
s.sendall(sys.argv[2].encode().decode("unicode_escape").encode("latin1"))
if len(sys.argv) > 3:
    s.shutdown(socket.SHUT_WR)
    sys.exit()
while data := s.recv(65536):
    sys.stdout.buffer.write(data)
"""


def ask_as_other(daemon, data, *more):
    text = data.decode("latin1").encode("unicode_escape").decode()
    return as_other_user(sys.executable, "-c", CLIENT, str(daemon.port), text, *more)


def test_other_user():
    with serve() as daemon:
        answer = ask_as_other(daemon, INNER)
        assert answer.startswith(b"HTTP/1.1 403 ") and b'"forbidden"' in answer, answer
        assert b"--allow-local-users" in answer and b"Connection: close" in answer, answer
        for path in (b"/api/v1/vms", b"/api/v1/openapi.yaml", b"/metrics", b"/api/v1/nothing"):
            answer = ask_as_other(daemon, b"GET " + path + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 403 "), answer
        for path in (b"/healthz", b"/readyz"):
            answer = ask_as_other(daemon, b"GET " + path + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert answer.endswith(b"\r\n\r\nok"), answer
        leaves_nothing(daemon)


def test_other_user_who_leaves():
    """Sent, half-closed and gone before the daemon looks: the kernel shows such a socket as root's."""
    with serve() as daemon:
        before = len(daemon.log)
        daemon.process.send_signal(signal.SIGSTOP)
        try:
            for _ in range(5):
                ask_as_other(daemon, INNER, "leave")
        finally:
            daemon.process.send_signal(signal.SIGCONT)
        eventually(lambda: sum("request refused" in line for line in daemon.log[before:]) >= 5, "not all were looked at")
        leaves_nothing(daemon)


def test_user_who_leaves():
    with serve() as daemon:
        daemon.process.send_signal(signal.SIGSTOP)
        try:
            with daemon.connect() as client:
                client.sendall(INNER)
        finally:
            daemon.process.send_signal(signal.SIGCONT)
        eventually(lambda: any("request refused" in line for line in daemon.log), "it was not looked at")
        leaves_nothing(daemon)


def test_allowed_users():
    with serve("--allow-local-users", "--allow-metrics") as daemon:
        answer = ask_as_other(daemon, INNER.replace(b"Host: localhost", b"Host: localhost\r\nConnection: close"))
        assert answer.startswith(b"HTTP/1.1 201 "), answer
        assert daemon.vms()[0]["owner"] == f"uid:{OTHER_UID}"
        assert daemon.request("GET", "/metrics").status == 200


def test_cross_site():
    with serve() as daemon:
        for headers in ({"Host": "evil.example"}, {"Host": f"evil.example:{daemon.port}"}, {"Origin": "http://evil.example"},
                        {"Origin": "null"}, {"Origin": f"http://127.0.0.1.evil.example:{daemon.port}"}):
            refused(daemon.request("POST", "/api/v1/vms", VM, headers), 403, "forbidden", "forbidden: ")
        leaves_nothing(daemon)


# --- start and end ---

def test_start_errors():
    cases = [
        (["--bogus"], "Unknown option --bogus"),
        (["--launcher=nothing"], '--launcher: "nothing" is not one of [auto fake]'),
        (["--stop-timeout=x"], "--stop-timeout: "),
        (["--network-subnet=10.0.0.0/31"], "--network-subnet: "),
        (["--listen=0.0.0.0:0"], "--allow-anonymous"),
        (["--listen=1.2.3.4:5"], "--listen: "),
        (["--listen=127.0.0.1:1:1"], "--listen: "),
        (["--config=/nonexistent"], "/nonexistent"),
        (["--state-dir=/proc/nothing"], "--state-dir: create /proc/nothing: No"),
        (["--storage=fake"], "--storage: unsupported: fake storage unavailable: told so", {"VMM_FAKE": "unavailable=storage"}),
    ]
    for flags, text, *env in cases:
        daemon = serve(*flags, env=env[0] if env else None)
        status, log = daemon.wait()
        errors = [line for line in log.splitlines() if line.startswith("Error: ")]
        try:
            assert status == 1, (flags, status, log)
            assert len(errors) == 1 and text in errors[0], (flags, log)
            assert not os.path.exists(daemon.socket)
        finally:
            daemon.clean()


def test_port_in_use():
    with serve() as daemon:
        second = serve(f"--listen=127.0.0.1:{daemon.port}")
        status, log = second.wait()
        try:
            assert status == 1 and f"Error: listen on 127.0.0.1:{daemon.port}: " in log, log
            assert "choose another one with --listen" in log, log
            assert not os.path.exists(second.socket)
        finally:
            second.clean()


def test_stop_while_waiting():
    with serve(env={"VMM_FAKE": "ready-ms=never"}) as daemon:
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(daemon.api, "POST", "/vms", {"name": "a", "require_attestation": False})
            eventually(lambda: [vm for vm in daemon.vms() if vm["state"] == "booting"], "the VM does not come")
            vm = daemon.vms()[0]["id"]
            idle = daemon.connect()
            daemon.process.send_signal(signal.SIGTERM)
            answer = waiting.result(DEADLINE)
            refused(answer, 409, "conflict", f"conflict: vm-manager is shutting down; vm {vm} is ")
            assert read_all(idle) == b""
            idle.close()
            assert daemon.process.wait(DEADLINE) == 0


def test_service_manager():
    """What Type=notify waits for, and in which order."""
    if "systemd" not in sys.argv[3:]:
        raise Skip("built without libsystemd")
    folder = tempfile.mkdtemp(prefix="vmm-", dir="/tmp")
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.settimeout(DEADLINE)
            manager.bind(os.path.join(folder, "notify"))
            with serve(env={"NOTIFY_SOCKET": os.path.join(folder, "notify")}) as daemon:
                assert manager.recv(100) == b"READY=1"
                assert daemon.request("GET", "/readyz").status == 200
            assert manager.recv(100) == b"STOPPING=1"
    finally:
        shutil.rmtree(folder)


def catches(daemon, number):
    with open(f"/proc/{daemon.process.pid}/status", encoding="ascii") as file:
        mask = [line.split()[1] for line in file if line.startswith("SigCgt")][0]
    return int(mask, 16) >> (number - 1) & 1


def test_signal_while_loading():
    """A backend that hangs does not keep a daemon that is told to stop."""
    daemon = serve(env={"VMM_FAKE": "hang=network.open:default"})
    try:
        eventually(lambda: catches(daemon, signal.SIGTERM), "the daemon does not start")
        daemon.process.send_signal(signal.SIGTERM)
        status, log = daemon.wait()
        assert status == 0 and "what was loading did not end in time" in log, log
    finally:
        daemon.clean()


def test_second_signal():
    daemon = serve(env={"VMM_FAKE": "powerdown=ignore,quit=ignore"}).start()
    try:
        daemon.api("POST", "/vms", {"name": "a", "require_attestation": False}, 201)
        daemon.process.send_signal(signal.SIGINT)
        eventually(lambda: any("msg=stopping" in line for line in daemon.log), "the signal is not seen")
        daemon.process.send_signal(signal.SIGINT)
        status, log = daemon.wait()
        assert status == 1, log
    finally:
        daemon.clean()


def test_killed():
    """A daemon that was killed leaves a socket and a lock that do not hinder the next."""
    folder = tempfile.mkdtemp(prefix="vmm-", dir="/tmp")
    try:
        daemon = serve(folder=folder).start()
        daemon.create("kept")
        daemon.process.kill()
        daemon.wait()
        daemon.clean()
        assert os.path.exists(daemon.socket)
        with serve(folder=folder) as daemon:
            assert [vm["name"] for vm in daemon.vms()] == ["kept"]
    finally:
        shutil.rmtree(folder)


def test_configuration_file():
    folder = tempfile.mkdtemp(prefix="vmm-", dir="/tmp")
    path = os.path.join(folder, "vm-manager.conf")
    write(path, "[serve]\nmetrics-enabled=false\nnew-in-another-version=1\n")
    try:
        with serve("--config=" + path, folder=folder) as daemon:
            assert daemon.request("GET", "/metrics").status == 404
            assert any("unknown key in configuration file" in line for line in daemon.log)
        write(path, "[serve]\nboot-timeout=long\n")
        daemon = serve("--config=" + path, folder=folder)
        status, log = daemon.wait()
        daemon.clean()
        assert status == 1 and f"Error: {path}: boot-timeout: \"long\"" in log, log
    finally:
        shutil.rmtree(folder)


def test_plugin_mistakes():
    with serve("--plugin-dir=/nonexistent", "--disable-plugins=nothing") as daemon:
        for mistake in ("there is no such plugin folder", "no plugin module to disable has this name"):
            assert sum(mistake in line for line in daemon.log) == 1, daemon.log
        missing = daemon.api("GET", "/host", status=200).json["missing"]
        assert missing[-3:] == ["launcher plugin", "network plugin", "storage plugin"], missing


def call(*arguments):
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, check=False, timeout=DEADLINE)


UNKNOWN_COMMAND = 'Error: unknown command "nothing" for "vm-manager"; see "vm-manager --help"\n'


def test_command_line():
    assert call("--version").stdout.startswith("vm-manager version ")
    version = call("version")
    assert version.returncode == 0 and len(version.stdout.splitlines()) == 3
    assert "serve" in call().stdout
    wrong = call("nothing")
    assert wrong.returncode == 1 and wrong.stderr == UNKNOWN_COMMAND, wrong
    wrong = call("--nothing")
    assert wrong.returncode == 1 and wrong.stderr.startswith("Error: "), wrong
    shown = call("serve", "--help")
    assert shown.returncode == 0 and "VM_MANAGER_LISTEN_UNIX" in shown.stdout and shown.stderr == ""


run([value for name, value in list(globals().items()) if name.startswith("test_")])
