# SPDX-License-Identifier: LGPL-2.1-or-later
"""The guest's file tree, and the archive that the kernel unpacks it from (format "newc").

Nobody needs to be root for this: owners and devices exist in the archive alone. The same tree makes
the same bytes.
"""

import pathlib
import re
import stat
import subprocess

MODULES = [
    "virtio_pci", "virtio_blk", "virtio_net", "virtio-rng", "vmw_vsock_virtio_transport",
    "button", "evdev", "vfat", "nls_cp437", "nls_ascii", "nls_utf8",
]
PROGRAMS = ["dropbear", "dropbearkey", "mke2fs"]
DIRECTORIES = ["dev", "etc", "lib64", "proc", "root", "run", "sys", "tmp", "usr", "var"]
LIBRARY_FOLDER = "lib/x86_64-linux-gnu"


class Tree:
    def __init__(self):
        self.entries = {}  # path: (mode, bytes, (major, minor))

    def add(self, path, mode, data=b"", device=(0, 0)):
        for parent in reversed(pathlib.PurePosixPath(path).parents):
            if str(parent) != ".":
                self.entries.setdefault(str(parent), (stat.S_IFDIR | 0o755, b"", (0, 0)))
        self.entries[path] = (mode, data, device)

    def directory(self, path, mode=0o755):
        self.add(path, stat.S_IFDIR | mode)

    def file(self, path, source, mode=0o644):
        self.add(path, stat.S_IFREG | mode, pathlib.Path(source).read_bytes())

    def text(self, path, text):
        self.add(path, stat.S_IFREG | 0o644, text.encode())

    def link(self, path, target):
        self.add(path, stat.S_IFLNK | 0o777, target.encode())

    def archive(self, time):
        out = bytearray()
        for number, (path, (mode, data, device)) in enumerate(sorted(self.entries.items()), 1):
            append(out, number, path, mode, data, device, time)
        append(out, 0, "TRAILER!!!", 0, b"", (0, 0), 0)
        return bytes(out)


def append(out, number, path, mode, data, device, time):
    name = path.encode() + b"\0"
    links = 2 if stat.S_ISDIR(mode) else 1
    fields = (number, mode, 0, 0, links, time, len(data), 0, 0, *device, len(name), 0)
    out += b"070701" + b"".join(b"%08X" % field for field in fields) + name
    out += b"\0" * (-len(out) % 4) + data
    out += b"\0" * (-len(out) % 4)


def needed_libraries(path):
    done = subprocess.run(["readelf", "-d", path], stdout=subprocess.PIPE, text=True, check=True)
    return re.findall(r"\(NEEDED\).*\[(.*)\]", done.stdout)


def add_programs(tree, packages):
    waiting = [packages.find(name) for name in PROGRAMS]
    for path in waiting:
        tree.file(f"bin/{path.name}", path, 0o755)
    known = set()
    while waiting:
        for name in needed_libraries(waiting.pop()):
            if name not in known:
                known.add(name)
                library = packages.find(name)
                tree.file(f"{LIBRARY_FOLDER}/{name}", library, 0o755)
                waiting.append(library)
    loader = packages.find("ld-linux-x86-64.so.2")
    tree.file("lib64/ld-linux-x86-64.so.2", loader, 0o755)


def add_busybox(tree, packages):
    busybox = packages.find("busybox")
    tree.file("bin/busybox", busybox, 0o755)
    done = subprocess.run([busybox, "--list"], stdout=subprocess.PIPE, text=True, check=True)
    for name in done.stdout.split():
        if name != "busybox" and f"bin/{name}" not in tree.entries:
            tree.link(f"bin/{name}", "busybox")
    tree.link("init", "bin/busybox")
    for folder in ("sbin", "usr/bin", "usr/sbin"):
        tree.link(folder, "../bin" if "/" in folder else "bin")


def add_modules(tree, packages):
    """Each behind those that it depends on."""
    files = {path.name.split(".ko")[0].replace("-", "_"): path for path in packages.kernel.rglob("*.ko")}
    order = []

    def visit(name):
        if name not in files:
            raise SystemExit(f"mini: the kernel has no module {name}")
        if name in order:
            return
        text = files[name].read_bytes()
        for dependency in re.search(rb"\0depends=([^\0]*)\0", text).group(1).decode().split(","):
            if dependency:
                visit(dependency.replace("-", "_"))
        order.append(name)
        tree.file(f"lib/modules/{name}.ko", files[name])

    for module in MODULES:
        visit(module.replace("-", "_"))
    tree.text("lib/modules/order", "".join(f"{name}\n" for name in order))


def build_tree(packages, guest, helper, os_release):
    tree = Tree()
    for name in DIRECTORIES:
        tree.directory(name, {"root": 0o700, "tmp": 0o1777}.get(name, 0o755))
    # The first process needs it before there is a /dev.
    tree.add("dev/console", stat.S_IFCHR | 0o600, device=(5, 1))
    add_programs(tree, packages)
    add_busybox(tree, packages)
    add_modules(tree, packages)
    tree.file("bin/mini-helper", helper, 0o755)
    tree.text("etc/os-release", os_release)
    for path in sorted(guest.rglob("*")):
        if path.is_file():
            executable = path.stat().st_mode & 0o100
            tree.file(str(path.relative_to(guest)), path, 0o755 if executable else 0o644)
    return tree
