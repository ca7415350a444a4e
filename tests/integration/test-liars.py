#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""The programs of VMs lie to the real daemon, many at once: each lie fails its own VM, in bounded time and with a message
that says what is wrong, or does no harm; the daemon goes on answering, and nothing is left.

Who lies, and which test has it (never, late, oversized, torn, out of order, somebody else's):

  QMP                here "qmp-*"; part by part: test-qmp, and the monitor's own connection: test-monitor-qmp
  swtpm's control    here "tpm-*"; test-tpm (silent, short answer, exits, cancelled)
  journal            here "journal-*"; test-witness (lies, hello, numbers), test-witness-monitor
  notify (vsock)     test-monitor-notify (silent, time limit, long text, rate), test-monitor.py (floods, none, rude clients)
  sshd               test-ssh-exec (19 failures, 9 stalls, late, lasting, changed key), test-ssh-pin
  metadata requests  test-imds.py (slow heads, deaf readers, pipelined flood, bodies); test-http (head limits, torn)
  netd's control     test-network-slirp (bad hello, silence, garbage, others' answers, endless events, descriptors)

Usage: test-liars.py PROGRAM PLUGIN-FOLDER FAKES-FOLDER LIAR
"""

import concurrent.futures
import os
import sys

from daemon import Daemon, run

PROGRAM, PLUGINS, FAKES, LIAR = sys.argv[1:]
AT_ONCE = 6  # what a loaded machine starts within the limits of those that tell the truth
PROGRAMS = ("qemu-system-x86_64", "swtpm", "swtpm_setup", "vhost-device-vsock", "vmm-monitor")

# What is said of each; None when it does no harm. Where it is tried again until the time is up, the reason of an earlier
# attempt is not always the one that is told.
LIES = {
    "qmp-true": None,
    "qmp-late": None,
    "qmp-twice": None,
    "qmp-never": "did not answer within 10s",
    "qmp-torn": "did not answer within 10s",
    "qmp-oversized": "did not answer within 10s",
    "qmp-elsewhere": "not a QMP server",
    "qmp-early": "not a QMP server",
    "qmp-events": "did not answer within 10s",
    "qmp-mute": "qmp cont: no answer within 10000 ms",
    "qmp-leaving": "qmp cont: connection closed: end of file",
    "qmp-halved": "qmp cont: connection closed: end of file within a line",
    "qmp-deep": "qmp cont: connection closed: a line is not a JSON object",
    "qmp-others": "qmp cont: no answer within 10000 ms",
    "qmp-refusing": "qmp cont: GenericError: ",
    "tpm-late": None,
    "tpm-never": "swtpm.sock did not answer within 5s",
    "tpm-torn": "swtpm.sock did not answer within 5s",
    "tpm-oversized": None,
    "tpm-dribbling": "swtpm.sock did not answer within 5s",
    "journal-late": None,
    "journal-never": "monitor.sock did not answer within 5s",
    "journal-torn": "monitor.sock did not answer within 5s",
    "journal-oversized": "monitor.sock did not answer within 5s",
    "journal-elsewhere": "the socket is not served by vmm-monitor",
    "journal-newer": "speaks version 99 of its protocol",
    "journal-backwards": None,
    "journal-huge": None,
}


class Liars(Daemon):
    def host_environment(self):
        folder = os.path.join(self.folder, "bin")
        os.makedirs(folder)
        for name in PROGRAMS:
            os.symlink(os.path.abspath(LIAR), os.path.join(folder, name))
        return {"VM_MANAGER_ACCELERATOR": "tcg", "PATH": folder + ":" + os.environ["PATH"],
                "VM_MANAGER_HELPER_DIR": folder}


def test_many_at_once():
    with Liars(PROGRAM, "", "--launcher=process", "--network=fake", "--storage=files", "--attestation=fake",
               "--install-timeout=30s", "--stop-timeout=2s", plugin_dir=PLUGINS + ":" + FAKES) as daemon:
        def told(name):
            """(whether the installation succeeded, what is said)"""
            answer = daemon.api("POST", "/vms", {"name": name, "disk_gib": 1, "require_attestation": False,
                                                 "wait_for": "installed"})
            assert daemon.request("GET", "/healthz").body == b"ok"
            if answer.status == 201:
                return True, ""
            said = answer.error["message"]
            assert answer.status in (500, 501, 504) and 0 < len(said) < 4096 and "\x1b" not in said, (name, answer)
            return False, said

        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            outcomes = dict(zip(LIES, pool.map(told, LIES)))
        for name, (installed, said) in outcomes.items():
            print(f"# {name}: {'installed' if installed else said[:300]!r}")
        for name, (installed, said) in outcomes.items():
            if LIES[name] is None:
                assert installed, (name, said)
            else:
                assert not installed and LIES[name] in said, (name, installed, said)
        for vm in daemon.vms():
            daemon.api("DELETE", "/vms/" + vm["id"], status=204)
        assert daemon.vms() == [] and os.listdir(daemon.state + "/vms") == []
        print(f"# lies: {len(LIES) - 1} told")


if __name__ == "__main__":
    run([test_many_at_once])
