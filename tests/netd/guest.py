#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""A guest without a virtual machine: this namespace's TCP/IP behind a TAP device that stream-tap joins
to the network's socket. Takes orders as JSON lines on standard input, answers with the same id; orders
run side by side. The first line of the output says that the device is there.

Run it in a network namespace of its own."""

import argparse
import ctypes
import errno
import itertools
import json
import os
import pathlib
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

import frames
import transfer

DEVICE = "tap0"
ETH_P_ALL = 3


def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def ip(*words):
    subprocess.run(["ip", *map(str, words)], check=True, stdin=subprocess.DEVNULL)


class Guest:
    def __init__(self, arguments):
        self.mac = arguments.mac
        self.objects, self.numbers = {}, itertools.count(1)
        ip("link", "set", "lo", "up")
        if arguments.no_tap:  # somebody else brings the device
            self.bridge = None
            return
        command = [arguments.stream_tap, f"--batch={arguments.batch}", DEVICE, arguments.socket]
        if arguments.connect:
            command.insert(1, "--connect")
        self.bridge = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=die_with_parent)
        if self.bridge.stdout.readline() != "ready\n":
            raise SystemExit("stream-tap did not start")
        quiet = pathlib.Path(f"/proc/sys/net/ipv6/conf/{DEVICE}/disable_ipv6")
        if quiet.exists():
            quiet.write_text("1")
        ip("link", "set", DEVICE, "address", self.mac, "mtu", arguments.mtu, "up")

    def keep(self, thing):
        number = next(self.numbers)
        self.objects[number] = thing
        return number

    # --- addresses ---

    def do_address(self, ip_address, prefix, gateway=None, mtu=None):
        if mtu:
            ip("link", "set", DEVICE, "mtu", mtu)
        ip("addr", "replace", f"{ip_address}/{prefix}", "dev", DEVICE)
        if gateway:
            ip("route", "replace", "default", "via", gateway)

    def packet_socket(self, protocol=ETH_P_ALL):
        raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(protocol))
        raw.bind((DEVICE, protocol))
        return raw

    def dhcp(self, kind, transaction, options, timeout=5):
        with self.packet_socket(frames.IPV4) as raw:
            message = frames.dhcp_message(kind, self.mac, transaction, options)
            packet = frames.udp("0.0.0.0", "255.255.255.255", 68, 67, message)
            end = time.monotonic() + timeout
            raw.send(frames.ethernet(self.mac, frames.BROADCAST, frames.IPV4, packet))
            while (left := end - time.monotonic()) > 0 and select.select([raw], [], [], left)[0]:
                packet = frames.Packet(raw.recv(65600))
                if packet.source == self.mac or packet.protocol != frames.UDP or packet.destination_port != 68:
                    continue
                reply = frames.DhcpReply(packet.payload)
                if reply.transaction == transaction:
                    return reply
        return None

    def do_lease(self, tries=40):
        """The four messages, and what they say put to use."""
        for attempt in range(tries):
            offer = self.dhcp(frames.DISCOVER, 1000 + attempt, [(55, bytes([1, 3, 6, 26, 51, 54, 119]))], timeout=2)
            if offer:
                break
        else:
            raise TimeoutError("no offer")
        wanted = [(50, frames.ip_bytes(offer.yours)), (54, offer.options[54])]
        lease = self.dhcp(frames.REQUEST, 5000, wanted)
        prefix = bin(int.from_bytes(lease.options[1], "big")).count("1")
        mtu = int.from_bytes(lease.options[26], "big")
        gateway = frames.ip_text(lease.options[3])
        self.do_address(lease.yours, prefix, gateway, mtu)
        return {"ip": lease.yours, "prefix": prefix, "gateway": gateway, "mtu": mtu,
                "dns": frames.ip_text(lease.options[6]),
                "options": {str(code): value.hex() for code, value in lease.options.items()}}

    # --- TCP ---

    def do_tcp_open(self, address, port, timeout=30, receive_buffer=None):
        connection = socket.socket()
        if receive_buffer:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        connection.settimeout(timeout)
        try:
            connection.connect((address, port))
        except OSError:
            connection.close()
            raise
        connection.settimeout(120)
        return self.keep(connection)

    def do_tcp_listen(self, port=0, mode=None):
        if mode:
            server = transfer.listen(port=port, mode=mode)
            return {"id": self.keep(server), "port": server.port}
        listener = socket.create_server(("0.0.0.0", port), backlog=512)
        return {"id": self.keep(listener), "port": listener.getsockname()[1]}

    def do_tcp_accept(self, thing, timeout=60):
        self.objects[thing].settimeout(timeout)
        connection, peer = self.objects[thing].accept()
        connection.settimeout(120)
        return {"id": self.keep(connection), "peer": peer[0], "port": peer[1]}

    def do_tcp_send(self, thing, data=None, seed=0, size=0):
        if data is not None:
            self.objects[thing].sendall(data.encode("latin-1"))
        else:
            transfer.send(self.objects[thing], seed, size)

    def do_tcp_receive(self, thing, size=None):
        return transfer.receive(self.objects[thing], size)

    def do_tcp_swap(self, thing, seed, size):
        return transfer.swap(self.objects[thing], seed, size)

    def do_tcp_end(self, thing):
        self.objects[thing].shutdown(socket.SHUT_WR)

    def do_close(self, thing, reset=False):
        item = self.objects.pop(thing)
        if reset:
            item.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        item.close()

    def do_results(self, thing):
        return self.objects[thing].results

    def do_round_trips(self, address, port, count):
        """Seconds of each byte that went there and came back."""
        with socket.create_connection((address, port), timeout=60) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            times = []
            for _ in range(count):
                start = time.perf_counter()
                connection.sendall(b"x")
                connection.recv(1)
                times.append(time.perf_counter() - start)
        return times

    def do_connects(self, address, port, count):
        """Seconds of each connection with a byte there and back."""
        times = []
        for _ in range(count):
            start = time.perf_counter()
            with socket.create_connection((address, port), timeout=60) as connection:
                connection.sendall(b"x")
                connection.recv(1)
            times.append(time.perf_counter() - start)
        return times

    def do_open_many(self, address, port, count):
        opened = []
        for _ in range(count):
            connection = socket.create_connection((address, port), timeout=60)
            connection.sendall(b"x")
            opened.append(self.keep(connection))
        for thing in opened:
            self.objects[thing].recv(1)
        return opened

    # --- UDP, ICMP ---

    def do_udp(self, address, port, data, timeout=5, tries=1, fragment=True):
        """Sends a datagram and waits for one: {data (hexadecimal), address, port} or nothing."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as channel:
            if not fragment:
                channel.setsockopt(socket.IPPROTO_IP, 10, 2)  # IP_MTU_DISCOVER: IP_PMTUDISC_DO
            channel.settimeout(timeout)
            for _ in range(tries):
                channel.sendto(bytes.fromhex(data), (address, port))
                try:
                    answer, peer = channel.recvfrom(65536)
                    return {"data": answer.hex(), "address": peer[0], "port": peer[1]}
                except TimeoutError:
                    continue
        return None

    def do_udp_listen(self, port):
        """Answers each datagram with its sender's address and itself."""
        channel = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        channel.bind(("0.0.0.0", port))

        def run():
            while True:
                try:
                    data, peer = channel.recvfrom(65536)
                    channel.sendto(f"{peer[0]}:".encode() + data, peer)
                except OSError:
                    return

        threading.Thread(target=run, daemon=True).start()
        return {"id": self.keep(channel), "port": channel.getsockname()[1]}

    def do_ping(self, address, timeout=3, size=56, tries=1):
        for _ in range(tries):
            done = subprocess.run(["ping", "-n", "-c1", f"-W{timeout}", f"-s{size}", address], capture_output=True)
            if done.returncode == 0:
                return True
        return False

    # --- frames ---

    def do_inject(self, frame, count=1):
        with self.packet_socket() as raw:
            for _ in range(count):
                raw.send(bytes.fromhex(frame))

    def do_flood(self, seconds, frames_hex):
        """Sends these as fast as it goes; how many that were."""
        data = [bytes.fromhex(frame) for frame in frames_hex]
        sent = 0
        end = time.monotonic() + seconds
        with self.packet_socket() as raw:
            while time.monotonic() < end:
                for frame in data:
                    try:
                        raw.send(frame)
                        sent += 1
                    except OSError as error:
                        if error.errno != errno.ENOBUFS:
                            raise
        return sent

    def do_sniff(self, seconds):
        """All frames that come in meanwhile."""
        found = []
        end = time.monotonic() + seconds
        with self.packet_socket() as raw:
            while (left := end - time.monotonic()) > 0 and select.select([raw], [], [], left)[0]:
                data, place = raw.recvfrom(65600)
                if place[2] != socket.PACKET_OUTGOING:
                    found.append(data.hex())
        return found

    def do_execute(self, words, timeout=120):
        done = subprocess.run(words, capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL)
        return {"status": done.returncode, "output": done.stdout, "errors": done.stderr}

    def do_bridge_pid(self):
        return self.bridge.pid


