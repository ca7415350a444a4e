#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""What a guest says, at the exits where somebody reads it: nothing of it may move a terminal's cursor.

'first-vm' shows a VM on a terminal. Here it talks to a daemon that hands on all a hostile guest can say.

Usage: test-guest-data.py FIRST-VM
"""

import http.server
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading

from daemon import run

FIRST_VM = sys.argv[1]
# Titles, clipboards, 8-bit introducers, text that runs backwards, a carriage return that hides what was before it.
HOSTILE = "\x1b]0;owned\x07\x1b[2J\x1b]52;c;b3duZWQ=\x1b\\\x9b31m\u202etxt\u2028\x00\x7f\b\roverwritten"
ID = "12345678"


def program_text(port):
    """A daemon for the eyes of first-vm: says where it listens, and stays."""
    return f"""#!/bin/sh
echo 'time=now level=INFO msg="listening on 127.0.0.1:{port}"' >&2
echo 'time=now level=INFO msg=started' >&2
exec sleep 600
"""


def answers(state, exit_code):
    record = {"id": ID, "name": "first", "image": "demo_1.0.0", "state": state, "booted": False, "accelerator": "tcg",
              "hostname": HOSTILE, "status": HOSTILE, "lastError": HOSTILE}
    return {
        ("GET", "/host"): {"ready": True, "missing": []},
        ("GET", "/vms"): [],
        ("POST", "/vms"): record,
        ("GET", f"/vms/{ID}"): record,
        ("GET", f"/vms/{ID}/console"): {"console": f"{HOSTILE}\n{'x' * 100000}{HOSTILE}\n"},
        ("POST", f"/vms/{ID}/exec"): {"stdout": f"Linux {HOSTILE}\n", "stderr": HOSTILE, "exitCode": exit_code},
    }


def serve(table):
    class Handler(http.server.BaseHTTPRequestHandler):
        def answer(self):
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            path = self.path.removeprefix("/api/v1").split("?")[0]
            body = json.dumps(table[self.command, path]).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = answer

        def log_message(self, *_arguments):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def show(state, exit_code):
    """What first-vm prints, on both streams, and its exit status."""
    with tempfile.TemporaryDirectory(prefix="vmm-", dir="/tmp") as folder, serve(answers(state, exit_code)) as server:
        program = pathlib.Path(folder, "vm-manager")
        program.write_text(program_text(server.server_port), encoding="ascii")
        program.chmod(0o755)
        done = subprocess.run([sys.executable, FIRST_VM, f"--program={program}", "--plugins=", "--helpers=",
                               f"--images={folder}", f"--state={folder}/state", "--once"], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, check=False, env={**os.environ, "PYTHONUTF8": "1"})
        server.shutdown()
    return done.returncode, done.stdout


def expect_clean(output):
    text = output.decode("utf-8")
    found = sorted({c for c in text if not c.isprintable() and c != "\n"})
    assert not found, (found, text)
    assert "overwritten" in text, text


def test_a_ready_guest_on_a_terminal():
    status, output = show("ready", 0)
    assert status == 0, output
    expect_clean(output)
    assert b"it says: Linux" in output, output


def test_a_command_that_fails_on_a_terminal():
    status, output = show("ready", 3)
    assert status == 1, output
    expect_clean(output)
    assert b"the command ended with 3" in output, output


def test_a_failed_guest_on_a_terminal():
    status, output = show("failed", 0)
    assert status == 1, output
    expect_clean(output)
    assert b"is failed" in output, output


run([test_a_ready_guest_on_a_terminal, test_a_command_that_fails_on_a_terminal, test_a_failed_guest_on_a_terminal])
