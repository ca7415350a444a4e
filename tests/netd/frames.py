# SPDX-License-Identifier: LGPL-2.1-or-later
"""Ethernet frames of the kinds that guests send: writing them, well or badly, and reading them."""

import ipaddress
import struct

BROADCAST = "ff:ff:ff:ff:ff:ff"
IPV4, ARP, IPV6 = 0x0800, 0x0806, 0x86DD
ICMP, TCP, UDP = 1, 6, 17
FIN, SYN, RST, PSH, ACK = 1, 2, 4, 8, 16
DISCOVER, OFFER, REQUEST, DECLINE, DHCP_ACK, NAK, RELEASE, INFORM = range(1, 9)
DHCP_MAGIC = b"\x63\x82\x53\x63"


def mac_bytes(text):
    return bytes.fromhex(text.replace(":", ""))


def mac_text(data):
    return data.hex(":")


def ip_bytes(text):
    return ipaddress.IPv4Address(text).packed


def ip_text(data):
    return str(ipaddress.IPv4Address(data))


def derived_mac(network, ip):
    """What the manager gives to an address of a network."""
    number = 2166136261
    for byte in network.encode():
        number = (number ^ byte) * 16777619 & 0xFFFFFFFF
    return mac_text(bytes([2, number & 0xFF]) + ip_bytes(ip))


def checksum(data):
    if len(data) % 2:
        data += b"\0"
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def ethernet(source, destination, kind, payload):
    return mac_bytes(destination) + mac_bytes(source) + struct.pack("!H", kind) + payload


def arp(operation, sender_mac, sender_ip, target_mac, target_ip, source=None, destination=BROADCAST):
    body = struct.pack("!HHBBH", 1, IPV4, 6, 4, operation)
    body += mac_bytes(sender_mac) + ip_bytes(sender_ip) + mac_bytes(target_mac) + ip_bytes(target_ip)
    return ethernet(source or sender_mac, destination, ARP, body)


def ipv4(source, destination, protocol, payload, identity=1, flags=0, offset=0, ttl=64):
    head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(payload), identity, flags << 13 | offset // 8, ttl, protocol, 0)
    head += ip_bytes(source) + ip_bytes(destination)
    return head[:10] + struct.pack("!H", checksum(head)) + head[12:] + payload


def with_transport_checksum(source, destination, protocol, segment, at):
    pseudo = ip_bytes(source) + ip_bytes(destination) + struct.pack("!BBH", 0, protocol, len(segment))
    value = checksum(pseudo + segment) or 0xFFFF
    return segment[:at] + struct.pack("!H", value) + segment[at + 2:]


def udp(source, destination, source_port, destination_port, payload):
    segment = struct.pack("!HHHH", source_port, destination_port, 8 + len(payload), 0) + payload
    return ipv4(source, destination, UDP, with_transport_checksum(source, destination, UDP, segment, 6))


def tcp(source, destination, source_port, destination_port, flags, sequence=1000, acknowledge=0, payload=b"",
        options=b""):
    length = (20 + len(options)) // 4
    segment = struct.pack("!HHIIBBHHH", source_port, destination_port, sequence, acknowledge, length << 4, flags,
                          65535, 0, 0) + options + payload
    return ipv4(source, destination, TCP, with_transport_checksum(source, destination, TCP, segment, 16))


def echo_request(source, destination, identity=7, sequence=1, payload=b"ping"):
    body = struct.pack("!BBHHH", 8, 0, 0, identity, sequence) + payload
    body = body[:2] + struct.pack("!H", checksum(body)) + body[4:]
    return ipv4(source, destination, ICMP, body)


class Packet:
    """A frame taken apart as far as it goes; what is not there is None."""

    def __init__(self, frame):
        self.frame = frame
        self.destination, self.source = mac_text(frame[:6]), mac_text(frame[6:12])
        self.kind = struct.unpack("!H", frame[12:14])[0]
        self.protocol = self.ip_source = self.ip_destination = None
        self.source_port = self.destination_port = self.flags = self.payload = None
        body = frame[14:]
        if self.kind == ARP:
            self.operation = struct.unpack("!H", body[6:8])[0]
            self.sender_mac, self.sender_ip = mac_text(body[8:14]), ip_text(body[14:18])
            self.target_mac, self.target_ip = mac_text(body[18:24]), ip_text(body[24:28])
        elif self.kind == IPV4:
            self.parse_ip(body)

    def parse_ip(self, body):
        header = (body[0] & 15) * 4
        total, self.identity, fragment = struct.unpack("!HHH", body[2:8])
        self.ip_flags, self.offset = fragment >> 13, (fragment & 0x1FFF) * 8
        self.protocol = body[9]
        self.ip_source, self.ip_destination = ip_text(body[12:16]), ip_text(body[16:20])
        self.ip_good = checksum(body[:header]) == 0
        segment = body[header:total]
        if self.protocol == UDP and not self.offset:
            self.source_port, self.destination_port = struct.unpack("!HH", segment[:4])
            self.payload = segment[8:]
        elif self.protocol == TCP and not self.offset:
            self.source_port, self.destination_port, self.sequence, self.acknowledge = struct.unpack("!HHII", segment[:12])
            self.flags = segment[13]
            self.payload = segment[(segment[12] >> 4) * 4:]
        elif self.protocol == ICMP:
            self.payload = segment
        if self.protocol in (TCP, UDP) and not self.offset and not self.ip_flags & 1:
            pseudo = body[12:20] + struct.pack("!BBH", 0, self.protocol, len(segment))
            self.checksum_good = checksum(pseudo + segment) == 0


def dhcp_message(kind, hardware, transaction=0x12345678, options=(), client="0.0.0.0", relay="0.0.0.0", flags=0):
    """The payload of a request; @options are pairs of a code and bytes, behind the message type."""
    body = struct.pack("!BBBBIHH", 1, 1, 6, 0, transaction, 0, flags)
    body += ip_bytes(client) + bytes(8) + ip_bytes(relay) + mac_bytes(hardware) + bytes(10 + 64 + 128) + DHCP_MAGIC
    for code, value in [(53, bytes([kind])), *options]:
        body += bytes([code, len(value)]) + value
    return body + b"\xff"


class DhcpReply:
    def __init__(self, payload):
        self.operation = payload[0]
        self.transaction, _, self.flags = struct.unpack("!IHH", payload[4:12])
        self.client, self.yours, self.server, self.relay = (ip_text(payload[at:at + 4]) for at in (12, 16, 20, 24))
        self.hardware = mac_text(payload[28:34])
        assert payload[236:240] == DHCP_MAGIC, "no DHCP magic"
        self.options, self.order = {}, []
        at = 240
        while payload[at] != 255:
            if payload[at] == 0:
                at += 1
                continue
            code, length = payload[at], payload[at + 1]
            assert at + 2 + length < len(payload), f"option {code} runs over the end"
            self.options[code] = self.options.get(code, b"") + payload[at + 2:at + 2 + length]
            self.order.append(code)
            at += 2 + length
        self.kind = self.options[53][0]


def dns_name(name):
    return b"".join(bytes([len(part)]) + part.encode() for part in name.split(".")) + b"\0"


def dns_query(name, kind=1, identity=0x4242, edns=None):
    """A question; with @edns an OPT record that offers that size."""
    extra = b"" if edns is None else b"\0" + struct.pack("!HHIH", 41, edns, 0, 0)
    return struct.pack("!HHHHHH", identity, 0x0100, 1, 0, 0, 1 if extra else 0) + dns_name(name) + struct.pack(
        "!HH", kind, 1) + extra
