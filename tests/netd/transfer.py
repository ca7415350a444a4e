# SPDX-License-Identifier: LGPL-2.1-or-later
"""Bytes over stream sockets that both ends can tell apart from any others: made from a seed, known by digest."""

import hashlib
import random
import socket
import threading

CHUNK = 256 * 1024
ENOUGH = 65536  # of what is kept as it is, beside the digest


def chunks(seed, size):
    source = random.Random(seed)
    while size > 0:
        part = source.randbytes(min(CHUNK, size))
        size -= len(part)
        yield part


def digest(seed, size):
    total = hashlib.sha256()
    for part in chunks(seed, size):
        total.update(part)
    return total.hexdigest()


def send(connection, seed, size):
    for part in chunks(seed, size):
        connection.sendall(part)


def receive(connection, size=None):
    """Up to @size bytes, or all until the other end has no more: {size, sha256, data, eof}."""
    total, count, kept, eof = hashlib.sha256(), 0, b"", False
    while size is None or count < size:
        part = connection.recv(CHUNK if size is None else min(CHUNK, size - count))
        if not part:
            eof = True
            break
        total.update(part)
        count += len(part)
        if len(kept) < ENOUGH:
            kept += part[:ENOUGH - len(kept)]
    return {"size": count, "sha256": total.hexdigest(), "data": kept.decode("latin-1"), "eof": eof}


def swap(connection, seed, size):
    """Sends and takes @size bytes at the same time."""
    failure = []

    def sender():
        try:
            send(connection, seed, size)
        except OSError as error:
            failure.append(error)

    thread = threading.Thread(target=sender, daemon=True)
    thread.start()
    result = receive(connection, size)
    thread.join()
    if failure:
        raise failure[0]
    return result


def serve(connection, mode):
    """One connection of a server. "echo"; "digest": all of it, then its size and digest; "source SEED SIZE": sends
    and says that it has no more, then does as "digest" without an answer; "hold": keeps it open; "rr": a byte for a byte."""
    words = mode.split()
    if words[0] == "echo":
        while part := connection.recv(CHUNK):
            connection.sendall(part)
    elif words[0] == "digest":
        result = receive(connection)
        connection.sendall(f"{result['size']} {result['sha256']}".encode())
    elif words[0] == "source":
        send(connection, int(words[1]), int(words[2]))
        connection.shutdown(socket.SHUT_WR)
        return receive(connection)
    elif words[0] == "rr":
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while part := connection.recv(1):
            connection.sendall(part)
    elif words[0] == "hold":
        receive(connection)
    return None


class Server:
    """Listens until closed; each connection is served in a thread of its own."""

    def __init__(self, listener, mode):
        self.listener, self.mode = listener, mode
        self.port = listener.getsockname()[1]
        self.results, self.peers, self.connections = [], [], []
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            try:
                connection, peer = self.listener.accept()
            except OSError:
                return
            self.peers.append(peer)
            self.connections.append(connection)
            threading.Thread(target=self.one, args=(connection,), daemon=True).start()

    def one(self, connection):
        with connection:
            try:
                result = serve(connection, self.mode)
            except OSError as error:
                result = repr(error)
            if result is not None:
                self.results.append(result)
        self.connections.remove(connection)

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for connection in list(self.connections):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


def listen(address="0.0.0.0", port=0, mode="echo", backlog=512):
    listener = socket.create_server((address, port), backlog=backlog)
    return Server(listener, mode)
