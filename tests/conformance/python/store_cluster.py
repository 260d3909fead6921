# SPDX-License-Identifier: Apache-2.0
"""What the tests of ``mooncake.store`` share: masters, clients in other processes, pages."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import threading
import urllib.error
import urllib.request

import numpy as np
import pytest
from tidewire_testing import HARD_STOP, environment

HOST = "127.0.0.1"
SEGMENT = 64 << 20
LOCAL_BUFFER = 32 << 20

_READY = re.compile(r"tidewire master listens on (\S+), admin on (\S+)")


def program():
    """The program ``tidewire``."""
    from _tidewire_program import program_path

    return os.environ.get("TIDEWIRE_PROGRAM") or str(program_path())


class Master:
    """A master process. ``address``: for clients; ``admin``: of its HTTP. Nobody reads its pipes once it is ready."""

    def __init__(self, *flags):
        self.errors = tempfile.TemporaryFile(mode="w+")
        self.process = subprocess.Popen(
            [program(), "master", "--rpc_address", HOST, "--rpc_port", "auto", "--metrics_port", "auto", *flags],
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            env=environment(),
        )
        self.address, self.admin = self._ready()

    def _ready(self):
        # The reader ends with the line, with the process, or by the kill of a master that says nothing.
        timer = threading.Timer(HARD_STOP, self.process.kill)
        timer.start()
        try:
            line = self.process.stdout.readline()
        finally:
            timer.cancel()
        found = _READY.search(line)
        if found is None:
            self.stop()
            self.errors.seek(0)
            pytest.fail(f"the master is not ready: {line!r} {self.errors.read()[-2000:]!r}")
        return found[1].replace("0.0.0.0", HOST), found[2].replace("0.0.0.0", HOST)

    def get(self, path):
        """(status, body) of its HTTP."""
        try:
            with urllib.request.urlopen(f"http://{self.admin}{path}", timeout=HARD_STOP) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def stop(self):
        """Ends it as a signal at a terminal does."""
        if self.process.poll() is None:
            self.process.terminate()
        self._wait()

    def kill(self):
        """Ends it as a crash does."""
        self.process.kill()
        self._wait()

    def _wait(self):
        try:
            self.process.wait(HARD_STOP)
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait(HARD_STOP)
            if not self.process.stdout.closed:
                self.process.stdout.close()


def setup_arguments(master, segment=SEGMENT, local_buffer=LOCAL_BUFFER, host=HOST):
    """The seven positional arguments of ``setup``."""
    return host, "P2PHANDSHAKE", segment, local_buffer, "tcp", "", master.address


# A client in another process: `store` is set up and lends memory.
CLIENT = """
import numpy as np
from mooncake.store import MooncakeDistributedStore, ReplicateConfig
store = MooncakeDistributedStore()
assert store.setup(*{arguments!r}) == 0
"""


def client_setup(master, segment=SEGMENT, local_buffer=LOCAL_BUFFER):
    """Set-up of a child process that is a client."""
    return CLIENT.format(arguments=setup_arguments(master, segment, local_buffer))


class Pages:
    """KV pages: ``count`` keys and ``nbytes`` of memory for each, filled or empty, registered with a store."""

    def __init__(self, store, count=16, nbytes=4096, seed=None, prefix="page"):
        self.memory = np.zeros((count, nbytes), np.uint8)
        if seed is not None:
            self.memory[:] = np.random.default_rng(seed).integers(0, 256, (count, nbytes), dtype=np.uint8)
        self.keys = [f"{prefix}.{seed}.{index}-0_k" for index in range(count)]
        base = self.memory.ctypes.data
        self.pointers = [base + index * nbytes for index in range(count)]
        self.sizes = [nbytes] * count
        assert is_zero(store.register_buffer(base, self.memory.nbytes))


def is_zero(result):
    """Frameworks compare with ``== 0``; a bool or a numpy number would surprise them."""
    return type(result) is int and result == 0


def all_zero(results, count):
    return type(results) is list and len(results) == count and all(map(is_zero, results))
