#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""The real daemon with the plugins of this build: all are there, the right ones are chosen.

Usage: test-real-plugins.py PROGRAM PLUGIN-FOLDER HELPER-FOLDER FAKES-FOLDER module|builtin [PLUGIN...]
"""

import os
import sys

from daemon import DEADLINE, Daemon, run

PROGRAM, FOLDER, HELPERS, FAKES, HOW, *PLUGINS = sys.argv[1:]


def serve(*flags, helpers=HELPERS, **more):
    return Daemon(PROGRAM, FOLDER, *flags, env={"VM_MANAGER_HELPER_DIR": helpers}, **more)


def rows(daemon):
    return {f"{row['kind']}-{row['name']}": row for row in daemon.api("GET", "/host").json["plugins"]}


def test_each_plugin_is_listed():
    with serve() as daemon:
        found = rows(daemon)
        wanted = {name.replace("attest-", "attestor-") for name in PLUGINS}
        assert set(found) == wanted, (sorted(found), sorted(wanted))
        for name, row in found.items():
            assert row["loaded"] and row["available"], row
            assert ("file" in row) == (HOW == "module"), row


def test_best_is_chosen_and_noop_is_not():
    with serve() as daemon:
        for name, row in rows(daemon).items():
            assert row["chosen"] == (not name.startswith("attestor")), row


def test_attestor_is_taken_when_named():
    if "attest-noop" not in PLUGINS:
        return
    with serve("--attestation=noop") as daemon:
        assert rows(daemon)["attestor-noop"]["chosen"]
        assert daemon.api("GET", "/host").json["attestation"]["verifies"] is False


def test_named_noop_serves_who_requires_attestation():
    if "attest-noop" not in PLUGINS:
        return
    with serve("--attestation=noop", plugin_dir=f"{FOLDER}:{FAKES}") as daemon:
        made = daemon.request("POST", "/api/v1/vms", {"name": "web", "wait_for": "none",
                                                      "require_attestation": True})
        assert made.status == 201 and made.json["requireAttestation"], made
        chosen = [name for name, row in rows(daemon).items() if name.startswith("attestor") and row["chosen"]]
        assert chosen == ["attestor-noop"], chosen


def test_unknown_name_ends_the_start():
    daemon = serve("--launcher=nothing")
    status, log = daemon.wait()
    daemon.clean()
    assert status == 1 and '--launcher: "nothing" is not one of [auto' in log, log


def test_daemon_without_a_door_says_so():
    daemon = serve("--listen=", "--listen-unix=")
    daemon.ready.wait(DEADLINE)
    daemon.stop()
    assert any("nobody can reach this daemon" in line for line in daemon.log), daemon.log
    daemon.clean()


def test_slirp_without_its_helper_says_so():
    if "network-slirp" not in PLUGINS:
        return
    with serve(helpers="/nonexistent") as daemon:
        row = rows(daemon)["network-slirp"]
        assert row["loaded"] and not row["available"] and not row["chosen"], row
        assert "/nonexistent/vmm-netd" in row["reason"], row
        assert "network plugin" in daemon.api("GET", "/host").json["missing"]


def test_slirp_brings_networks_up_and_down():
    if "network-slirp" not in PLUGINS:
        return
    with serve() as daemon:
        made = daemon.api("POST", "/networks", {"name": "lab", "cidr": "10.77.0.0/24", "mtu": 9000}, 201).json
        assert made["spec"]["mtu"] == 9000 and "error" not in made, made
        folder = os.path.join(daemon.state, "networks", "lab")
        assert {"netd.json", "control.sock"} <= set(os.listdir(folder)), os.listdir(folder)
        networks = daemon.api("GET", "/networks").json
        assert [row["spec"]["name"] for row in networks] == ["default", "lab"], networks
        assert not any("error" in row for row in networks), networks
        assert daemon.api("GET", "/host").json["networkEngine"] == "libslirp"
        daemon.api("DELETE", "/networks/lab", status=204)
        assert not os.path.exists(folder)


def test_without_a_network_nothing_is_created_or_left():
    with serve(helpers="/nonexistent") as daemon:
        answer = daemon.request("POST", "/api/v1/vms", {"name": "web", "require_attestation": False})
        assert answer.status in (400, 501), answer
        assert daemon.vms() == []
        assert daemon.api("GET", "/networks").json == []


run([value for name, value in list(globals().items()) if name.startswith("test_")])
