#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Every flag and variable that a program's --help shows is in its manual page, and no others are.

Usage: check-manual.py PREFIX LEAST MANUAL.rst PROGRAM [ARGUMENT...]

PREFIX begins the names of its variables; fewer than LEAST flags or variables are not believed.
"""

import re
import subprocess
import sys

# Those are GLib's, or for plugins, which read them themselves.
ELSEWHERE = {"--version", "--verbose", "--help", "VM_MANAGER_HELPER_DIR"}


def main():
    prefix, least, manual, *command = sys.argv[1:]
    shown = subprocess.run([*command, "--help"], capture_output=True, text=True, check=True).stdout
    with open(manual, encoding="utf-8") as file:
        written = file.read()
    failures = 0
    for what, pattern in (("flag", r"--[a-z][a-z-]+"), ("variable", prefix + r"[A-Z_]+")):
        in_help, in_manual = set(re.findall(pattern, shown)), set(re.findall(pattern, written))
        if len(in_help) < int(least):
            print(f"--help shows only {len(in_help)} {what}s")
            failures += 1
        for name in sorted(in_help - in_manual):
            print(f"{what} {name} is in --help, not in the manual")
            failures += 1
        for name in sorted(in_manual - in_help - ELSEWHERE):
            print(f"{what} {name} is in the manual, not in --help")
            failures += 1
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
