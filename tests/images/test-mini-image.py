#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""The files of the mini guest's image, without booting them (tests/e2e does that). Speaks TAP."""

import contextlib
import functools
import hashlib
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "tests/integration"))
sys.path.insert(0, str(ROOT / "images/mini"))
from daemon import Skip, run  # noqa: E402
import uki  # noqa: E402

MIB = 1 << 20


def build(*words):
    done = subprocess.run([ROOT / "images/mini/build", *words], capture_output=True, text=True, check=False)
    if "cannot get" in done.stderr and not (ROOT / "build/mini").exists():
        raise Skip("Debian's packages cannot be had: " + done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, done.stderr
    return pathlib.Path(done.stdout.strip())


@functools.cache
def image():
    return build()


def content(suffix):
    path, = image().glob("mini_*" + suffix)
    return path.read_bytes()


def objdump(*words):
    return subprocess.run(["objdump", *words], capture_output=True, text=True, check=True).stdout


@contextlib.contextmanager
def esp():
    """The boot partition as a file of its own."""
    with tempfile.NamedTemporaryFile(dir="/tmp") as file:
        file.write(content(".raw")[MIB:65 * MIB])
        file.flush()
        yield file.name


def mtype(partition, name):
    done = subprocess.run(["mtype", "-i", partition, "::/" + name], capture_output=True, check=True)
    return done.stdout


def test_files_are_those_of_the_contract():
    names = sorted(path.name for path in image().iterdir() if not path.name.startswith("."))
    policy = json.loads((image() / "policy.json").read_text(encoding="utf-8"))
    reference = f"{policy['image_id']}_{policy['image_version']}"
    assert names == [reference + ".efi", reference + ".raw", "policy.json"], names
    assert policy["uki"] == reference + ".efi" and policy["image_id"] == "mini", policy


def test_another_program_reads_the_sections():
    path, = image().glob("*.efi")
    rows = {}
    for line in objdump("-h", path).splitlines():
        words = line.split()
        if len(words) == 7 and words[0].isdigit():
            rows[words[1]] = (int(words[2], 16), int(words[3], 16), int(words[5], 16))
    image_base = int(objdump("-p", path).split("ImageBase")[1].split()[0], 16)
    data = path.read_bytes()
    last = 0
    for name, text in uki.read_sections(data).items():
        size, address, offset = rows[name]
        assert text[:size] == data[offset:offset + len(text[:size])], name
        assert address - image_base >= last, f"{name} overlaps the section before it"
        last = address - image_base + len(text)
    assert {".linux", ".initrd", ".cmdline", ".osrel", ".uname", ".sbat"} <= set(rows), rows


def test_command_line_leaves_to_the_host_what_is_the_hosts():
    words = uki.read_sections(content(".efi"))[".cmdline"].decode().split()
    assert "console=ttyS0,115200" in words, words
    # A panic that reboots would look like an installer that is done.
    assert not any(word.startswith(("ignition.", "panic=", "init=", "rdinit=")) for word in words), words


def test_kernel_is_not_touched():
    kernel = uki.read_sections(content(".efi"))[".linux"]
    release = uki.read_sections(content(".efi"))[".uname"].decode()
    original, = ROOT.glob(f".deps/bookworm/linux-image-{release}/boot/vmlinuz-*")
    assert kernel == original.read_bytes()


def test_pcr11_is_what_the_formula_says():
    """The formula once more, on what objcopy takes out: the padding of the file is not measured."""
    path, = image().glob("*.efi")
    sizes = {name.rstrip(b"\0").decode(): size for name, size, *_ in uki.Headers(path.read_bytes()).sections}
    register = bytes(32)

    def extend(data):
        return hashlib.sha256(register + hashlib.sha256(data).digest()).digest()

    for name in (".linux", ".osrel", ".cmdline", ".initrd", ".uname", ".sbat"):
        with tempfile.NamedTemporaryFile(dir="/tmp") as out:
            subprocess.run(["objcopy", "-O", "binary", "--only-section=" + name, path, out.name], check=True)
            data = pathlib.Path(out.name).read_bytes()[:sizes[name]]
        register = extend(name.encode() + b"\0")
        register = extend(data.ljust(sizes[name], b"\0"))
    expected = {}
    for phase in ("enter-initrd", "leave-initrd", "sysinit", "ready"):
        register = extend(phase.encode())
        expected[":".join(filter(None, [next(reversed(expected), ""), phase]))] = register.hex()
    assert json.loads((image() / "policy.json").read_text(encoding="utf-8"))["pcr11"] == expected


def test_firmware_finds_loader_and_kernel():
    with esp() as partition:
        loader = mtype(partition, "EFI/BOOT/BOOTX64.EFI")
        reference = next(image().glob("*.efi")).name
        assert mtype(partition, "EFI/Linux/" + reference) == content(".efi")
        assert b"timeout 0\n" in mtype(partition, "loader/loader.conf")
    assert struct.unpack_from("<H", loader, uki.Headers(loader).coff)[0] == 0x8664
    assert b"LoaderInfo: systemd-boot" in loader, "not the loader"


def test_disk_is_well_formed_and_sparse():
    path, = image().glob("*.raw")
    program = shutil.which("sfdisk", path=os.environ["PATH"] + ":/usr/sbin:/sbin")
    if program is None:
        raise Skip("there is no sfdisk")
    said = subprocess.run([program, "--verify", path], capture_output=True, text=True, check=True).stdout
    assert "No errors detected" in said, said
    stat = path.stat()
    assert stat.st_blocks * 512 < stat.st_size / 2, stat


def test_same_inputs_make_the_same_bytes():
    with tempfile.TemporaryDirectory(prefix="vmm-", dir="/tmp") as folder:
        again = build("--output", os.path.join(folder, "again"))
        for path in image().iterdir():
            assert path.read_bytes() == (again / path.name).read_bytes(), path.name


def test_other_files_are_not_removed():
    with tempfile.TemporaryDirectory(prefix="vmm-", dir="/tmp") as folder:
        pathlib.Path(folder, "letter").write_text("dear", encoding="ascii")
        command = [ROOT / "images/mini/build", "--output", folder]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 1 and "holds something else" in done.stderr, done
        assert os.listdir(folder) == ["letter"], os.listdir(folder)
    pathlib.Path(os.path.dirname(folder), f".{os.path.basename(folder)}.lock").unlink()


run([test_files_are_those_of_the_contract, test_another_program_reads_the_sections,
     test_command_line_leaves_to_the_host_what_is_the_hosts, test_kernel_is_not_touched,
     test_pcr11_is_what_the_formula_says, test_firmware_finds_loader_and_kernel, test_disk_is_well_formed_and_sparse,
     test_same_inputs_make_the_same_bytes, test_other_files_are_not_removed])
