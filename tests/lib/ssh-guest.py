#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""A real sshd as a guest has it, for one connection on stdin.

"root" in it is whoever runs this, or nobody when that is root: the names come from a passwd file in
the guest's folder (nss_wrapper), so that nothing of this machine is touched or needed. An sshd that
is not root itself wants no privileges, and its sessions have none.

Usage: ssh-guest.py prepare FOLDER PUBLIC-KEY-LINE
       ssh-guest.py rekey FOLDER            (a new host key)
       ssh-guest.py openssh|dropbear FOLDER (serves stdin)
"""

import glob
import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
NOBODY = 65534
CONFIG = """\
HostKey {folder}/host_ed25519
HostKey {folder}/host_ecdsa
AuthorizedKeysFile {folder}/.ssh/authorized_keys
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
PidFile none
"""


def find(name, *patterns):
    found = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")
    for pattern in patterns:
        found = found or next(iter(sorted(glob.glob(str(ROOT / ".deps" / "*" / pattern)))), None)
    return found


def make_keys(folder):
    for kind in ("ed25519", "ecdsa"):
        path = folder / f"host_{kind}"
        path.unlink(missing_ok=True)
        subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", "", "-f", path], check=True, input=b"y\n")
    if shutil.which("dropbearkey"):
        path = folder / "host_dropbear"
        path.unlink(missing_ok=True)
        subprocess.run(["dropbearkey", "-t", "ed25519", "-f", path], check=True, stdout=subprocess.DEVNULL)
    hand_over(folder)


def hand_over(folder):
    if os.geteuid() == 0:
        for path in [folder, *folder.rglob("*")]:
            os.chown(path, NOBODY, NOBODY)


def prepare(folder, line):
    owner = NOBODY if os.geteuid() == 0 else os.geteuid()
    (folder / ".ssh").mkdir(mode=0o700)
    (folder / ".ssh/authorized_keys").write_text(line + "\n")
    (folder / "passwd").write_text(f"root:x:{owner}:{owner}:root:{folder}:/bin/sh\n")
    (folder / "group").write_text(f"root:x:{owner}:\n")
    (folder / "sshd_config").write_text(CONFIG.format(folder=folder))
    # Nobody may not see where this one lies.
    sshd = find("sshd", "openssh-server/usr/sbin/sshd")
    if sshd:
        shutil.copy(sshd, folder / "sshd")
    for library in glob.glob(str(ROOT / ".deps/*/libwrap0/usr/lib/*/libwrap.so.0")):
        shutil.copy(library, folder / "libwrap.so.0")
    make_keys(folder)


def serve(server, folder):
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    os.environ.update(
        LD_PRELOAD="libnss_wrapper.so",
        LD_LIBRARY_PATH=str(folder),
        NSS_WRAPPER_PASSWD=str(folder / "passwd"),
        NSS_WRAPPER_GROUP=str(folder / "group"),
        HOME=str(folder),
    )
    os.chdir(folder)
    if server == "openssh":
        os.execv(folder / "sshd", ["/usr/sbin/sshd", "-i", "-f", str(folder / "sshd_config"), "-E", str(folder / "log")])
    log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 2)
    os.execv(find("dropbear"), ["dropbear", "-i", "-m", "-r", str(folder / "host_dropbear")])


def main():
    action, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    if action == "prepare":
        prepare(folder, sys.argv[3])
    elif action == "rekey":
        make_keys(folder)
    else:
        serve(action, folder)


if __name__ == "__main__":
    main()
