# SPDX-License-Identifier: LGPL-2.1-or-later
"""The disk image: a partition table with one boot partition, sparse, the same bytes each time."""

import os
import subprocess
import uuid

MIB = 1 << 20
ESP_MIB = 64
ESP_TYPE = "c12a7328-f81f-11d2-ba4b-00a0c93ec93b"
NAMESPACE = uuid.UUID("6b1d4c52-0a53-5c1e-9b5f-6d696e690000")


def make_esp(path, files, time):
    """files: {path on the partition: bytes}"""
    environment = dict(os.environ, SOURCE_DATE_EPOCH=str(time), TZ="UTC", MTOOLS_SKIP_CHECK="1")
    with open(path, "wb") as esp:
        esp.truncate(ESP_MIB * MIB)
    subprocess.run(["mkfs.vfat", "--invariant", "-F", "32", "-s", "1", "-n", "ESP", path], check=True,
                   stdout=subprocess.DEVNULL, env=environment | {"PATH": environment["PATH"] + ":/usr/sbin:/sbin"})
    folders = sorted({str(parent) for name in files for parent in _parents(name)})
    for folder in folders:
        subprocess.run(["mmd", "-i", path, "::/" + folder], check=True, env=environment)
    for name, data in sorted(files.items()):
        local = path.with_suffix(".file")
        local.write_bytes(data)
        os.utime(local, (time, time))
        subprocess.run(["mcopy", "-m", "-i", path, local, "::/" + name], check=True, env=environment)
        local.unlink()


def _parents(name):
    parts = name.split("/")[:-1]
    return ["/".join(parts[:i + 1]) for i in range(len(parts))]


def make_disk(path, esp, helper, reference):
    """reference names the image, and by it its identifiers."""
    with open(path, "wb") as disk:
        disk.truncate((ESP_MIB + 2) * MIB)
    partition = f"esp,{ESP_TYPE},{uuid.uuid5(NAMESPACE, reference + '/esp')},{ESP_MIB}"
    subprocess.run([helper, "gpt", path, str(uuid.uuid5(NAMESPACE, reference)), partition], check=True)
    with open(esp, "rb") as source, open(path, "r+b") as disk:
        offset = MIB
        while block := source.read(MIB):
            if any(block):
                disk.seek(offset)
                disk.write(block)
            offset += len(block)
