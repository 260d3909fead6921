# SPDX-License-Identifier: Apache-2.0
"""Network namespaces of our own: two hosts with shaped links between them, or one host with ten thousand addresses."""
import os
import pathlib
import subprocess

from .programs import Failed, Missing, run

ALLOWED = pathlib.Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control")
PAYLOAD = 0.993  # share of the rate that is payload at an MTU of 9000


def _cubic_allowed():
    """Lets namespaces choose cubic, which is repeatable where bbr is not. Returns what to restore, or None."""
    try:
        before = ALLOWED.read_text().split()
        if "cubic" in before:
            return None
        ALLOWED.write_text(" ".join([*before, "cubic"]))
        return before
    except OSError:
        return None


class Namespace:
    """One namespace; `prefix` runs a command in it. Removed on exit, whatever happened."""

    def __init__(self, name):
        self.name = f"{name}{os.getpid()}"
        self.prefix = ("ip", "netns", "exec", self.name)

    def __enter__(self):
        if os.geteuid():
            raise Missing("network namespaces need root")
        run(["ip", "netns", "add", self.name])
        run(["ip", "-n", self.name, "link", "set", "lo", "up"])
        return self

    def __exit__(self, *_):
        subprocess.run(["ip", "netns", "del", self.name], stderr=subprocess.DEVNULL, check=False)

    def nft(self, rules):
        """Loads rules into this namespace."""
        done = subprocess.run([*self.prefix, "nft", "-f", "-"], input=rules, text=True, stderr=subprocess.PIPE, check=False)
        if done.returncode:
            raise Failed(f"nft: {done.stderr.strip()}")

    def sysctl(self, name, value):
        """Sets a kernel setting; says whether that was possible."""
        command = [*self.prefix, "sysctl", "-q", "-w", f"{name}={value}"]
        return subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode == 0


class Rails:
    """Two hosts a and b with `count` links e0, e1, … of `rate` each; host a is 10.77.i.1, host b 10.77.i.2."""

    def __init__(self, count=4, megabits=2000):
        self.count = count
        self.megabits = megabits
        self.a, self.b = Namespace("twA"), Namespace("twB")
        self.devices = ",".join(f"e{i}" for i in range(count))
        self.addresses = [f"10.77.{i}.2" for i in range(count)]
        self._restore = None

    @property
    def line_rate(self):
        """Payload bytes a second of all links together."""
        return self.count * self.megabits * 1e6 / 8 * PAYLOAD

    def __enter__(self):
        self._restore = _cubic_allowed()
        try:
            self.a.__enter__()
            self.b.__enter__()
            for side in (self.a, self.b):
                side.sysctl("net.ipv4.tcp_congestion_control", "cubic")
            for i in range(self.count):
                self._link(i)
        except BaseException:
            self.__exit__()
            raise
        return self

    def _link(self, i):
        run(["ip", "link", "add", "name", f"e{i}", "netns", self.a.name, "mtu", "9000", "type", "veth",
             "peer", "name", f"e{i}", "netns", self.b.name, "mtu", "9000"])
        # A packet of segmentation offload is 64 KB: the burst must hold several of them.
        for side, last in ((self.a, 1), (self.b, 2)):
            run(["ip", "-n", side.name, "address", "add", f"10.77.{i}.{last}/24", "dev", f"e{i}"])
            run(["ip", "-n", side.name, "link", "set", f"e{i}", "up"])
            run(["tc", "-n", side.name, "qdisc", "replace", "dev", f"e{i}", "root", "handle", "1:", "tbf",
                 "rate", f"{self.megabits}mbit", "burst", "256k", "limit", "2m"])

    def __exit__(self, *_):
        self.a.__exit__()
        self.b.__exit__()
        if self._restore:
            try:
                ALLOWED.write_text(" ".join(self._restore))
            except OSError:
                pass

    def link_down(self, i):
        """Takes a link down at host a: its sender learns of it."""
        run(["ip", "-n", self.a.name, "link", "set", f"e{i}", "down"])

    def black_hole(self, i):
        """Drops what arrives at host b over a link: silence, nobody is told."""
        self.b.nft(f'table inet cut {{\n chain in {{\n  type filter hook input priority 0\n  iifname "e{i}" drop\n }}\n}}\n')


class ManyAddresses(Namespace):
    """A host on which every address of 127.1.0.0/16 reaches 127.0.0.1."""

    def __init__(self):
        super().__init__("twP")

    def __enter__(self):
        super().__enter__()
        try:
            self.nft("table ip nat {\n chain output {\n  type nat hook output priority -100\n"
                     "  ip daddr 127.1.0.0/16 dnat to 127.0.0.1\n }\n}\n")
        except BaseException:
            self.__exit__()
            raise
        return self

    @staticmethod
    def names(count, port):
        """`count` different names of the engine that listens on 127.0.0.1:port."""
        return [f"127.1.{i // 250}.{i % 250 + 1}:{port}" for i in range(count)]
