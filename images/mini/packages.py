# SPDX-License-Identifier: LGPL-2.1-or-later
"""Debian's packages that the guest is made of: fetched once into .deps/, never installed."""

import pathlib
import re
import subprocess

SOURCE = pathlib.Path(__file__).resolve().parents[2]
SUITE = "bookworm"
KERNEL = "linux-image-cloud-amd64"
PACKAGES = [
    KERNEL, "busybox-static", "dropbear-bin", "e2fsprogs",
    # Libraries of the latter two.
    "libc6", "libtomcrypt1", "libtommath1", "libcrypt1", "zlib1g", "libgmp10",
    "libext2fs2", "libcom-err2", "libblkid1", "libuuid1",
]
# The boot stub and the loader of Debian 12 do not know credentials and measure less.
LOADER_SUITE = "sid"
LOADER = "systemd-boot-efi"


def unpack(suite, names):
    command = [SOURCE / "tests/debian-unpack", suite, *names]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"mini: cannot get {' '.join(names)} of Debian {suite}")
    return dict(zip(names, map(pathlib.Path, done.stdout.split("\n"))))


def field(folder, name):
    control = (folder / "DEBIAN/control").read_text(encoding="utf-8")
    return re.search(rf"^{name}: (.*)$", control, re.M).group(1)


class Packages:
    """Where things are in the unpacked packages."""

    def __init__(self):
        self.folders = unpack(SUITE, PACKAGES)
        # The name of the concrete kernel is in the meta package.
        kernel = re.search(r"linux-image-\d\S+", field(self.folders[KERNEL], "Depends")).group(0)
        self.folders.update(unpack(SUITE, [kernel]))
        self.folders.update(unpack(LOADER_SUITE, [LOADER]))
        self.kernel = self.folders[kernel]
        self.release = kernel.removeprefix("linux-image-")
        self.loader = self.folders[LOADER] / "usr/lib/systemd/boot/efi"

    def versions(self):
        return {name: field(folder, "Version") for name, folder in sorted(self.folders.items())}

    def find(self, name):
        """A program or library, by its file name."""
        for folder in self.folders.values():
            for path in sorted(folder.rglob(name)):
                if path.is_file():
                    return path.resolve()
        raise SystemExit(f"mini: no {name} in {', '.join(PACKAGES)}")
