#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""An sshd that misbehaves, for one connection on stdin; paramiko makes what has to be right.

Once the point that its behaviour is about is reached it makes the file "reached" in its folder, and
"left" when the client has hung up.

Usage: ssh-peer.py BEHAVIOUR FOLDER   (of ssh-guest.py prepare: its host key is there)
"""

import os
import pathlib
import select
import socket
import sys
import threading
import time

GREETING = b"SSH-2.0-OpenSSH_9.9\r\n"

behaviour, folder = sys.argv[1], pathlib.Path(sys.argv[2])
stream = socket.socket(fileno=0)


def reach(name="reached"):
    (folder / name).touch()


def stay_until_left():
    """Reads, so that the client's hanging up is seen, and says nothing."""
    stream.settimeout(None)  # paramiko's is short
    while stream.recv(65536):
        pass


def flood(chunk):
    reach()
    while True:
        stream.sendall(chunk)


def be_raw():
    if behaviour == "silent":
        reach()
        stay_until_left()
    elif behaviour == "closing":
        pass
    elif behaviour == "lines":
        flood(b"Welcome to this host, which has much to say.\r\n" * 100)
    elif behaviour == "line":
        flood(b"x" * 4096)
    elif behaviour == "garbage":
        stream.sendall(GREETING)
        flood(bytes(range(256)) * 64)
    elif behaviour == "huge-packet":
        stream.sendall(GREETING + b"\xff\xff\xff\xf0" + b"\0" * 65536)
        stay_until_left()
    elif behaviour == "greeting":
        stream.sendall(GREETING)
        reach()
        stay_until_left()
    else:
        return False
    return True


