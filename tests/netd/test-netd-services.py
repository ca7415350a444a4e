#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""What leads into a network and out of it by name: metadata, connections made to guests, forwards.

Usage: test-netd-services.py [--long] VMM-NETD STREAM-TAP"""

import socket
import sys
import threading
import time

import netd
import transfer

LARGE = 50 << 20


def one_guest(bench, **settings):
    network = bench.network(**settings)
    guest = bench.guest(network.machine("a"))
    network.start()
    guest.lease()
    return network, guest


# --- metadata ---


def ask(guest):
    """A request to the metadata service: the answer's body, when it has come."""
    thing = guest.do("tcp_open", address="169.254.169.254", port=80)
    guest.do("tcp_send", thing=thing, data="GET / HTTP/1.1\r\nHost: 169.254.169.254\r\n\r\n")
    return guest.begin("tcp_receive", thing=thing)


def body(guest, number):
    return guest.wait(number)["data"].partition("\r\n\r\n")[2]


def test_metadata_reaches_the_socket_of_the_own_vm_only(bench):
    networks = [bench.network("default", "10.77.0.0/24") for _ in range(2)]
    guests = []
    for number, network in enumerate(networks):
        for name in "ab":
            machine = network.machine(name)
            bench.keep(netd.Metadata(machine, f"{name} of network {number}"))
            guests.append((bench.guest(machine), f"{name} of network {number}"))
        network.start()
    for guest, expected in guests:
        guest.lease()
        for _ in range(5):
            assert body(guest, ask(guest)) == expected


def test_metadata_is_reached_on_the_link_too(bench):
    network, guest = one_guest(bench)
    bench.keep(netd.Metadata(guest.machine))
    guest.do("execute", words=["ip", "route", "add", "169.254.169.254/32", "dev", "tap0"])
    assert body(guest, ask(guest)) == "a"


def test_metadata_requests_are_held_while_the_daemon_is_away(bench):
    network, guest = one_guest(bench)
    numbers = [ask(guest) for _ in range(4)]
    try:
        guest.wait(numbers[0], 1)
        raise AssertionError("answered by nobody")
    except AssertionError as error:
        assert "silent" in str(error), error
    service = netd.Metadata(guest.machine)
    for number in numbers:
        assert body(guest, number) == "a"
    service.close()
    number = ask(guest)  # and away again, and back
    bench.keep(netd.Metadata(guest.machine, "back"))
    assert body(guest, number) == "back"


def test_metadata_requests_of_one_guest_are_bounded(bench):
    network, guest = one_guest(bench)
    other = bench.guest(network.machine("b"))
    network.add(other.machine)
    other.lease()
    for _ in range(60):
        try:
            guest.do("tcp_open", address="169.254.169.254", port=80, timeout=1)
        except netd.Refused:
            pass
    bench.keep(netd.Metadata(other.machine))
    assert body(other, ask(other)) == "b"


def long_metadata_requests_are_given_up_after_30_s(bench):
    network, guest = one_guest(bench)
    start = time.monotonic()
    thing = guest.do("tcp_open", address="169.254.169.254", port=80)
    guest.do("tcp_send", thing=thing, data="GET / HTTP/1.1\r\n\r\n")
    try:
        assert guest.do("tcp_receive", thing=thing)["size"] == 0
    except netd.Refused as error:
        assert error.code == "ECONNRESET", error
    assert 25 < time.monotonic() - start < 60


# --- dial ---


def test_dial_carries_half_close_in_both_orders(bench):
    network, guest = one_guest(bench)
    server = guest.do("tcp_listen", mode="digest")
    with network.control.dial("a", server["port"]) as connection:
        transfer.send(connection, 1, 3 << 20)
        connection.shutdown(socket.SHUT_WR)
        assert transfer.receive(connection)["data"] == f"{3 << 20} " + transfer.digest(1, 3 << 20)
    server = guest.do("tcp_listen", mode=f"source 2 {3 << 20}")
    with network.control.dial("a", server["port"]) as connection:
        assert transfer.receive(connection)["sha256"] == transfer.digest(2, 3 << 20)
        transfer.send(connection, 3, 1 << 20)
    found = netd.eventually(lambda: guest.do("results", thing=server["id"]), "the guest saw no end")
    assert found[0]["sha256"] == transfer.digest(3, 1 << 20)


def test_dial_comes_from_the_gateway(bench):
    network, guest = one_guest(bench)
    listener = guest.do("tcp_listen")
    accept = guest.begin("tcp_accept", thing=listener["id"])
    with network.control.dial("a", listener["port"]):
        assert guest.wait(accept)["peer"] == network.gateway


def test_dial_of_a_closed_port_is_refused(bench):
    network, guest = one_guest(bench)
    listener = guest.do("tcp_listen")
    guest.do("close", thing=listener["id"])
    try:
        network.control.dial("a", listener["port"])
        raise AssertionError("connected to nobody")
    except netd.Refused as error:
        assert error.code in ("conflict", "internal_error") and "refuse" in error.args[1], error


