#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""House rules that a compiler does not know.

Includes go one way, files and functions stay small, some calls are banned, every file
carries its licence, no backend is named in daemon/, translations know their sources. In the
network process only the half outside of the sandbox opens files.
A line may say /* nocheck: reason */ to be passed over by the banned-call rule.

Usage: check-source.py [--self-test]
"""

import os
import pathlib
import re
import sys

MAX_FILE = 800
MAX_FUNCTION = 60
MAX_NESTING = 4

# Lower may not include higher. The first pattern that fits a file's stem decides.
LAYERS = [
    ("main", ["main", "vmm-serve"]),
    ("doors", ["vmm-http", "vmm-probes", "vmm-rest", "vmm-mcp", "vmm-dbus", "vmm-cli", "vmm-oauth", "vmm-imds"]),
    ("operations", ["vmm-operations", "vmm-arguments", "vmm-authority", "vmm-handlers"]),
    ("service", ["vmm-service", "vmm-metrics", "vmm-guest", "vmm-progress-watch"]),
    ("machine", ["vmm-machine", "vmm-waiter"]),
    (
        "steps",
        [
            "vmm-options",
            "vmm-plugin-loader",
            "vmm-plugin-registry",
            "vmm-images",
            "vmm-host",
            "vmm-installed-disk",
            "vmm-network",
            "vmm-sequence",
            "vmm-qemu",
            "vmm-child",
            "vmm-qmp",
            "vmm-tpm",
            "vmm-vsock",
            "vmm-witness",
            "vmm-ssh",
        ],
    ),
    ("base", ["vmm-account", "vmm-arrival-watch", "vmm-coalesced-file", "vmm-etag", "vmm-json", "vmm-time", "vmm-file", "vmm-log", "vmm-state-lock", "vmm-version", "vmm-call", "vmm-exposition", "vmm-line", "vmm-random", "vmm-socket-watch", "vmm-source"]),
]
RANK = {name: len(LAYERS) - i for i, (name, _) in enumerate(LAYERS)}

BANNED = [
    (r"\bg_spawn_(?:command_line_)?sync\s*\(", "blocks the main loop"),
    (r"\bg_subprocess_(?:wait|communicate(?:_utf8)?)\s*\(", "blocks the main loop"),
    (r"\b\w+_(?:call|proxy_new|get|new)_sync\s*\(", "blocks the main loop"),
    (r"\bg_main_context_iteration\s*\(", "a nested main loop"),
    (r"\bg_main_loop_run\s*\(", "only the daemon's start runs a main loop"),
    (r"\bgoto\b", "use g_autoptr and early returns"),
    (r"\bv?sprintf\s*\(", "use g_strdup_printf or g_snprintf"),
    (r"\bstrcpy\s*\(|\bstrcat\s*\(|\bgets\s*\(", "unbounded copy"),
    (r"(?<![\w.>])system\s*\(", "no shell"),
    (r"\bpopen\s*\(", "no shell"),
    (r"\bg_error\s*\(|\babort\s*\(", "nothing outside may end the daemon"),
    (r"\bjson_parser_\w+\s*\(", "outside JSON is read in vmm-json.c alone"),
    (r"\bg_object_set_data\w*\s*\(", "state belongs into a struct"),
    (r"\bg_usleep\s*\(|(?<![\w.>])u?sleep\s*\(", "wait for an event"),
]
BANNED_ALLOWED = {
    ("daemon/vmm-json.c", "json_parser_"),
    ("daemon/vmm-serve.c", "g_main_loop_run"),
}

# plugins/netd is a program of its own that faces guests: it shares nothing with the daemon, and
# these alone, which run before there is a sandbox or outside of it, open anything by name.
NETD = pathlib.PurePath("plugins/netd")
NETD_OPENERS = ["netd-main", "netd-config-file", "netd-path-watch", "netd-sandbox", "netd-warden"]
# A program of its own, too.
MONITOR = pathlib.PurePath("daemon/monitor")
OPENS = re.compile(
    r"(?<![\w.>])(?:open|openat|creat|fopen|freopen|opendir|readlink|realpath|stat|lstat|mkstemp"
    r"|g_open|g_fopen|g_dir_open|g_mapped_file_new|g_mkstemp|g_file_[gs]et_contents\w*|g_file_new_for_\w+"
    r"|g_file_test) \("
)

SPDX = "SPDX-License-Identifier: LGPL-2.1-or-later"
CODE_SUFFIXES = {".c", ".h", ".py", ".sh", ".build"}
COMMENT_OR_STRING = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)


def blank(match):
    """Keeps the line count of what is cut out."""
    return "\n" * match.group(0).count("\n") or " "


def code_only(text):
    return COMMENT_OR_STRING.sub(blank, text)


def layer_of(stem):
    for name, prefixes in LAYERS:
        for prefix in prefixes:
            if stem == prefix or stem.startswith(prefix + "-") or (prefix == "vmm-call" and stem == "vmm-caller"):
                return name
    return None


def check_includes(path, text):
    folder = path.parts[0]
    stem = path.stem
    for number, line in enumerate(text.splitlines(), 1):
        match = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
        if match is None:
            continue
        target = match.group(1)
        if folder == "interfaces" and not (target.startswith("vmm") and "/" not in target):
            yield f"{path}:{number}: interfaces/ includes only its own headers, not {target}"
        if folder == "plugins" and "/" in target and not target.startswith("interfaces/"):
            yield f"{path}:{number}: a plugin includes interfaces/ and its own folder, not {target}"
        if path.parent == NETD and "/" in target:
            yield f"{path}:{number}: netd shares nothing with the daemon, not even {target}"
        if path.parent == MONITOR and not target.startswith("monitor-"):
            yield f"{path}:{number}: the monitor shares nothing with the daemon, not even {target}"
        if folder == "plugins" and "/" not in target and not (ROOT / path.parent / target).exists():
            yield f"{path}:{number}: a plugin includes interfaces/ and its own folder, not {target}"
        if folder != "daemon" or not target.startswith("vmm-"):
            continue
        target_stem = pathlib.PurePath(target).stem
        mine, theirs = layer_of(stem), layer_of(target_stem)
        if theirs is None and not (ROOT / "daemon" / target).exists():
            continue  # generated
        if mine is None or theirs is None:
            yield f"{path}:{number}: {stem if mine is None else target_stem} is in no layer; add it to LAYERS"
        elif RANK[theirs] > RANK[mine]:
            yield f"{path}:{number}: {mine} must not include {theirs} ({target})"


def functions(lines):
    """(name, first line, last line) of each function in GNU layout."""
    start = None
    for index, line in enumerate(lines):
        if line == "{" and index > 0 and not lines[index - 1].rstrip().endswith("="):
            start = index
        elif line == "}" and start is not None:
            head = start - 1
            while head > 0 and not re.match(r"^[A-Za-z_]\w* \(", lines[head]):
                head -= 1
                if start - head > 12:
                    break
            name = lines[head].split(" ")[0]
            yield name, start, index
            start = None


def check_sizes(path, text, code):
    lines = text.splitlines()
    if path.suffix == ".c" and path.parts[0] != "tests" and len(lines) > MAX_FILE:
        yield f"{path}: {len(lines)} lines, at most {MAX_FILE}: split it by subject"
    if path.suffix != ".c" or path.parts[0] == "tests":
        return
    code_lines = code.splitlines()
    for name, first, last in functions(code_lines):
        if last - first + 1 > MAX_FUNCTION:
            yield f"{path}:{first + 1}: {name} has {last - first + 1} lines, at most {MAX_FUNCTION}"
        depth = deepest = 0
        for line in code_lines[first : last + 1]:
            depth += line.count("{")
            deepest = max(deepest, depth)
            depth -= line.count("}")
        if deepest - 1 > MAX_NESTING:
            yield f"{path}:{first + 1}: {name} nests {deepest - 1} levels, at most {MAX_NESTING}"


def check_banned(path, text, code):
    if path.parts[0] in ("tests", "images"):
        return
    raw = text.splitlines()
    for number, line in enumerate(code.splitlines(), 1):
        for pattern, why in BANNED:
            if not re.search(pattern, line):
                continue
            if any(str(path) == allowed and re.search(pattern, call + " (") or
                   str(path) == allowed and call in line for allowed, call in BANNED_ALLOWED):
                continue
            if re.search(r"/\* nocheck: \S", raw[number - 1]):
                continue
            yield f"{path}:{number}: banned: {line.strip()[:60]} ({why})"


def check_netd_opens(path, code):
    if path.parent != NETD or any(path.stem == name or path.stem.startswith(name + "-") for name in NETD_OPENERS):
        return
    for number, line in enumerate(code.splitlines(), 1):
        if OPENS.search(line):
            yield f"{path}:{number}: only {', '.join(NETD_OPENERS)} open files: {line.strip()[:60]}"


def backend_names():
    """The names plugins register, read from their VMM_PLUGIN_DEFINE lines."""
    names = set()
    for path in (ROOT / "plugins").rglob("*.c"):
        text = path.read_text(encoding="utf-8")
        for match in re.finditer(r"^VMM_PLUGIN_DEFINE\s*\(([^)]*)\)", text, re.M | re.S):
            names.update(re.findall(r'"([^"]+)"', match.group(1)))
    return names


def check_backend_names(path, text, names):
    if path.parts[0] != "daemon" or path.suffix not in (".c", ".h"):
        return
    for number, line in enumerate(text.splitlines(), 1):
        for literal in re.findall(r'"((?:\\.|[^"\\])*)"', line):
            if literal in names:
                yield f'{path}:{number}: the backend "{literal}" is named in daemon/'


def check_licence(path, text):
    if path.suffix in CODE_SUFFIXES or path.name in ("run", "meson_options.txt"):
        if SPDX not in "\n".join(text.splitlines()[:4]):
            yield f"{path}: no licence line ({SPDX})"


def check_potfiles(files):
    listed = {line.strip() for line in (ROOT / "po/POTFILES").read_text().splitlines() if line.strip() and not line.startswith("#")}
    marked = set()
    for path, text in files:
        if path.suffix == ".c" and path.parts[0] in ("daemon", "plugins", "interfaces"):
            if re.search(r'(?<!\w)N?_\s*\("', text):
                marked.add(str(path))
    for missing in sorted(marked - listed):
        yield f"po/POTFILES: {missing} has translatable strings and is not listed"
    for stale in sorted(listed - {str(path) for path, _ in files}):
        yield f"po/POTFILES: {stale} does not exist"


def tree():
    for folder in ("interfaces", "daemon", "plugins", "tests", "data", "images", "po"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and path.suffix in CODE_SUFFIXES and "__pycache__" not in path.parts:
                yield path.relative_to(ROOT), path.read_text(encoding="utf-8")
    for name in ("meson.build", "meson_options.txt", "run"):
        yield pathlib.Path(name), (ROOT / name).read_text(encoding="utf-8")


def check_all(files, names):
    for path, text in files:
        yield from check_licence(path, text)
        if path.suffix not in (".c", ".h"):
            continue
        code = code_only(text)
        yield from check_includes(path, text)
        yield from check_sizes(path, text, code)
        yield from check_banned(path, text, code)
        yield from check_netd_opens(path, code)
        yield from check_backend_names(path, text, names)


def self_test():
    """Each rule must catch its own example."""
    licence = f"/* {SPDX} */\n"
    long_function = "void\nx (void)\n{\n" + "  y ();\n" * MAX_FUNCTION + "}\n"
    deep = "void\nx (void)\n{\n" + "{" * (MAX_NESTING + 1) + "}" * (MAX_NESTING + 1) + "\n}\n"
    bad = [
        ("daemon/vmm-json.c", licence + '#include "vmm-rest.h"\n', "must not include"),
        ("daemon/vmm-machine.c", licence + '#include "vmm-service.h"\n', "must not include"),
        ("plugins/a/b.c", licence + '#include "daemon/vmm-json.h"\n', "a plugin includes"),
        ("plugins/netd/b.c", licence + '#include "interfaces/vmm-error.h"\n', "netd shares nothing"),
        ("daemon/monitor/monitor-run.c", licence + '#include "vmm-json.h"\n', "the monitor shares nothing"),
        ("plugins/netd/netd-port.c", licence + "  fd = open (path, O_RDONLY);\n", "open files"),
        ("plugins/netd/netd-wardenlike.c", licence + "  g_file_get_contents (path, &text, NULL, NULL);\n", "open files"),
        ("daemon/vmm-log.c", licence + long_function, "lines, at most"),
        ("daemon/vmm-log.c", licence + deep, "nests"),
        ("daemon/vmm-log.c", licence + "x\n" * (MAX_FILE + 1), "split it"),
        ("daemon/vmm-log.c", licence + "  goto out;\n", "banned"),
        ("daemon/vmm-log.c", licence + '  system ("ls");\n', "banned"),
        ("daemon/vmm-rest.c", licence + "  json_parser_new ();\n", "banned"),
        ("daemon/vmm-log.c", licence + 'const char *x = "fakename";\n', "is named in daemon"),
        ("daemon/vmm-log.c", "int x;\n", "no licence line"),
    ]
    good = [
        ("daemon/vmm-rest.c", licence + '#include "vmm-operations.h"\n#include "vmm-json.h"\n'),
        ("plugins/netd/netd-warden-sockets.c", licence + "  fd = openat (folder, name, O_PATH);\n"),
        ("plugins/netd/netd-port.c", licence + "  netd_opener_open (opener, kind);\n  port->open (fd);\n"),
        ("daemon/vmm-log.c", licence + "/* goto system() */\nfoo (\"goto \");\n"),
        ("daemon/vmm-log.c", licence + "  goto out; /* nocheck: shown in a test */\n"),
    ]
    failures = 0
    for name, text, want in bad:
        found = list(check_all([(pathlib.Path(name), text)], {"fakename"}))
        if not any(want in line for line in found):
            print(f"self-test: {name}: expected '{want}', got {found}")
            failures += 1
    for name, text in good:
        found = list(check_all([(pathlib.Path(name), text)], {"fakename"}))
        if found:
            print(f"self-test: {name}: unexpected {found}")
            failures += 1
    return failures


ROOT = pathlib.Path(os.environ.get("VMM_TEST_SOURCE_ROOT") or pathlib.Path(__file__).resolve().parent.parent)


def main():
    failures = self_test()
    if "--self-test" not in sys.argv:
        files = list(tree())
        names = backend_names()
        if not names:
            print("no plugin was found: the rule on backend names would check nothing")
            failures += 1
        for line in [*check_all(files, names), *check_potfiles(files)]:
            print(line)
            failures += 1
        print(f"{len(files)} files checked, {failures} findings")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