def be_server():
    import paramiko
    from paramiko.common import cMSG_CHANNEL_OPEN, cMSG_DISCONNECT, cMSG_GLOBAL_REQUEST, cMSG_IGNORE
    from paramiko.common import cMSG_USERAUTH_INFO_REQUEST, cMSG_USERAUTH_PK_OK, cMSG_CHANNEL_DATA
    from paramiko.common import cMSG_CHANNEL_EXTENDED_DATA, cMSG_USERAUTH_BANNER

    def message(kind, *parts):
        made = paramiko.Message()
        made.add_byte(kind)
        for part in parts:
            if isinstance(part, bool):
                made.add_boolean(part)
            elif isinstance(part, int):
                made.add_int(part)
            else:
                made.add_string(part)
        return made

    def stall():
        """In paramiko's thread, which then answers nothing any more."""
        reach()
        stay_until_left()
        reach("left")
        os._exit(0)

    def request(channel, *parts):
        transport._send_message(message(paramiko.common.cMSG_CHANNEL_REQUEST, channel.remote_chanid, *parts))

    def finish(channel, status=0):
        channel.send_exit_status(status)
        channel.shutdown_write()
        channel.close()

    def data(channel, text, times):
        for _ in range(times):
            transport._send_message(message(cMSG_CHANNEL_DATA, channel.remote_chanid, text))

    class Server(paramiko.ServerInterface):
        def get_allowed_auths(self, username):
            return "publickey"

        def check_auth_publickey(self, username, key):
            if behaviour == "auth-silent":
                stall()
            if behaviour == "auth-denying":
                return paramiko.AUTH_FAILED
            if behaviour == "auth-partial":
                return paramiko.AUTH_PARTIALLY_SUCCESSFUL
            if behaviour == "auth-asking":
                transport._send_message(message(cMSG_USERAUTH_INFO_REQUEST, "Password", "", "", 1, "Password: ", False))
                stall()
            if behaviour == "auth-again":
                transport._send_message(message(cMSG_USERAUTH_PK_OK, "ssh-ed25519", key.asbytes()))
                stall()
            if behaviour == "auth-banners":
                reach()
                while True:
                    transport._send_message(message(cMSG_USERAUTH_BANNER, "Read this! " * 2000, ""))
            if behaviour == "auth-leaving":
                transport._send_message(message(cMSG_DISCONNECT, 2, "go\x1b[2Jaway" + "!" * 30000, ""))
                stall()
            return paramiko.AUTH_SUCCESSFUL

        def check_channel_request(self, kind, number):
            if behaviour == "session-silent":
                stall()
            if behaviour == "session-refusing":
                return paramiko.OPEN_FAILED_RESOURCE_SHORTAGE
            return paramiko.OPEN_SUCCEEDED

        def check_channel_exec_request(self, channel, command):
            if behaviour == "command-silent":
                stall()
            if behaviour == "command-refusing":
                return False
            if behaviour == "command-closing":
                channel.close()
                return True
            threading.Thread(target=run, args=(channel,), daemon=True).start()
            return True

    def run(channel):
        answered.wait()
        if behaviour == "hanging":
            reach()
        elif behaviour == "flooding":
            data(channel, b"y" * 32768, 32768)  # 1 GiB
        elif behaviour == "flooding-errors":
            while True:
                transport._send_message(message(cMSG_CHANNEL_EXTENDED_DATA, channel.remote_chanid, 1, b"y" * 32768))
        elif behaviour == "overflowing":  # and ends at once, with success
            data(channel, b"y" * 32768, 257)
            finish(channel)
        elif behaviour == "full":
            data(channel, b"y" * 32768, 256)
            finish(channel)
        elif behaviour == "ignorable":
            while True:
                transport._send_message(message(cMSG_IGNORE, b"y" * 250000))
        elif behaviour in ("deaf", "chatty"):
            while True:
                transport._send_message(message(cMSG_GLOBAL_REQUEST, "keepalive@openssh.com", behaviour == "deaf"))
        elif behaviour == "opening":
            for kind in ("x11", "auth-agent@openssh.com", "forwarded-tcpip", "session", "nonsense"):
                for number in range(100):
                    parts = {"x11": ("::1", 1), "forwarded-tcpip": ("::1", 1, "::1", 2)}.get(kind, ())
                    transport._send_message(message(cMSG_CHANNEL_OPEN, kind, number, 65536, 32768, *parts))
            for kind in ("auth-agent-req@openssh.com", "x11-req", "shell", "pty-req", "signal", "nonsense"):
                request(channel, kind, True)
            channel.sendall(b"still here")
            finish(channel)
        elif behaviour == "statusless":
            channel.shutdown_write()
            channel.close()
        elif behaviour == "huge-status":
            finish(channel, 0xFFFFFFFF)
        elif behaviour == "killed":
            request(channel, "exit-signal", False, "SEGV", True, "Segmentation fault", "en")
            channel.close()
        elif behaviour == "killed-oddly":
            request(channel, "exit-signal", False, "x" * 20000, False, "", "")
            channel.close()
        elif behaviour == "breaking":  # in the middle of its output
            channel.sendall(b"half of ")
            channel.send_exit_status(0)
            os._exit(0)
        elif behaviour == "breaking-late":
            channel.sendall(b"all of it")
            channel.send_exit_status(4)
            channel.shutdown_write()
            while not channel.eof_received:  # who is still writing sees nothing but that we are gone
                time.sleep(0.01)
            os._exit(0)
        elif behaviour == "bytes":
            channel.sendall(b"a\0b\xff\xc3\xa4\xc3\x1b\r\n")
            channel.sendall_stderr(b"\xe2\x82")
            finish(channel)
        else:
            raise SystemExit(f"no such behaviour: {behaviour}")

    class Transport(paramiko.Transport):
        """Says when the answer to the exec request is out, so that nothing overtakes it."""

        def _send_message(self, made):
            super()._send_message(made)
            if made.asbytes()[:1] == paramiko.common.cMSG_CHANNEL_SUCCESS:
                answered.set()
                if behaviour == "deaf":  # from here on, but sees the end
                    reach()
                    leaving = select.poll()
                    leaving.register(stream, select.POLLRDHUP)
                    leaving.poll()
                    reach("left")
                    os._exit(0)

    answered = threading.Event()
    transport = Transport(stream)
    transport.add_server_key(paramiko.Ed25519Key.from_private_key_file(str(folder / "host_ed25519")))
    transport.start_server(server=Server())
    transport.join()


try:
    if not be_raw():
        be_server()
except (BrokenPipeError, ConnectionResetError):
    pass
reach("left")
