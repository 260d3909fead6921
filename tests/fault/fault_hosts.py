# SPDX-License-Identifier: Apache-2.0
"""Hosts on one machine: network namespaces of our own, with shaped links between them."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path


def run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


class Host:
    """A network namespace."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        run("ip", "netns", "add", name)
        run("ip", "-n", name, "link", "set", "lo", "up")
        # What Child starts as its interpreter: Python inside this namespace. Both steps are exec, so the pid stays that of the process.
        self.python = str(folder / f"python-{name}")
        Path(self.python).write_text(f'#!/bin/sh\nexec ip netns exec {name} "{sys.executable}" "$@"\n')
        os.chmod(self.python, os.stat(self.python).st_mode | stat.S_IXUSR)

    def run(self, *command: str) -> str:
        return run("ip", "netns", "exec", self.name, *command)

    def ip(self, *arguments: str) -> str:
        return run("ip", "-n", self.name, *arguments)

    def sockets(self, state: str) -> int:
        return len(self.run("ss", "-H", "-t", "-n", "state", state).splitlines())

    def remove(self) -> None:
        subprocess.run(["ip", "netns", "del", self.name], capture_output=True, timeout=60)


def connect(a: Host, b: Host, rails: int, rate: str | None = None) -> None:
    """`rails` links e0, e1, … between two hosts: 10.77.i.1 at `a`, 10.77.i.2 at `b`, each shaped to `rate` both ways."""
    for i in range(rails):
        a.ip("link", "add", f"e{i}", "mtu", "9000", "type", "veth", "peer", "name", f"e{i}", "netns", b.name, "mtu", "9000")
        for host, last in ((a, 1), (b, 2)):
            host.ip("addr", "add", f"10.77.{i}.{last}/24", "dev", f"e{i}")
            host.ip("link", "set", f"e{i}", "up")
            if rate:
                host.run("tc", "qdisc", "replace", "dev", f"e{i}", "root", "tbf", "rate", rate, "burst", "256k", "limit", "2m")
