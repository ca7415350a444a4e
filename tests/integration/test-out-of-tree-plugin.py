#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Builds a plugin outside this tree and loads it as the daemon would.

Installs the library into a scratch folder and uses nothing of the source or build tree but what is
installed there: the headers, the library and its pkg-config file.

Usage: test-out-of-tree-plugin.py BUILD-ROOT USE-PLUGIN
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
PACKAGE = "vmm-interfaces-1"


def run(*command, **options):
    result = subprocess.run([str(word) for word in command], text=True, capture_output=True, timeout=300, **options)
    if result.returncode != 0:
        print(f"# {' '.join(str(word) for word in command)}: exit status {result.returncode}")
        for line in (result.stdout + result.stderr).splitlines():
            print("#", line)
        raise AssertionError(f"{command[0]} failed")
    return result.stdout


class Staged:
    """The installed library below a scratch folder."""

    def __init__(self, build_root, scratch):
        run("meson", "install", "-C", build_root, "--no-rebuild", "--destdir", scratch)
        found = list(scratch.rglob(f"{PACKAGE}.pc"))
        assert len(found) == 1, found
        # The tree was moved, so its one absolute path moves with it.
        text = found[0].read_text()
        prefix = re.search(r"^prefix=(.*)$", text, re.M).group(1)
        found[0].write_text(text.replace(f"prefix={prefix}\n", f"prefix={scratch}{prefix}\n", 1))
        self.environment = dict(os.environ, PKG_CONFIG_PATH=str(found[0].parent))
        self.scratch = scratch

    def pkg_config(self, *options):
        return run("pkg-config", *options, PACKAGE, env=self.environment).split()


class Test:
    def __init__(self, build_root, use_plugin, scratch):
        self.use_plugin = use_plugin
        self.scratch = scratch
        self.staged = Staged(build_root, scratch / "root")
        self.compiler = os.environ.get("CC", "cc").split()

    def compile(self, *arguments):
        run(*self.compiler, "-std=gnu17", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror", *arguments)

    def check_variables(self):
        (api,) = self.staged.pkg_config("--variable=plugin_api")
        (folder,) = self.staged.pkg_config("--variable=plugindir")
        assert folder.endswith(f"/vm-manager/plugins-{api}"), folder
        self.folder = pathlib.Path(folder)
        assert self.folder.is_relative_to(self.scratch), folder

    def check_headers(self):
        flags = self.staged.pkg_config("--cflags")
        headers = sorted(self.scratch.rglob("vmm*.h"))
        assert len(headers) >= 9, headers
        for header in headers:
            unit = self.scratch / "header.c"
            unit.write_text(f"#include <interfaces/{header.name}>\n")
            self.compile("-fsyntax-only", unit, *flags)

    def check_build(self):
        self.plugins = self.scratch / "plugins"
        self.plugins.mkdir(mode=0o755)
        module = self.plugins / "libvmm-launcher-example.so"
        source = self.scratch / "vmm-launcher-example.c"
        shutil.copy(HERE / "out-of-tree/vmm-launcher-example.c", source)
        flags = self.staged.pkg_config("--cflags", "--libs")
        self.compile("-shared", "-fPIC", "-fvisibility=hidden", "-o", module, source, *flags)
        module.chmod(0o755)

    def use(self, *arguments):
        return run(self.use_plugin, self.plugins, *arguments).splitlines()

    def check_load(self):
        lines = self.use("example", "sh", "-c", "exit 3")
        assert "launcher example loaded=1 available=1 priority=1 reason=" in lines, lines
        assert "exited: exit status 3" in lines, lines
        assert "exited: signal: killed" in self.use("auto", "sh", "-c", "kill -9 $$")

    def check_errors(self):
        lines = self.use("example", "/nonexistent/program")
        assert any(line.startswith("error: not found: ") for line in lines), lines


def main():
    build_root, use_plugin = sys.argv[1:]
    if shutil.which("pkg-config") is None or shutil.which("meson") is None:
        print("1..0 # SKIP pkg-config and meson are needed")
        return 0
    failed = 0
    with tempfile.TemporaryDirectory(prefix="vmm.") as scratch:
        test = Test(build_root, use_plugin, pathlib.Path(scratch))
        steps = [test.check_variables, test.check_headers, test.check_build, test.check_load, test.check_errors]
        print(f"1..{len(steps)}")
        for number, step in enumerate(steps, 1):
            try:
                step()
                print(f"ok {number} - {step.__name__}")
            except AssertionError as error:
                failed = 1
                print(f"not ok {number} - {step.__name__}: {error}")
    return failed


if __name__ == "__main__":
    sys.exit(main())
