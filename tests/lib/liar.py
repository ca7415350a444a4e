#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""QEMU, swtpm, swtpm_setup, vhost-device-vsock and vmm-monitor, by the name that it is run by: each keeps to its protocol
but for the one lie that the VM's name tells, "DOOR-LIE". It goes on until it is ended."""

import json
import os
import pathlib
import re
import socket
import sys
import threading
import time

ROLE = {"qemu-system-x86_64": "qmp", "swtpm": "tpm", "vmm-monitor": "journal"}.get(os.path.basename(sys.argv[0]), "")
GREETING = b'{"QMP": {"version": {"qemu": {"micro": 0, "minor": 0, "major": 9}, "package": ""}, "capabilities": []}}\r\n'
HELLO = b'{"vmm-monitor": 1}\n'
LATE = 1


def folder():
    words = [os.getcwd() + "/", *sys.argv]
    return next(found.group(1) for word in words if (found := re.search(r"(/[^,=]*/vms/[0-9a-f]+)", word)))


def lie():
    with open(folder() + "/vm.json", encoding="utf-8") as file:
        door, _, what = json.load(file)["name"].partition("-")
    return what if door == ROLE else ""


def serve(path, talk):
    """talk(connection) for each client, until it returns."""
    pathlib.Path(path).unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()

    def one(connection):
        try:
            talk(connection)
        except OSError:
            pass
        connection.close()

    def accept():
        while True:
            threading.Thread(target=one, args=(listener.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()


def stay():
    while True:
        time.sleep(3600)


def flood(connection, chunk):
    while True:
        connection.sendall(chunk)


def event(name, data):
    return json.dumps({"timestamp": {"seconds": 1, "microseconds": 0}, "event": name, "data": data}).encode() + b"\r\n"


def answer(number, what):
    return json.dumps({"return": what, "id": number}).encode() + b"\r\n"


def greet(connection, what):
    if what == "never":
        stay()
    elif what == "late":
        time.sleep(LATE)
    elif what == "torn":
        connection.sendall(GREETING[:40])
        return False
    elif what == "oversized":
        flood(connection, b"x" * 65536)
    elif what == "elsewhere":
        connection.sendall(b"220 mail.example.net ESMTP\r\n")
        stay()
    elif what == "early":
        connection.sendall(answer(1, {}) * 3)
    elif what == "events":
        connection.sendall(GREETING)
        flood(connection, event("VSERPORT_CHANGE", {"id": "x" * 500}) * 64)
    connection.sendall(GREETING)
    return True


def qmp(connection, what):
    if not greet(connection, what):
        return
    for line in connection.makefile("rb"):
        request = json.loads(line)
        command, number = request["execute"], request.get("id")
        if command == "cont":
            if what == "mute":
                stay()
            elif what == "leaving":
                return
            elif what == "halved":
                connection.sendall(answer(number, {})[:9])
                return
            elif what == "deep":
                connection.sendall(b"[" * 30000 + b"\r\n")
                stay()
            elif what == "others":
                connection.sendall(answer("somebody else's", {}) + answer(987654, {}))
                stay()
            elif what == "refusing":
                connection.sendall(json.dumps({"error": {"class": "GenericError", "desc": "\x1b[2J" + "no" * 9000},
                                               "id": number}).encode() + b"\r\n")
                continue
        elif what == "twice":
            connection.sendall(answer(number, {}))
        connection.sendall(answer(number, {"status": "running", "running": True}
                                  if command == "query-status" else {}))
        if command in ("cont", "quit"):
            connection.sendall(event("SHUTDOWN", {"guest": command == "cont", "reason": "guest-reset"}))
            connection.shutdown(socket.SHUT_WR)
            os._exit(0)


def tpm(connection, what):
    connection.recv(4)
    if what == "never":
        stay()
    elif what == "late":
        time.sleep(LATE / 4)
    elif what == "torn":
        connection.sendall(b"\0\0\0")
        return
    elif what == "oversized":
        flood(connection, b"\0" * 65536)
    elif what == "dribbling":
        for _ in range(7):
            connection.sendall(b"\0")
            time.sleep(0.05)
        stay()
    connection.sendall(bytes(8))
    stay()


def journal(connection, what):
    """The first words, what is asked for, then entries: some come true, some are not to be believed."""
    if what == "never":
        stay()
    elif what == "late":
        time.sleep(LATE)
    elif what == "torn":
        connection.sendall(HELLO[:8])
        return
    elif what == "oversized":
        flood(connection, b"y" * 65536)
    elif what == "elsewhere":
        connection.sendall(GREETING)
        stay()
    elif what == "newer":
        connection.sendall(b'{"vmm-monitor": 99}\n')
        stay()
    connection.sendall(HELLO)
    connection.recv(4096)
    if what == "backwards":
        connection.sendall(b'{"seq": 9, "event": "status"}\n{"seq": 3, "event": "status"}\n')
    elif what == "huge":
        connection.sendall(b'{"seq": 1, "event": "status", "data": {"text": "')
        flood(connection, b"z" * 65536)
    stay()


def qemu(what):
    for at, word in enumerate(sys.argv):
        if word == "-qmp":
            path = sys.argv[at + 1].removeprefix("unix:").partition(",server")[0]
            serve(path, lambda connection: qmp(connection, what))
    stay()


def main():
    name = os.path.basename(sys.argv[0])
    if "--version" in sys.argv or "-version" in sys.argv:
        print(f"QEMU emulator version 9.0.0, TPM emulator version 0.9.0 ({name} version 1.0)")
    elif "help" in sys.argv:
        print('name "vhost-user-vsock-pci", bus virtio-bus')
    elif name == "swtpm_setup":
        pathlib.Path("tpm2-00.permall").write_bytes(b"state")
    elif name == "vhost-device-vsock":
        serve(sys.argv[sys.argv.index("--socket") + 1], lambda connection: stay())
        stay()
    elif name == "swtpm":
        what = lie()
        serve(folder() + "/" + next(word for word in sys.argv if "unixio" in word).rpartition("path=")[2]
              .removeprefix(folder() + "/"), lambda connection: tpm(connection, what))
        stay()
    elif name == "vmm-monitor":
        what = lie()
        serve(folder() + "/monitor.sock", lambda connection: journal(connection, what))
        stay()
    else:
        qemu(lie())


main()
