# SPDX-License-Identifier: LGPL-2.1-or-later
"""One EFI program of boot stub, kernel, initial RAM disk and command line, and what it measures.

The sections go behind those of the stub. Each is as long in memory as it is, without padding, so
that what the stub measures is what was put in (the kernel needs more room than its file has: the stub
finds it some).
"""

import hashlib
import struct

# The order in which the stub measures. A signature (.pcrsig) cannot cover itself.
MEASURED = [".linux", ".osrel", ".cmdline", ".initrd", ".ucode", ".splash", ".dtb", ".uname", ".sbat",
            ".pcrpkey", ".profile", ".dtbauto", ".hwids"]
PHASES = ["enter-initrd", "leave-initrd", "sysinit", "ready"]
SECTION = struct.Struct("<8sIIIIIIHHI")
READABLE_DATA = 0x40000040


class Headers:
    """Of a PE file: what has to be read, and changed, to add a section."""

    def __init__(self, image):
        self.coff = struct.unpack_from("<I", image, 0x3C)[0] + 4
        if image[:2] != b"MZ" or image[self.coff - 4:self.coff] != b"PE\0\0":
            raise ValueError("not an EFI program")
        self.optional = self.coff + 20
        if struct.unpack_from("<H", image, self.optional)[0] != 0x20B:
            raise ValueError("not a 64-bit EFI program")
        self.alignment, self.file_alignment = struct.unpack_from("<II", image, self.optional + 32)
        self.size_of_headers = struct.unpack_from("<I", image, self.optional + 60)[0]
        count, = struct.unpack_from("<H", image, self.coff + 2)
        self.table = self.optional + struct.unpack_from("<H", image, self.coff + 16)[0]
        self.sections = [SECTION.unpack_from(image, self.table + i * SECTION.size) for i in range(count)]


def round_up(value, step):
    return (value + step - 1) // step * step


def build(stub, sections):
    """sections: (name, bytes) in the order they are to have."""
    image = bytearray(stub)
    headers = Headers(image)
    end = headers.table + (len(headers.sections) + len(sections)) * SECTION.size
    if end > headers.size_of_headers or any(image[headers.table + len(headers.sections) * SECTION.size:end]):
        raise ValueError("the stub has no room for more sections")
    address = max(section[2] + section[1] for section in headers.sections)
    table = headers.table + len(headers.sections) * SECTION.size
    added = 0
    for name, data in sections:
        address = round_up(address, headers.alignment)
        image += b"\0" * (-len(image) % headers.file_alignment)
        offset = len(image)
        image += data + b"\0" * (-len(data) % headers.file_alignment)
        SECTION.pack_into(image, table, name.encode(), len(data), address, len(image) - offset, offset,
                          0, 0, 0, 0, READABLE_DATA)
        table += SECTION.size
        address += len(data)
        added += len(image) - offset
    struct.pack_into("<H", image, headers.coff + 2, len(headers.sections) + len(sections))
    data_size, = struct.unpack_from("<I", image, headers.optional + 8)
    struct.pack_into("<I", image, headers.optional + 8, data_size + added)
    struct.pack_into("<I", image, headers.optional + 56, round_up(address, headers.alignment))
    struct.pack_into("<I", image, headers.optional + 64, 0)  # the checksum, which nobody looks at
    return bytes(image)


def read_sections(image):
    found = {}
    for name, size, _, raw_size, offset, *_ in Headers(image).sections:
        data = image[offset:offset + min(size, raw_size)]
        found[name.rstrip(b"\0").decode()] = data + b"\0" * (size - len(data))
    return found


def extend(register, data):
    return hashlib.sha256(register + hashlib.sha256(data).digest()).digest()


def predict_pcr11(image):
    """What PCR 11 holds when a phase has begun: {phase path: hex}."""
    sections = read_sections(image)
    register = bytes(32)
    for name in MEASURED:
        if name in sections:
            register = extend(extend(register, name.encode() + b"\0"), sections[name])
    values = {}
    for i, phase in enumerate(PHASES):
        register = extend(register, phase.encode())
        values[":".join(PHASES[:i + 1])] = register.hex()
    return values
