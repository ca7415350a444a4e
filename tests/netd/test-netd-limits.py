#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Many guests use up all that they may have at the same time: what they may not have is left.

Usage: test-netd-limits.py VMM-NETD STREAM-TAP [sanitized]"""

import pathlib
import resource
import sys

import frames
import netd
import transfer

DESCRIPTORS = 1024
MAPPED_KIB = 700 << 10
SANITIZED = "sanitized" in sys.argv  # the sanitizer's memory is not netd's


def start_with_few_descriptors(network):
    before = netd.die_with_parent

    def prepare():
        before()
        resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))

    netd.die_with_parent = prepare
    try:
        return network.start()
    finally:
        netd.die_with_parent = before


class Crowd:
    """Guests that want everything, one that wants little, and one that is not there yet."""

    def __init__(self, bench, size):
        self.network = bench.network()
        machines = [self.network.machine(f"greedy-{number}") for number in range(size)]
        self.modest, self.late = self.network.machine("modest"), self.network.machine("late")
        self.metadata = bench.keep(netd.Metadata(self.modest))
        self.greedy = [bench.raw(machine) for machine in machines]
        self.guest = bench.guest(self.modest)
        start_with_few_descriptors(self.network)
        self.guest.lease()
        for port in self.greedy:
            port.accept()

    def all(self, make, count):
        """Each sends @count packets, packet @number being make(its address, @number)."""
        for port in self.greedy:
            for start in range(0, count, 50):
                port.send(*(frames.ethernet(port.machine.mac, self.network.gateway_mac, frames.IPV4,
                                            make(port.machine.ip, number)) for number in range(start, start + 50)))
            port.arp(self.network.gateway)  # answered behind all of them

    def flows(self):
        return {port["vm"]: port["flows"] for port in self.network.control.request("status")["ports"]}

    def check_others(self, bench):
        flows = self.flows()
        print(f"# flows {flows}", flush=True)
        assert sum(flows.values()) <= DESCRIPTORS // 4, flows
        assert all(flows[port.machine.name] for port in self.greedy), flows
        thing = self.guest.do("tcp_open", address="169.254.169.254", port=80)
        self.guest.do("tcp_send", thing=thing, data="GET / HTTP/1.0\r\n\r\n")
        self.guest.do("tcp_end", thing=thing)
        assert self.guest.do("tcp_receive", thing=thing)["data"].endswith("modest")
        listener = self.guest.do("tcp_listen")
        self.network.control.dial("modest", listener["port"]).close()
        second = netd.Control(self.network.folder / "control.sock")
        assert second.page, "no page of counters"
        second.close()
        port = bench.raw(self.late).accept()
        assert port.arp(self.network.gateway), "the one that comes late is not heard"


def test_datagrams_of_all_guests(bench):
    crowd = Crowd(bench, 8)
    crowd.all(lambda ip, number: frames.udp(ip, netd.BLACK_HOLE, 2000 + number, 9, b"?"), 600)
    crowd.check_others(bench)


def test_connections_of_all_guests(bench):
    crowd = Crowd(bench, 8)
    crowd.all(lambda ip, number: frames.tcp(ip, netd.BLACK_HOLE, 2000 + number, 9, frames.SYN), 600)
    crowd.check_others(bench)


def test_echo_requests_of_all_guests(bench):
    try:
        pathlib.Path("/proc/sys/net/ipv4/ping_group_range").write_text("0 0")
    except OSError as error:
        raise netd.Skip("nobody may ping here") from error
    crowd = Crowd(bench, 8)
    crowd.all(lambda ip, number: frames.echo_request(ip, netd.BLACK_HOLE, 1 + number), 600)
    crowd.check_others(bench)


def test_names_for_all_guests(bench):
    crowd = Crowd(bench, 20)
    crowd.network.set_resolvers(netd.BLACK_HOLE)
    for port in crowd.greedy:
        for number in range(70):
            query = frames.dns_query("a.example", identity=number)
            port.to_gateway(crowd.network, frames.udp(port.machine.ip, crowd.network.gateway, 3000 + number, 53, query))
        port.arp(crowd.network.gateway)
    second = netd.Control(crowd.network.folder / "control.sock")
    assert second.page, "no page of counters"
    second.close()
    port = bench.raw(crowd.late).accept()
    assert port.arp(crowd.network.gateway), "the one that comes late is not heard"


def open_to_outside(port, network, source_port, server_port):
    """Returns what the server's end wants to be acknowledged."""
    ip = port.machine.ip
    port.to_gateway(network, frames.tcp(ip, netd.OUTSIDE, source_port, server_port, frames.SYN, sequence=1000))
    answer = port.wait(lambda packet: packet.protocol == frames.TCP and packet.destination_port == source_port)
    assert answer and answer.flags == frames.SYN | frames.ACK, "not connected"
    return answer.sequence + 1


def send_ahead(port, network, source_port, server_port, acknowledge, count):
    """Segments behind one that never comes."""
    payload = bytes(1400)
    segments = [frames.tcp(port.machine.ip, netd.OUTSIDE, source_port, server_port, frames.ACK,
                           sequence=1001 + number * 1401, acknowledge=acknowledge, payload=payload)
                for number in range(1, count + 1)]
    port.send(*(frames.ethernet(port.machine.mac, network.gateway_mac, frames.IPV4, segment) for segment in segments))


def test_segments_out_of_order_of_all_guests(bench):
    network = bench.network()
    ports = [bench.raw(network.machine(f"greedy-{number}")) for number in range(130)]
    network.start()
    server = bench.keep(transfer.listen(netd.OUTSIDE, mode="digest"))
    switch = network.pids()[1]
    before = netd.status_field(switch, "VmSize")
    for port in ports:
        port.accept()
        for source_port in range(4000, 4005):
            acknowledge = open_to_outside(port, network, source_port, server.port)
            send_ahead(port, network, source_port, server.port, acknowledge, 60)
        assert port.arp(network.gateway), "nobody answers"
    grown = netd.status_field(switch, "VmSize") - before
    print(f"# {grown >> 10} MiB mapped, {network.rss_mib():.0f} MiB in use", flush=True)
    assert SANITIZED or grown < MAPPED_KIB, f"{grown >> 10} MiB"


if __name__ == "__main__":
    netd.enter_namespace()
    words = [word for word in sys.argv[1:] if word != "sanitized"]
    netd.run([function for name, function in list(globals().items()) if name.startswith("test_")], *words)
