#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fails when a lower layer of src/ includes a higher one.

    scripts/check_layers.py [SRC]

Prints `file:line: layer 'x' includes "y/z.h" of layer 'y'; it may include: ...` for each breach and exits with 1.
The layers stand in RANKS: a file may include its own layer, those beside it (same rank) and those below. FORBIDDEN holds
what the design rules out although the ranks would allow it.
"""

import pathlib
import re
import sys

RANKS = {
    "base": 0,
    "memory": 1,
    "topology": 1,
    "metadata": 1,
    "control": 1,
    "transport": 1,
    "engine": 2,
    "store": 2,
    "capi": 3,
    "cli": 4,
}

FORBIDDEN = {
    ("store", "transport"): "the store reaches transports through the engine only",
    ("engine", "store"): "the engine serves the store and knows nothing of it",
}

# Plain C types, which every layer shares; the public C++ headers belong to the outermost layers.
PUBLIC_FOR_ALL = "tidewire/tidewire.h"
PUBLIC_FROM = "capi"

SUFFIXES = {".h", ".hpp", ".cpp", ".cc", ".c", ".inc"}
INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')


def allowed(layer):
    """The layers that `layer` may include, lowest first."""
    return [other for other, rank in RANKS.items() if rank <= RANKS[layer] and (layer, other) not in FORBIDDEN]


def target_layer(source, path, relative):
    """The layer that an include names, or None when it is not one of ours."""
    if path.startswith(("./", "../")):
        try:
            parts = (relative.parent / path).as_posix().split("/")
            resolved = []
            for part in parts:
                if part == "..":
                    resolved.pop()
                elif part != ".":
                    resolved.append(part)
        except IndexError:
            return None
        return resolved[0] if resolved and resolved[0] in RANKS else None
    if (source.parent / path).is_file():
        return relative.parts[0]
    first = path.split("/")[0]
    return first if "/" in path and first in RANKS else None


def check(root):
    """All breaches under `root` as printable lines."""
    problems = []
    for source in sorted(root.rglob("*")):
        if source.suffix not in SUFFIXES or not source.is_file():
            continue
        relative = source.relative_to(root)
        layer = relative.parts[0] if len(relative.parts) > 1 else None
        if layer not in RANKS:
            problems.append(f"{source}:1: '{layer or source.name}' is not in a known layer; add it to RANKS in check_layers.py")
            continue
        for number, line in enumerate(source.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            path = match.group(2)
            if path.startswith("tidewire/") and path != PUBLIC_FOR_ALL and RANKS[layer] < RANKS[PUBLIC_FROM]:
                problems.append(f"{source}:{number}: layer '{layer}' includes \"{path}\"; below '{PUBLIC_FROM}' only "
                                f"{PUBLIC_FOR_ALL} of the public headers may be included")
                continue
            target = target_layer(source, path, relative)
            if target is None or target in allowed(layer):
                continue
            reason = FORBIDDEN.get((layer, target))
            problems.append(f"{source}:{number}: layer '{layer}' includes \"{path}\" of layer '{target}'"
                            + (f" ({reason})" if reason else "")
                            + f"; it may include: {', '.join(allowed(layer))}")
    return problems


def main(arguments):
    root = pathlib.Path(arguments[0]) if arguments else pathlib.Path(__file__).resolve().parent.parent / "src"
    if not root.is_dir():
        print(f"check_layers.py: no folder {root}", file=sys.stderr)
        return 2
    problems = check(root)
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