def test_dial_of_a_silent_guest_times_out(bench):
    network = bench.network()
    port = bench.raw(network.machine("a"))
    network.start()
    port.accept()
    try:
        network.control.dial("a", 80, timeout_ms=500)
        raise AssertionError("connected to nobody")
    except netd.Refused as error:
        assert error.code == "timeout", error
    assert port.arp(network.gateway)


def test_dial_of_a_vm_that_is_not_running_fails(bench):
    network = bench.network()
    network.machine("a")
    network.start()
    try:
        network.control.dial("a", 80, timeout_ms=300)
        raise AssertionError("connected to nobody")
    except netd.Refused as error:
        assert error.code in ("conflict", "timeout"), error
    assert network.control.port("a")["flows"] == 0


# --- forwards ---


def forwarded(port):
    connection = socket.create_connection(("127.0.0.1", port), timeout=netd.DEADLINE)
    connection.settimeout(netd.DEADLINE)
    return connection


def test_forward_carries_half_close_in_both_orders(bench):
    network, guest = one_guest(bench)
    server = guest.do("tcp_listen", mode="digest")
    port = network.forward("one", guest.machine, server["port"])
    assert port > 0
    with forwarded(port) as connection:
        transfer.send(connection, 1, 3 << 20)
        connection.shutdown(socket.SHUT_WR)
        assert transfer.receive(connection)["data"] == f"{3 << 20} " + transfer.digest(1, 3 << 20)
    server = guest.do("tcp_listen", mode=f"source 2 {3 << 20}")
    port = network.forward("two", guest.machine, server["port"])
    with forwarded(port) as connection:
        assert transfer.receive(connection)["sha256"] == transfer.digest(2, 3 << 20)
        transfer.send(connection, 3, 1 << 20)
    found = netd.eventually(lambda: guest.do("results", thing=server["id"]), "the guest saw no end")
    assert found[0]["sha256"] == transfer.digest(3, 1 << 20)


def test_forward_carries_50_mib_both_ways_at_once(bench):
    network, guest = one_guest(bench)
    listener = guest.do("tcp_listen")
    port = network.forward("one", guest.machine, listener["port"])
    accept = guest.begin("tcp_accept", thing=listener["id"])
    with forwarded(port) as connection:
        thing = guest.wait(accept)["id"]
        swap = guest.begin("tcp_swap", thing=thing, seed=11, size=LARGE)
        assert transfer.swap(connection, 12, LARGE)["sha256"] == transfer.digest(11, LARGE)
        assert guest.wait(swap)["sha256"] == transfer.digest(12, LARGE)


def test_forward_ends_a_connection_that_nobody_takes(bench):
    network, guest = one_guest(bench)
    listener = guest.do("tcp_listen")
    guest.do("close", thing=listener["id"])
    port = network.forward("one", guest.machine, listener["port"])
    with forwarded(port) as connection:
        try:
            assert connection.recv(1) == b""
        except ConnectionResetError:
            pass


def test_forward_of_a_taken_port_says_so(bench):
    network, guest = one_guest(bench)
    taken = bench.keep(transfer.listen("127.0.0.1"))
    try:
        network.forward("one", guest.machine, 80, host_port=taken.port)
        raise AssertionError("two on one port")
    except netd.Refused as error:
        assert error.code == "conflict" and str(taken.port) in error.args[1], error
    port = network.forward("one", guest.machine, 80)
    assert network.forward("one", guest.machine, 80) == port, "one id is one forward"


def test_forward_ends_when_told(bench):
    network, guest = one_guest(bench)
    server = guest.do("tcp_listen", mode="echo")
    port = network.forward("one", guest.machine, server["port"])
    connection = forwarded(port)
    connection.sendall(b"x")
    assert connection.recv(1) == b"x"
    assert [one["id"] for one in network.control.request("status")["forwards"]] == ["one"]
    network.control.request("unforward", {"id": "one"})
    try:
        assert connection.recv(1) == b"", "running connections end with it"
    except ConnectionResetError:
        pass
    connection.close()
    try:
        forwarded(port)
        raise AssertionError("it still listens")
    except ConnectionRefusedError:
        pass
    assert network.control.request("status")["forwards"] == []


def test_forward_of_udp(bench):
    network, guest = one_guest(bench)
    server = guest.do("udp_listen", port=7000)
    port = network.forward("one", guest.machine, server["port"], "udp")
    channels = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(3)]
    try:
        for round_ in range(3):
            for number, channel in enumerate(channels):
                channel.settimeout(10)
                channel.sendto(f"{number}.{round_}".encode(), ("127.0.0.1", port))
            for number, channel in enumerate(channels):
                assert channel.recv(2000).decode() == f"{network.gateway}:{number}.{round_}"
        channels[0].sendto(b"y" * 1400, ("127.0.0.1", port))
        assert channels[0].recv(2000).endswith(b"y" * 1400)
    finally:
        for channel in channels:
            channel.close()


