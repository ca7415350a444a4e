#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""The mini guest's helper: partition tables as sfdisk reads them, and refusals. Speaks TAP.

Usage: test-mini-helper.py PROGRAM
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
from daemon import Skip, run  # noqa: E402

PROGRAM = sys.argv[1]
MIB = 1 << 20
DISK = "01234567-89AB-CDEF-0123-456789ABCDEF"
ESP = "C12A7328-F81F-11D2-BA4B-00A0C93EC93B"
VAR = "4D21B016-B534-45C2-A9FB-5C16E091FD2D"
IDS = ["00000000-0000-4000-8000-00000000000A", "00000000-0000-4000-8000-00000000000B"]


def helper(*words):
    return subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True, check=False)


def gpt(size, *partitions):
    """The exit status, what was said, and the disk."""
    with tempfile.NamedTemporaryFile(dir="/tmp", delete=False) as disk:
        disk.truncate(size)
    done = helper("gpt", disk.name, DISK, *partitions)
    return done, pathlib.Path(disk.name)


def sfdisk(*words):
    program = shutil.which("sfdisk", path=os.environ["PATH"] + ":/usr/sbin:/sbin")
    if program is None:
        raise Skip("there is no sfdisk")
    return subprocess.run([program, *words], capture_output=True, text=True, check=True).stdout


def test_another_program_reads_the_table():
    done, disk = gpt(100 * MIB, f"esp,{ESP},{IDS[0]},16", f"var,{VAR.lower()},{IDS[1]},0")
    try:
        assert done.returncode == 0, done
        table = json.loads(sfdisk("--json", disk))["partitiontable"]
        assert (table["label"], table["id"]) == ("gpt", DISK), table
        rows = [(row["name"], row["type"], row["uuid"], row["start"], row["size"]) for row in table["partitions"]]
        # The rest but for the table's second copy, up to a border of 1 MiB.
        assert rows == [("esp", ESP, IDS[0], 2048, 16 * 2048), ("var", VAR, IDS[1], 17 * 2048, 82 * 2048)], rows
        assert "No errors detected" in sfdisk("--verify", disk)
    finally:
        disk.unlink()


def test_both_copies_are_whole():
    done, disk = gpt(100 * MIB, f"esp,{ESP},{IDS[0]},16")
    try:
        assert done.returncode == 0, done
        with open(disk, "r+b") as file:  # the first one is lost
            file.seek(512)
            file.write(bytes(34 * 512))
        table = json.loads(sfdisk("--json", disk))["partitiontable"]
        assert table["partitions"][0]["uuid"] == IDS[0], table
    finally:
        disk.unlink()


def test_what_does_not_fit_is_refused():
    for size, sizes in ((3, [1]), (16, [16]), (16, [9, 9]), (16, [14, 0]), (16, [2**64 - 1])):
        partitions = [f"a,{ESP},{IDS[0]},{mib}" for mib in sizes]
        done, disk = gpt(size * MIB, *partitions)
        try:
            assert done.returncode == 1 and "No space left" in done.stderr, (size, partitions, done)
            assert not any(disk.read_bytes()), "something was written"
        finally:
            disk.unlink()


def test_what_is_no_partition_is_refused():
    for text in ("a", f"a,{ESP}", f"a,{ESP},{IDS[0]}", f"a,{ESP[:-1]},{IDS[0]},1", f"a,{ESP}0,{IDS[0]},1",
                 f"a,{ESP},nonsense,1", f"{'x' * 37},{ESP},{IDS[0]},1"):
        done, disk = gpt(16 * MIB, text)
        disk.unlink()
        assert done.returncode == 1 and "Invalid argument" in done.stderr, (text, done)


def test_usage_is_said():
    for words in ([], ["nonsense"], ["gpt"], ["notify", "vsock-stream:2"], ["notify", "/run/socket", "READY=1"],
                  ["notify", "vsock-stream:2:3x", "READY=1"], ["pcr-extend", "24", "0" * 64],
                  ["pcr-extend", "11", "0" * 63], ["pcr-extend", "11", "g" * 64], ["pcr-read", "-1"], ["pcr-read"]):
        done = helper(*words)
        assert done.returncode == 2 and done.stderr.startswith("Usage: mini-helper "), (words, done)


run([test_another_program_reads_the_table, test_both_copies_are_whole, test_what_does_not_fit_is_refused,
     test_what_is_no_partition_is_refused, test_usage_is_said])