class Orders:
    def __init__(self, guest):
        self.guest, self.lock = guest, threading.Lock()

    def say(self, answer):
        with self.lock:
            print(json.dumps(answer), flush=True)

    def one(self, order):
        answer = {"id": order["id"]}
        try:
            answer["result"] = getattr(self.guest, "do_" + order["do"])(**order.get("with", {}))
        except TimeoutError as error:
            answer["error"] = "ETIMEDOUT"
            answer["text"] = str(error)
        except OSError as error:
            answer["error"] = errno.errorcode.get(error.errno, str(error))
        except Exception as error:  # told to whoever asked
            answer["error"] = repr(error)
        self.say(answer)

    def run(self):
        self.say({"ready": True})
        for line in sys.stdin:
            threading.Thread(target=self.one, args=(json.loads(line),), daemon=True).start()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stream-tap")
    parser.add_argument("--socket")
    parser.add_argument("--mac", default="02:00:00:00:00:02")
    parser.add_argument("--mtu", type=int, default=1500)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--connect", action="store_true")
    parser.add_argument("--no-tap", action="store_true")
    die_with_parent()
    guest = Guest(parser.parse_args())
    Orders(guest).run()
    sys.stdout.flush()
    os._exit(0)  # threads that wait for the network do not matter any more


if __name__ == "__main__":
    main()