def test_forward_on_ipv6(bench):
    network, guest = one_guest(bench)
    server = guest.do("tcp_listen", mode="echo")
    try:
        port = network.forward("one", guest.machine, server["port"], address="::1")
        connection = socket.create_connection(("::1", port), timeout=netd.DEADLINE)
    except (OSError, netd.Refused) as error:
        if not socket.has_ipv6 or "EADDRNOTAVAIL" in str(error):
            raise netd.Skip(f"no IPv6 here: {error}")
        raise
    with connection:
        connection.sendall(b"hello")
        assert connection.recv(5) == b"hello"


# --- a restart of netd ---


def test_forwards_and_links_survive_a_kill_under_transfer(bench):
    network, guest = one_guest(bench)
    server = guest.do("tcp_listen", mode="echo")
    port = network.forward("tcp", guest.machine, server["port"])
    guest.do("udp_listen", port=7000)
    datagrams = network.forward("udp", guest.machine, 7000, "udp")
    outside = bench.keep(transfer.listen(netd.OUTSIDE, mode="digest"))
    thing = guest.do("tcp_open", address=netd.OUTSIDE, port=outside.port)
    sending = guest.begin("tcp_send", thing=thing, seed=1, size=1 << 30)
    netd.eventually(lambda: network.control.counters()["bytes-received"] > 10 << 20, "nothing is sent")

    network.kill()
    network.start()
    network.wait_connected(guest.machine)
    assert network.control.counters()["bytes-received"] < 10 << 20, "the page is not new"
    listed = {one["id"]: one["host_port"] for one in network.control.request("status")["forwards"]}
    assert listed == {"tcp": port, "udp": datagrams}, listed
    try:
        guest.wait(sending)
        raise AssertionError("a connection survived its NAT")
    except netd.Refused as error:
        assert error.code in ("ECONNRESET", "EPIPE", "ETIMEDOUT"), error
    with forwarded(port) as connection:
        connection.sendall(b"again")
        assert connection.recv(5) == b"again"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as channel:
        channel.settimeout(10)
        channel.sendto(b"again", ("127.0.0.1", datagrams))
        assert channel.recv(100).endswith(b"again")
    thing = guest.do("tcp_open", address=netd.OUTSIDE, port=outside.port)
    guest.do("tcp_send", thing=thing, seed=2, size=5 << 20)
    guest.do("tcp_end", thing=thing)
    assert guest.do("tcp_receive", thing=thing)["data"] == f"{5 << 20} " + transfer.digest(2, 5 << 20)


def test_qemu_may_come_back_too(bench):
    network = bench.network()
    machine = network.machine("a")
    first = bench.guest(machine)
    network.start()
    first.lease()
    first.end()
    network.wait_connected(machine, False)
    second = bench.guest(machine)
    second.lease()
    outside = bench.keep(transfer.listen(netd.OUTSIDE, mode="digest"))
    thing = second.do("tcp_open", address=netd.OUTSIDE, port=outside.port)
    second.do("tcp_end", thing=thing)
    assert second.do("tcp_receive", thing=thing)["data"].startswith("0 ")


def test_a_guest_that_leaves_takes_its_flows_along(bench):
    network = bench.network()
    machine = network.machine("a")
    guest = bench.guest(machine)
    network.start()
    guest.lease()
    outside = bench.keep(transfer.listen(netd.OUTSIDE, mode="hold"))
    opened = [guest.do("tcp_open", address=netd.OUTSIDE, port=outside.port) for _ in range(20)]
    netd.eventually(lambda: len(outside.connections) == len(opened), "not all connections came")
    assert network.control.port("a")["flows"] >= 20
    network.machines.clear()
    network.write()
    network.control.request("detach", {"vm": "a"})
    netd.eventually(lambda: not outside.connections, "connections of a VM that is gone")
    assert network.control.request("status")["ports"] == []


def test_many_connections_at_once(bench):
    network, guest = one_guest(bench)
    outside = bench.keep(transfer.listen(netd.OUTSIDE, mode="echo"))
    failures = []

    def one(seed):
        try:
            thing = guest.do("tcp_open", address=netd.OUTSIDE, port=outside.port)
            result = guest.do("tcp_swap", thing=thing, seed=seed, size=200000)
            assert result["sha256"] == transfer.digest(seed, 200000)
            guest.do("close", thing=thing)
        except Exception as error:  # told to the test
            failures.append(error)

    threads = [threading.Thread(target=one, args=(seed,)) for seed in range(60)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures[:3]


if __name__ == "__main__":
    netd.enter_namespace()
    long = "--long" in sys.argv
    words = [word for word in sys.argv[1:] if word != "--long"]
    prefix = "long_" if long else "test_"
    netd.run([function for name, function in list(globals().items()) if name.startswith(prefix)], *words)
