#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Every flag and variable that 'serve --help' shows is in vm-manager.1, and no others are.

Usage: check-manual.py PROGRAM MANUAL.rst
"""

import re
import subprocess
import sys


def main():
    program, manual = sys.argv[1:]
    shown = subprocess.run([program, "serve", "--help"], capture_output=True, text=True, check=True).stdout
    written = open(manual, encoding="utf-8").read()
    failures = 0
    for what, pattern in (("flag", r"--[a-z][a-z-]+"), ("variable", r"VM_MANAGER_[A-Z_]+")):
        in_help, in_manual = set(re.findall(pattern, shown)), set(re.findall(pattern, written))
        if len(in_help) < 10:
            print(f"--help shows only {len(in_help)} {what}s")
            failures += 1
        for name in sorted(in_help - in_manual):
            print(f"{what} {name} is in --help, not in the manual")
            failures += 1
        # VM_MANAGER_HELPER_DIR is for plugins, which read it themselves.
        for name in sorted(in_manual - in_help - {"--version", "--verbose", "--help", "VM_MANAGER_HELPER_DIR"}):
            print(f"{what} {name} is in the manual, not in --help")
            failures += 1
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
