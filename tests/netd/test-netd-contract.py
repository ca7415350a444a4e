#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""What a network promises to its guests, packet by packet: leases, ARP, names, what is out of reach.

Usage: test-netd-contract.py VMM-NETD STREAM-TAP"""

import mmap
import os
import pathlib
import socket
import stat
import struct
import sys
import threading
import time

import frames
import netd
import transfer

EXACT = {1, 3, 6, 26, 51, 53, 54}


def one_port(bench, **settings):
    """A network with one VM whose frames are made by hand."""
    network = bench.network(**settings)
    machine = network.machine("a")
    port = bench.raw(machine)
    network.start()
    port.accept()
    return network, machine, port


# --- DHCP ---


def check_lease(network, machine, reply):
    packet, answer = reply, frames.DhcpReply(reply.payload)
    assert packet.source == network.gateway_mac and packet.ip_source == network.gateway
    assert (packet.source_port, packet.destination_port) == (67, 68)
    assert packet.checksum_good and packet.ip_good
    assert answer.operation == 2 and answer.hardware == machine.mac and answer.transaction == 77
    assert answer.yours == machine.ip, answer.yours
    options = answer.options
    assert options[1] == frames.ip_bytes(str(network.prefix.netmask))
    assert options[3] == options[6] == options[54] == frames.ip_bytes(network.gateway)
    assert options[26] == struct.pack("!H", network.settings["mtu"])
    assert options[51] == struct.pack("!I", 3600)
    return answer


def test_dhcp_gives_the_lease_and_exactly_the_options_of_the_contract(bench):
    network, machine, port = one_port(bench, dns_search_domain="lab.example.org")
    for asked, answered in ((frames.DISCOVER, frames.OFFER), (frames.REQUEST, frames.DHCP_ACK)):
        options = [(50, frames.ip_bytes(machine.ip))] if asked == frames.REQUEST else []
        answer = check_lease(network, machine, port.dhcp(asked, options=options))
        assert answer.kind == answered
        assert set(answer.options) == EXACT | {119}, answer.order
        assert len(answer.order) == len(set(answer.order)), answer.order
        assert answer.options[119] == frames.dns_name("lab.example.org"), answer.options[119]


def test_dhcp_leaves_out_a_search_list_that_is_not_there(bench):
    network, machine, port = one_port(bench)
    answer = check_lease(network, machine, port.dhcp(frames.DISCOVER))
    assert set(answer.options) in (EXACT, EXACT | {119}), answer.order
    assert answer.options.get(119, b"") == b""


def test_dhcp_echoes_client_id_and_relay_information(bench):
    network, machine, port = one_port(bench)
    extra = [(61, b"\x01" + frames.mac_bytes(machine.mac)), (82, b"\x01\x04abcd")]
    answer = check_lease(network, machine, port.dhcp(frames.DISCOVER, options=extra))
    assert set(answer.options) - {119} == EXACT | {61, 82}, answer.order
    assert answer.options[61] == extra[0][1] and answer.options[82] == extra[1][1]


def test_dhcp_is_silent_to_a_stranger(bench):
    network, machine, port = one_port(bench)
    assert port.dhcp(frames.DISCOVER, hardware="02:00:00:00:00:77", seconds=0.3) is None
    neighbour = frames.derived_mac(network.name, "10.77.0.9")
    assert port.dhcp(frames.DISCOVER, hardware=neighbour, seconds=0.3) is None
    assert port.arp(network.gateway), "it is alive"
    assert network.control.counters()["spoofed-dhcp"] == 2, network.control.counters()


def test_dhcp_says_nothing_to_a_release(bench):
    network, machine, port = one_port(bench)
    for kind in (frames.RELEASE, frames.DECLINE, frames.OFFER, 99):
        assert port.dhcp(kind, client=machine.ip, seconds=0.3) is None, kind
    assert check_lease(network, machine, port.dhcp(frames.REQUEST)), "the lease is still there"


def test_dhcp_informs_without_giving_an_address(bench):
    network, machine, port = one_port(bench)
    reply = port.dhcp(frames.INFORM, client=machine.ip, seconds=1)
    if reply is None:
        return  # the contract lets it be silent
    answer = frames.DhcpReply(reply.payload)
    assert answer.kind == frames.DHCP_ACK and answer.yours == "0.0.0.0" and 51 not in answer.options


def test_dhcp_tells_the_mtu_of_the_network(bench):
    network, machine, port = one_port(bench, mtu=65520)
    assert frames.DhcpReply(port.dhcp(frames.DISCOVER).payload).options[26] == struct.pack("!H", 65520)


# --- ARP ---


def test_arp_is_answered_for_the_gateway_and_metadata_only(bench):
    network, machine, port = one_port(bench)
    for address in (network.gateway, "169.254.169.254"):
        reply = port.arp(address)
        assert reply.sender_mac == network.gateway_mac and reply.source == network.gateway_mac
        assert (reply.target_mac, reply.target_ip) == (machine.mac, machine.ip)
    for address in (network.alias, "10.77.0.200", "169.254.1.1", "198.51.100.1", machine.ip):
        assert port.arp(address, seconds=0.2) is None, address


def test_arp_for_metadata_needs_the_service(bench):
    network, machine, port = one_port(bench, enable_imds=False)
    assert port.arp("169.254.169.254", seconds=0.3) is None
    assert port.arp(network.gateway)


def test_arp_for_the_alias_when_that_is_enabled(bench):
    network, machine, port = one_port(bench, enable_host_alias=True)
    assert port.arp(network.alias).sender_mac == network.gateway_mac


# --- DNS ---


def answer_a(message, over_tcp):
    """198.51.100.77 to any question for an address."""
    head = message[:2] + struct.pack("!HHHHH", 0x8180, 1, 1, 0, 0)
    return head + message[12:] + b"\xc0\x0c" + struct.pack("!HHIH", 1, 1, 60, 4) + bytes([198, 51, 100, 77])


def dns_udp(port, network, message, source_port=40000, seconds=5):
    port.to_gateway(network, frames.udp(port.machine.ip, network.gateway, source_port, 53, message))
    packet = port.wait(lambda found: found.protocol == frames.UDP and found.source_port == 53
                       and found.destination_port == source_port, seconds)
    return packet and packet.payload


def dns_tcp(guest, network, message):
    thing = guest.do("tcp_open", address=network.gateway, port=53)
    guest.do("tcp_send", thing=thing, data=(struct.pack("!H", len(message)) + message).decode("latin-1"))
    size = struct.unpack("!H", guest.do("tcp_receive", thing=thing, size=2)["data"].encode("latin-1"))[0]
    reply = guest.do("tcp_receive", thing=thing, size=size)["data"].encode("latin-1")
    guest.do("close", thing=thing)
    return reply


def test_dns_carries_messages_byte_for_byte_over_udp(bench):
    replies = {
        b"nxdomain": lambda q: q[:2] + struct.pack("!HHHHH", 0x8183, 1, 0, 0, 0) + q[12:],
        b"text": lambda q: q[:2] + struct.pack("!HHHHH", 0x8180, 1, 2, 0, 0) + q[12:]
        + b"".join(b"\xc0\x0c" + struct.pack("!HHIH", 16, 1, 5, 256 + 11) + b"\xff" + bytes([n]) * 255 + b"\x0a0123456789"
                   for n in (65, 66)),
        b"odd": lambda q: q[:2] + b"\xfa\xff" + struct.pack("!HHHH", 1, 9, 9, 9) + q[12:] + bytes(range(256)) * 4,
    }
    bench.keep(netd.Resolver("127.0.0.11", lambda q, tcp: replies[q[13:13 + q[12]]](q)))
    network, machine, port = one_port(bench)
    for name, make in replies.items():
        for edns in (None, 4096):
            query = frames.dns_query(name.decode() + ".example.org", kind=16, identity=0xBEEF, edns=edns)
            reply = dns_udp(port, network, query)
            assert reply == make(query), (name, reply)


def test_dns_asks_what_the_guest_asked(bench):
    resolver = bench.keep(netd.Resolver("127.0.0.11", answer_a))
    network, machine, port = one_port(bench)
    query = frames.dns_query("host.example.org", kind=28, edns=1232)
    assert dns_udp(port, network, query)
    assert [one[2:] for one in resolver.queries] == [query[2:]]


def test_dns_over_tcp_carries_64_kib(bench):
    large = lambda q: (q[:2] + b"\x81" + q[3:] + bytes(range(256)) * 256)[:65535]
    bench.keep(netd.Resolver("127.0.0.11", lambda q, tcp: large(q) if tcp else None))
    network = bench.network()
    machine = network.machine("a")
    guest = bench.guest(machine)
    network.start()
    guest.lease()
    query = frames.dns_query("large.example.org", kind=16)
    assert dns_tcp(guest, network, query) == large(query)


def test_dns_answers_too_large_for_a_datagram_are_had_over_tcp(bench):
    sizes = {"small": 512, "fits": 1472, "large": 1473, "larger": 4000}
    sized = lambda q: (q[:2] + b"\x81" + q[3:] + bytes(range(256)) * 16)[:sizes[q[13:13 + q[12]].decode()]]
    bench.keep(netd.Resolver("127.0.0.11", lambda q, tcp: sized(q)))
    network = bench.network()
    guest = bench.guest(network.machine("a"))
    network.start()
    guest.lease()
    for name, size in sizes.items():
        query = frames.dns_query(name + ".example.org", edns=4096)
        reply = bytes.fromhex(guest.do("udp", address=network.gateway, port=53, data=query.hex(), tries=3)["data"])
        if size <= 1472:
            assert reply == sized(query), name
        elif reply != sized(query):  # whole in fragments would be right, too
            assert reply[:2] == query[:2] and reply[2] & 2, "not marked as truncated"
            assert struct.unpack("!HHHH", reply[4:12]) == (1, 0, 0, 0) and reply[12:] == query[12:len(reply)], reply
            assert dns_tcp(guest, network, query) == sized(query)


def test_dns_goes_to_the_second_server_when_the_first_is_silent(bench):
    bench.keep(netd.Resolver("127.0.0.11", lambda q, tcp: None))
    bench.keep(netd.Resolver("127.0.0.12", answer_a))
    network = bench.network()
    network.set_resolvers("127.0.0.11", "127.0.0.12")
    port = bench.raw(network.machine("a"))
    network.start()
    port.accept()
    query = frames.dns_query("host.example.org")
    assert dns_udp(port, network, query, seconds=30) == answer_a(query, False)


def test_dns_answers_servfail_when_no_server_does(bench):
    network = bench.network()
    network.set_resolvers("127.0.0.13")  # refuses at once
    port = bench.raw(network.machine("a"))
    network.start()
    port.accept()
    reply = dns_udp(port, network, frames.dns_query("host.example.org", identity=0x1234), seconds=30)
    assert reply and reply[:2] == b"\x12\x34" and reply[3] & 15 == 2, reply


def test_dns_follows_the_resolver_of_the_host_under_load(bench):
    old = bench.keep(netd.Resolver("127.0.0.11", answer_a))
    network, machine, port = one_port(bench)
    assert dns_udp(port, network, frames.dns_query("before.example.org"))
    other = lambda q, tcp: answer_a(q, tcp)[:-1] + b"\x4e"
    bench.keep(netd.Resolver("127.0.0.12", other))
    stop = threading.Event()

    def load():
        number = 0
        while not stop.is_set():
            query = frames.dns_query(f"n{number}.example.org", identity=number & 0xFFFF)
            port.to_gateway(network, frames.udp(machine.ip, network.gateway, 50000 + number % 50, 53, query))
            number += 1
            stop.wait(0.002)

    thread = threading.Thread(target=load)
    thread.start()
    try:
        old.close()
        network.set_resolvers("127.0.0.12")
        found = port.wait(lambda packet: packet.protocol == frames.UDP and packet.source_port == 53
                          and packet.payload.endswith(b"\x4e"), 10)
    finally:
        stop.set()
        thread.join()
    assert found, "no answer of the new resolver"


# --- what is out of reach ---


def reaches(guest, address, port, timeout=2):
    """How a connection attempt of the guest ends."""
    try:
        guest.do("close", thing=guest.do("tcp_open", address=address, port=port, timeout=timeout))
        return "connected"
    except netd.Refused as error:
        return error.code


def test_the_hosts_loopback_is_out_of_reach(bench):
    server = bench.keep(transfer.listen("0.0.0.0", mode="echo"))
    loopback = bench.keep(transfer.listen("127.0.0.1", mode="echo"))
    datagrams = bench.keep(UdpEcho("0.0.0.0"))
    network = bench.network()
    machine = network.machine("a")
    guest = bench.guest(machine)
    network.start()
    guest.lease()
    assert reaches(guest, netd.OUTSIDE, server.port) == "connected", "the way out works"
    for thing in (server, loopback):
        thing.peers.clear()
        # On the guest's own side these addresses are the guest itself: only a frame gets out of it.
        for address in (network.gateway, network.alias, "169.254.169.254"):
            assert reaches(guest, address, thing.port, timeout=3) != "connected", address
    raw_attempts(guest, network, machine, server.port, datagrams.port)
    assert not server.peers and not loopback.peers, server.peers + loopback.peers
    for address in (network.gateway, network.alias, "169.254.169.254"):
        try:
            assert guest.do("udp", address=address, port=datagrams.port, data="00", timeout=0.5) is None, address
        except netd.Refused as error:
            assert error.code in ("ECONNREFUSED", "EHOSTUNREACH"), error
    assert not datagrams.peers, datagrams.peers


def raw_attempts(guest, network, machine, tcp_port, udp_port):
    """Frames that no TCP/IP of a guest would send."""
    places = ["127.0.0.1", "127.1.2.3", "0.0.0.0", "0.1.2.3", network.alias, "169.254.169.254", "255.255.255.255",
              "224.0.0.1", "240.0.0.1", str(network.prefix.broadcast_address), str(network.prefix.network_address)]
    before = network.control.counters()["forbidden"]
    for number, place in enumerate(places):
        for packet in (
            frames.tcp(machine.ip, place, 30000 + number, tcp_port, frames.SYN),
            frames.udp(machine.ip, place, 31000 + number, udp_port, b"here"),
        ):
            frame = frames.ethernet(machine.mac, network.gateway_mac, frames.IPV4, packet)
            guest.do("inject", frame=frame.hex())
    assert guest.do("ping", address=network.gateway, tries=3) or True
    netd.eventually(lambda: network.control.counters()["forbidden"] > before, "nothing was refused", 10)


class UdpEcho:
    def __init__(self, address, port=0):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind((address, port))
        self.port = self.socket.getsockname()[1]
        self.peers = []
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            try:
                data, peer = self.socket.recvfrom(65536)
            except OSError:
                return
            if self.socket.fileno() < 0:
                return
            self.peers.append(peer)
            self.socket.sendto(data, peer)

    def close(self):
        try:
            self.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.socket.close()


def test_link_local_is_refused(bench):
    network, machine, port = one_port(bench)
    for number, address in enumerate(("169.254.1.1", "169.254.169.253", "169.254.170.2")):
        port.to_gateway(network, frames.tcp(machine.ip, address, 40000 + number, 80, frames.SYN, sequence=500))
        reset = port.wait(lambda found: found.protocol == frames.TCP and found.destination_port == 40000 + number, 5)
        assert reset and reset.flags == frames.RST | frames.ACK, address
        assert reset.acknowledge == 501 and reset.ip_source == address and reset.checksum_good
        port.to_gateway(network, frames.udp(machine.ip, address, 41000 + number, 53, b"hello"))
    assert port.wait(lambda found: found.protocol in (frames.UDP, frames.ICMP), 0.3) is None, "UDP is not silent"
    assert network.control.counters()["forbidden"] == 6, network.control.counters()


def test_metadata_is_refused_when_it_is_off(bench):
    network, machine, port = one_port(bench, enable_imds=False)
    port.to_gateway(network, frames.tcp(machine.ip, "169.254.169.254", 40000, 80, frames.SYN))
    reset = port.wait(lambda found: found.protocol == frames.TCP, 5)
    assert reset and reset.flags & frames.RST


def test_the_alias_leads_to_loopback_when_that_is_enabled(bench):
    server = bench.keep(transfer.listen("127.0.0.1", mode="echo"))
    network = bench.network(enable_host_alias=True)
    guest = bench.guest(network.machine("a"))
    network.start()
    guest.lease()
    thing = guest.do("tcp_open", address=network.alias, port=server.port)
    guest.do("tcp_send", thing=thing, data="hello")
    assert guest.do("tcp_receive", thing=thing, size=5)["data"] == "hello"
    assert reaches(guest, network.gateway, server.port) != "connected"


# --- outbound and between guests ---


def test_guests_reach_the_outside_over_tcp_and_udp(bench):
    server = bench.keep(transfer.listen(netd.OUTSIDE, mode="echo"))
    datagrams = bench.keep(UdpEcho(netd.OUTSIDE))
    network = bench.network()
    guest = bench.guest(network.machine("a"))
    network.start()
    guest.lease()
    thing = guest.do("tcp_open", address=netd.OUTSIDE, port=server.port)
    result = guest.do("tcp_swap", thing=thing, seed=5, size=3 << 20)
    assert result["sha256"] == transfer.digest(5, 3 << 20)
    data = os.urandom(1400).hex()
    assert guest.do("udp", address=netd.OUTSIDE, port=datagrams.port, data=data, tries=3)["data"] == data
    closed = bench.keep(transfer.listen(netd.OUTSIDE))
    closed.close()
    assert reaches(guest, netd.OUTSIDE, closed.port) == "ECONNREFUSED"


def test_half_close_survives_the_way_out(bench):
    digest = bench.keep(transfer.listen(netd.OUTSIDE, mode="digest"))
    source = bench.keep(transfer.listen(netd.OUTSIDE, mode="source 3 2000000"))
    network = bench.network()
    guest = bench.guest(network.machine("a"))
    network.start()
    guest.lease()
    thing = guest.do("tcp_open", address=netd.OUTSIDE, port=digest.port)
    guest.do("tcp_send", thing=thing, seed=4, size=1000000)
    guest.do("tcp_end", thing=thing)
    assert guest.do("tcp_receive", thing=thing)["data"] == "1000000 " + transfer.digest(4, 1000000)
    thing = guest.do("tcp_open", address=netd.OUTSIDE, port=source.port)
    assert guest.do("tcp_receive", thing=thing)["sha256"] == transfer.digest(3, 2000000)
    guest.do("tcp_send", thing=thing, seed=4, size=1000000)  # the other direction is open still
    guest.do("close", thing=thing)
    netd.eventually(lambda: source.results, "the server saw no end")
    assert source.results[0]["sha256"] == transfer.digest(4, 1000000)


def test_guests_of_one_network_reach_each_other(bench):
    network = bench.network()
    first, second = (bench.guest(network.machine(name)) for name in "ab")
    network.start()
    first.lease()
    second.lease()
    server = second.do("tcp_listen", mode="digest")
    thing = first.do("tcp_open", address=second.machine.ip, port=server["port"])
    first.do("tcp_send", thing=thing, seed=1, size=5 << 20)
    first.do("tcp_end", thing=thing)
    assert first.do("tcp_receive", thing=thing)["data"] == f"{5 << 20} " + transfer.digest(1, 5 << 20)
    assert first.do("ping", address=second.machine.ip, tries=5)
    assert second.do("ping", address=first.machine.ip, tries=5)


def test_guests_of_two_networks_never_meet(bench):
    """Both networks have one name, one range, one set of addresses."""
    networks = [bench.network("default", "10.77.0.0/24") for _ in range(2)]
    guests = []
    for network in networks:
        for name in "ab":
            guests.append(bench.guest(network.machine(name)))
        network.start()
    for guest in guests:
        guest.lease()
    # The second guest listens in one network only, so that a crossing would be seen.
    server = guests[1].do("tcp_listen", port=7001, mode="echo")
    assert reaches(guests[0], guests[1].machine.ip, 7001) == "connected"
    assert reaches(guests[2], guests[3].machine.ip, 7001) == "ECONNREFUSED"
    sniff = guests[0].begin("sniff", seconds=1.5)
    frame = frames.arp(1, guests[2].machine.mac, guests[2].machine.ip, "00:00:00:00:00:00", "10.77.0.99")
    guests[2].do("inject", frame=frame.hex(), count=50)
    crossed = [one for one in guests[0].wait(sniff) if "0a4d0063" in one]
    assert not crossed, crossed
    assert server


def test_the_gateway_answers_ping(bench):
    network, machine, port = one_port(bench)
    port.to_gateway(network, frames.echo_request(machine.ip, network.gateway, identity=77, payload=b"are you there"))
    reply = port.wait(lambda found: found.protocol == frames.ICMP, 3)
    if reply is None:
        raise netd.Skip("the engine answers no echo requests here")
    assert reply.payload[0] == 0 and reply.payload[8:] == b"are you there"


# --- MTU ---


def transfer_with_mtu(bench, mtu):
    digest = bench.keep(transfer.listen(netd.OUTSIDE, mode="digest"))
    source = bench.keep(transfer.listen(netd.OUTSIDE, mode="source 8 20000000"))
    network = bench.network(mtu=mtu)
    guest = bench.guest(network.machine("a"))
    network.start()
    lease = guest.lease()
    assert lease["mtu"] == mtu
    sniff = guest.begin("sniff", seconds=4)
    thing = guest.do("tcp_open", address=netd.OUTSIDE, port=source.port)
    assert guest.do("tcp_receive", thing=thing)["sha256"] == transfer.digest(8, 20000000)
    thing = guest.do("tcp_open", address=netd.OUTSIDE, port=digest.port)
    guest.do("tcp_send", thing=thing, seed=9, size=20000000)
    guest.do("tcp_end", thing=thing)
    assert guest.do("tcp_receive", thing=thing)["data"] == "20000000 " + transfer.digest(9, 20000000)
    data = [frames.Packet(bytes.fromhex(one)) for one in guest.wait(sniff)]
    data = [packet for packet in data if packet.protocol == frames.TCP]
    largest = max(len(packet.frame) for packet in data) - 14
    assert largest <= mtu, largest
    assert all(packet.ip_good and packet.checksum_good for packet in data)
    assert all(not packet.ip_flags & 1 and not packet.offset for packet in data), "TCP in fragments"
    return largest


def test_mtu_1500_is_kept_and_used(bench):
    assert transfer_with_mtu(bench, 1500) == 1500


def test_mtu_65520_is_kept_and_used(bench):
    assert transfer_with_mtu(bench, 65520) > 30000


def test_large_datagrams_that_may_not_be_fragmented(bench):
    datagrams = bench.keep(UdpEcho(netd.OUTSIDE))
    network = bench.network(mtu=65520)
    guest = bench.guest(network.machine("a"))
    network.start()
    guest.lease()
    data = os.urandom(60000).hex()
    reply = guest.do("udp", address=netd.OUTSIDE, port=datagrams.port, data=data, tries=3, fragment=False)
    assert reply and reply["data"] == data


# --- counters, captures ---


def test_counters_count_bytes_with_their_prefixes_and_spoofs_by_kind(bench):
    network, machine, port = one_port(bench)
    names = network.control.hello["counters"]
    assert names[:2] == ["bytes-sent", "bytes-received"] and len(set(names)) == len(names)
    assert port.arp(network.gateway)
    counters = network.control.counters()
    assert counters["bytes-received"] == 42 + 4, counters
    assert counters["bytes-sent"] in (42 + 4, 60 + 4), counters  # padded or not
    assert counters["frames-received"] == counters["frames-sent"] == 1
    other_ip, other_mac = "10.77.0.9", "02:00:00:00:00:09"
    gateway, mac = network.gateway_mac, machine.mac
    forged = {
        "spoofed-mac": frames.ethernet(other_mac, gateway, frames.IPV4, frames.udp(machine.ip, netd.OUTSIDE, 1, 2, b"")),
        "spoofed-ip": frames.ethernet(mac, gateway, frames.IPV4, frames.udp(other_ip, netd.OUTSIDE, 1, 2, b"")),
        "spoofed-arp": frames.arp(2, mac, other_ip, gateway, network.gateway),
        "unsupported": frames.ethernet(mac, gateway, frames.IPV6, bytes(40)),
        "no-receiver": frames.ethernet(mac, other_mac, frames.IPV4, frames.udp(machine.ip, other_ip, 1, 2, b"")),
        "malformed": frames.ethernet(mac, gateway, frames.IPV4, b"\x45\0\0\x14"),
    }
    for kind, frame in forged.items():
        before = network.control.counters()
        port.send(frame)
        assert port.arp(network.gateway)
        after = network.control.counters()
        for name in names:
            if not name.startswith(("bytes", "frames")):
                assert after[name] - before[name] == (name == kind), (kind, name, after)
    mine = network.control.port("a")["counters"]
    assert mine["spoofed-mac"] == 1 and mine["bytes-received"] == after["bytes-received"], mine


def test_counters_are_read_only(bench):
    network, machine, port = one_port(bench)
    control = netd.Control.__new__(netd.Control)
    control.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    control.socket.settimeout(netd.DEADLINE)
    control.socket.connect(str(network.folder / "control.sock"))
    control.buffer, control.descriptors = b"", []
    control.read()
    fd = control.descriptors.pop()
    try:
        mmap.mmap(fd, os.fstat(fd).st_size)
        raise AssertionError("the page of counters can be written")
    except PermissionError:
        pass
    finally:
        os.close(fd)
        control.close()


def read_capture(path):
    data = path.read_bytes()
    magic, major, minor, _, _, _, link = struct.unpack_from("=IHHIIII", data)
    assert (magic, major, minor, link) == (0xA1B2C3D4, 2, 4, 1)
    at, found = 24, []
    while at < len(data):
        seconds, micros, kept, length = struct.unpack_from("=IIII", data, at)
        assert kept <= length and micros < 1000000 and abs(seconds - time.time()) < 3600
        found.append(data[at + 16:at + 16 + kept])
        assert len(found[-1]) == kept, "cut off"
        at += 16 + kept
    return found


def test_a_capture_can_be_read_and_ends_when_told_or_full(bench):
    network, machine, port = one_port(bench)
    path = bench.root / "capture.pcap"
    with path.open("wb") as file:
        network.control.request("capture", {"max_bytes": 1 << 20}, [file.fileno()])
    assert port.arp(network.gateway)
    network.control.request("capture-stop")
    captured = [frames.Packet(frame) for frame in read_capture(path)]
    assert [packet.kind for packet in captured] == [frames.ARP, frames.ARP], len(captured)
    assert [packet.operation for packet in captured] == [1, 2]
    assert port.arp(network.gateway)
    assert len(read_capture(path)) == 2, "it went on"
    with path.open("wb") as file:
        network.control.request("capture", {"max_bytes": 500}, [file.fileno()])
    for _ in range(20):
        assert port.arp(network.gateway)
    assert path.stat().st_size <= 500 and len(read_capture(path)) >= 4


# --- framing ---


def test_a_bad_length_closes_that_port_only(bench):
    network = bench.network()
    ports = [bench.raw(network.machine(name)) for name in "ab"]
    network.start()
    for port in ports:
        port.accept()
    for prefix in (b"\xff\xff\xff\xff", struct.pack("!I", 131073), struct.pack("!I", 0), struct.pack("!I", 13)):
        ports[0].connection.sendall(prefix + bytes(64))
        ports[0].wait_closed()
        assert ports[1].arp(network.gateway), "the other port is alive"
        ports[0].connection.close()
        ports[0].accept()  # it is dialled again
        assert ports[0].arp(network.gateway)
    assert network.control.counters()["bad-length"] == 4, network.control.counters()


def test_frames_may_come_in_any_pieces(bench):
    network, machine, port = one_port(bench)
    frame = frames.arp(1, machine.mac, machine.ip, "00:00:00:00:00:00", network.gateway)
    data = (struct.pack("!I", len(frame)) + frame) * 3
    for byte in data:
        port.connection.sendall(bytes([byte]))
    for _ in range(3):
        assert port.wait(lambda found: found.kind == frames.ARP, 10)


def test_a_port_is_dialled_when_qemu_comes(bench):
    network = bench.network()
    machine = network.machine("a")
    network.start()
    assert not network.control.port("a")["connected"]
    port = bench.raw(machine)
    port.accept()
    assert port.arp(network.gateway)
    network.wait_connected(machine)
    port.close()
    network.wait_connected(machine, False)
    port = bench.raw(machine)
    port.accept()
    assert port.arp(network.gateway)


# --- control ---


def test_the_hello_says_who_it_is(bench):
    network = bench.network("lab", "10.5.0.0/16").start()
    hello = network.control.hello
    assert hello["hello"] == "vmm-netd" and hello["version"] == 1 and hello["network"] == "lab"
    assert set(hello["features"]) >= {"attach", "dial", "forward-tcp", "forward-udp", "capture", "counters"}
    assert hello["pid"] == network.process.pid and hello["engine"] == "slirp" and hello["engine_version"]


def test_vms_come_and_go_over_the_control_socket(bench):
    network = bench.network().start()
    machine = network.machine("late")
    port = bench.raw(machine)
    network.add(machine)
    network.add(machine)  # twice is once
    port.accept()
    assert port.arp(network.gateway)
    assert frames.DhcpReply(port.dhcp(frames.DISCOVER).payload).yours == machine.ip
    status = network.control.request("status")
    assert [one["vm"] for one in status["ports"]] == ["late"]
    assert status["ports"][0]["mac"] == machine.mac and status["ports"][0]["ip"] == machine.ip
    network.machines.remove(machine)
    network.write()
    network.control.request("detach", {"vm": "late"})
    port.wait_closed()
    assert network.control.request("status")["ports"] == []
    assert {"event": "port", "vm": "late", "connected": True} in network.control.events


def test_control_refuses_what_makes_no_sense(bench):
    network = bench.network()
    machine = network.machine("a")
    network.start()
    cases = [
        ("no-such-method", {}, {"unsupported", "invalid_request"}),
        ("attach", {}, {"invalid_request"}),
        ("attach", {"vm": "x", "mac": "nonsense", "ip": "10.77.0.3"}, {"invalid_request"}),
        ("attach", {"vm": "x", "mac": "02:00:00:00:00:01", "ip": "not an address"}, {"invalid_request"}),
        ("detach", {"vm": "nobody"}, {"not_found"}),
        ("dial", {"vm": "nobody", "port": 1}, {"not_found"}),
        ("dial", {"vm": "a", "port": 70000}, {"invalid_request"}),
        ("dial", {"vm": "a", "port": "http"}, {"invalid_request"}),
        ("forward", {"id": "f", "vm": "nobody", "port": 1, "protocol": "tcp", "host_address": "127.0.0.1",
                     "host_port": 0}, {"not_found"}),
        ("forward", {"id": "f", "vm": "a", "port": 1, "protocol": "sctp", "host_address": "127.0.0.1",
                     "host_port": 0}, {"invalid_request", "unsupported"}),
        ("forward", {"id": "f", "vm": "a", "port": 1, "protocol": "tcp", "host_address": "example.org",
                     "host_port": 0}, {"invalid_request"}),
        ("unforward", {"id": "nothing"}, {"not_found"}),
        ("capture", {"max_bytes": 100}, {"invalid_request"}),
    ]
    for method, parameters, codes in cases:
        try:
            network.control.request(method, parameters)
        except netd.Refused as error:
            assert error.code in codes, (method, parameters, error)
            assert error.args[1], "without a reason"
        else:
            raise AssertionError(f"{method} {parameters} was accepted")
    assert network.control.request("status")["ports"][0]["vm"] == machine.name


def test_control_survives_what_is_no_protocol(bench):
    network, machine, port = one_port(bench)
    for data in (b"not json\n", b"[]\n", b"{\"id\":1}\n", b"\0\xff\xfe\n", b"{" * 70000, b"[" * 40000 + b"\n",
                 b"{\"id\":{},\"method\":7}\n"):
        client = netd.Control(network.folder / "control.sock")
        try:
            client.send(data)
            client.socket.shutdown(socket.SHUT_WR)
            while client.socket.recv(65536):
                pass
        except (ConnectionResetError, BrokenPipeError):
            pass
        client.close()
        assert port.arp(network.gateway)
    clients = []
    try:
        for _ in range(20):  # more than it serves
            client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            client.settimeout(10)
            clients.append(client)
            try:
                client.connect(str(network.folder / "control.sock"))
            except BlockingIOError:
                break  # they wait in line, and the line is full
        assert network.control.request("status")
    finally:
        for client in clients:
            client.close()


# --- its life ---


def test_a_folder_has_one_netd(bench):
    network = bench.network().start()
    second = bench.run_netd(network.folder)
    assert second.returncode == 1, second
    assert len(second.stderr.splitlines()) == 1 and str(network.folder) in second.stderr, second.stderr
    assert netd.Control(network.folder / "control.sock").hello["pid"] == network.process.pid


def test_what_is_wrong_is_said_in_one_line(bench):
    assert bench.run_netd().returncode == 2
    assert bench.run_netd("a", "b").returncode == 2
    cases = [("missing", None), ("empty", ""), ("no-json", "{"), ("no-network", "{\"version\":1}"),
             ("version", "{\"version\":99,\"network\":{}}")]
    for name, text in cases:
        folder = bench.root / name
        folder.mkdir()
        if text is not None:
            (folder / "netd.json").write_text(text)
        done = bench.run_netd(folder)
        assert done.returncode == 1, (name, done)
        assert len(done.stderr.splitlines()) == 1, (name, done.stderr)
        assert not (folder / "control.sock").exists(), name


def test_it_ends_when_told_and_leaves_nothing(bench):
    network, machine, port = one_port(bench)
    before = set(os.listdir("/tmp"))
    assert stat.S_IMODE((network.folder / "control.sock").stat().st_mode) & 0o077 == 0
    network.stop()
    port.wait_closed()
    assert set(os.listdir(network.folder)) <= {"netd.json", "control.sock", "netd.lock"}, os.listdir(network.folder)
    assert set(os.listdir("/tmp")) <= before, set(os.listdir("/tmp")) - before
    network.start()  # a socket that is left is no obstacle


def test_it_ends_with_its_file(bench):
    network, machine, port = one_port(bench)
    network.write()  # replaced, not removed
    network.control.port(machine.name)
    (network.folder / "netd.json").unlink()
    assert network.process.wait(netd.DEADLINE) == 0, network.tail()
    port.wait_closed()
    assert "netd.json is gone" in network.tail(), network.tail()
    network.control.close()
    port.connection.close()
    network.start()
    port.accept()
    network.folder.rename(network.folder.with_name("elsewhere"))
    assert network.process.wait(netd.DEADLINE) == 0, network.tail()
    port.wait_closed()


def test_each_half_ends_with_the_other(bench):
    network, machine, port = one_port(bench)
    switch = netd.eventually(lambda: netd.children(network.process.pid), "no second half")[0]
    os.kill(switch, 9)
    assert network.process.wait(netd.DEADLINE) == 1
    port.wait_closed()
    network.control.close()
    port.connection.close()
    network.start()
    port.accept()
    network.kill()  # checks that the other half follows
    port.wait_closed()


def test_the_sandbox_is_closed(bench):
    network, machine, port = one_port(bench)
    switch = netd.children(network.process.pid)[0]
    status = dict(line.split(":\t", 1) for line in
                  pathlib.Path(f"/proc/{switch}/status").read_text().splitlines() if ":\t" in line)
    assert int(status["CapEff"], 16) == int(status["CapPrm"], 16) == int(status["CapBnd"], 16) == 0, status["CapBnd"]
    assert status["NoNewPrivs"].strip() == "1" and status["Seccomp"].strip() == "2"
    assert pathlib.Path(f"/proc/{network.process.pid}/status").read_text().count("NoNewPrivs:\t1") == 1
    for kind in ("user", "mnt", "ipc", "uts", "pid"):
        inside, outside = (os.readlink(f"/proc/{pid}/ns/{kind}") for pid in (switch, network.process.pid))
        assert inside != outside, f"the {kind} namespace is shared"
    root = pathlib.Path(f"/proc/{switch}/root")
    names = [str(path) for path in root.rglob("*")]
    assert all(path.is_socket() or path.is_dir() for path in root.rglob("*")), names
    for entry in pathlib.Path(f"/proc/{switch}/fd").iterdir():
        target, details = os.readlink(entry), pathlib.Path(f"/proc/{switch}/fdinfo/{entry.name}").read_text()
        may_write = int(details.split("flags:")[1].split()[0], 8) & os.O_ACCMODE
        is_ours = target in (str(network.log), "/dev/null") or target.startswith("/memfd:")
        assert not target.startswith("/") or not may_write or is_ours, f"it can write to {target}"


TESTS = [function for name, function in list(globals().items()) if name.startswith("test_")]

if __name__ == "__main__":
    netd.enter_namespace()
    netd.run(TESTS, *sys.argv[1:3])
