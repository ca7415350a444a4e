#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""vmm-monitor beside a QEMU that says nothing sleeps.

Usage: test-monitor-idle.py PROGRAM"""

import os
import socket
import subprocess
import sys
import tempfile

from daemon import Skip, eventually, run

PROGRAM = sys.argv[1]


def descriptors(pid):
    folder = f"/proc/{pid}/fd"
    try:
        return {os.readlink(os.path.join(folder, number)) for number in os.listdir(folder)}
    except PermissionError as error:
        raise Skip("the descriptors of a sandboxed process can be seen by root alone") from error


def test_the_main_loop_has_its_own_wake_up():
    """Without it the loop polls whatever has its number now, which may be ready for ever."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        listeners = []
        for name in ("console.sock", "monitor-qmp.sock"):
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(os.path.join(folder, name))
            listener.listen()
            listeners.append(listener)
        process = subprocess.Popen([PROGRAM, "--directory", folder, "--cid", "840294", "--notify-port", "1234567",
                                    "--vsock-socket", os.path.join(folder, "vsock.sock")])
        try:
            for listener in listeners:
                listener.accept()
            eventually(lambda: os.path.exists(os.path.join(folder, "monitor.sock")), "it is ready")
            assert "anon_inode:[eventfd]" in descriptors(process.pid), descriptors(process.pid)
        finally:
            process.terminate()
            process.wait()
            for listener in listeners:
                listener.close()


run([test_the_main_loop_has_its_own_wake_up])
