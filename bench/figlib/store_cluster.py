# SPDX-License-Identifier: Apache-2.0
"""A store for a measurement: a master, a client that lends memory, and the program that puts and gets; Tidewire's or the Mooncake wheel's."""
import json
import os
import signal
import socket
import subprocess
import sys
import time

from . import references
from .programs import BUILD, ROOT, TIDEWIRE, Failed, Waiting, run

CLIENT = ROOT / "bench" / "store_client.py"
# Caches of the wheel's client and its copies past the protocol are off: both sides move every byte over TCP.
WHEEL_SETTINGS = {"MC_STORE_MEMCPY": "0", "MC_STORE_LOCAL_HOT_CACHE_SIZE": "0"}


def free_port():
    """A port of loopback that nobody listens on now."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def processor_seconds(pid):
    """What a process has used so far."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Kind:
    """Whose store it is: how its master and its Python programs are started."""

    def __init__(self, name, python, environment, master):
        self.name, self.python, self.environment, self._master = name, python, environment, master

    def master(self, port, metrics_port, host):
        """The command of a master."""
        return [str(part) for part in self._master(port, metrics_port, host)]

    def client(self, *arguments):
        """The command of bench/store_client.py."""
        settings = [f"{name}={value}" for name, value in self.environment.items()]
        return ["env", *settings, str(self.python), str(CLIENT), *map(str, arguments)]


def tidewire(same_host):
    """Ours; without `same_host` all bytes go over TCP, also between processes of one host."""
    environment = {"PYTHONPATH": ROOT / "python", "TIDEWIRE_LIBRARY": BUILD / "lib" / "libtidewire.so",
                   "TIDEWIRE_SAME_HOST": "true" if same_host else "false"}
    return Kind("tidewire", sys.executable, environment,
                lambda port, metrics, host: [TIDEWIRE, "master", f"--rpc_address={host}", f"--rpc_port={port}",
                                             f"--metrics_host={host}", f"--metrics_port={metrics}"])


def wheel():
    """Mooncake's; Missing when it can't be had."""
    python = references.interpreter()
    return Kind("mooncake", python, WHEEL_SETTINGS,
                lambda port, metrics, host: [python.parent / "mooncake_master", f"--rpc_address={host}", f"--rpc_port={port}",
                                             f"--metrics_port={metrics}", "--logtostderr=false", "--log_dir=/tmp"])


class Cluster:
    """A master and an owner of `segment_bytes`; the context gives the cluster, whose measure() runs a client."""

    def __init__(self, kind, segment_bytes, host="127.0.0.1", client_host="127.0.0.1", prefix=(), client_prefix=(), devices=""):
        self.kind, self.bytes, self.host, self.client_host = kind, segment_bytes, host, client_host
        self.prefix, self.client_prefix, self.devices = prefix, client_prefix, devices
        self._master = self._owner = None
        self.address = f"{host}:{free_port()}"
        self.owner = {}

    def __enter__(self):
        port, host = int(self.address.rsplit(":", 1)[1]), self.host
        command = [*self.prefix, *self.kind.master(port, free_port(), host)]
        self._master = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        try:
            self._wait_listening(port)
            self._owner = Waiting(self.kind.client("owner", "--master", self.address, "--local", host, "--bytes", self.bytes,
                                                   "--devices", self.devices), self.prefix)
            self.owner = self._owner.__enter__()
            self._wait_settled()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        if self._owner and self._owner.process:
            self._owner.__exit__()
        os.killpg(self._master.pid, signal.SIGKILL)
        self._master.wait()

    def _wait_listening(self, port):
        """Until the master's port is open: seen in the kernel's table, as it may be in another namespace."""
        end = time.monotonic() + 20
        while self._master.poll() is None and time.monotonic() < end:
            for name in ("tcp", "tcp6"):
                with open(f"/proc/{self._master.pid}/net/{name}", encoding="ascii") as file:
                    if any(line.split()[1].endswith(f":{port:04X}") and line.split()[3] == "0A" for line in file.readlines()[1:]):
                        return
            time.sleep(0.02)
        raise Failed(f"the {self.kind.name} master did not start")

    def _wait_settled(self):
        """Until the owner has nothing left to do: it may get the pages of its memory after it has said that it is ready."""
        end, before, quiet = time.monotonic() + 60, -1.0, 0
        while quiet < 3 and time.monotonic() < end:
            used = processor_seconds(self.owner["pid"])
            quiet = quiet + 1 if used - before < 0.02 else 0
            before = used
            time.sleep(0.1)

    def measure(self, what, *arguments):
        """One run of a client; its figures."""
        command = self.kind.client(what, "--master", self.address, "--local", self.client_host, "--owner", self.owner["name"],
                                   "--devices", self.devices, *arguments)
        lines = [line for line in run(command, self.client_prefix).splitlines() if line.startswith("{")]
        if not lines:
            raise Failed(f"the {self.kind.name} client gave no figures")
        return json.loads(lines[-1])
