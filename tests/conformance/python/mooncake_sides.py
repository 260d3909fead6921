# SPDX-License-Identifier: Apache-2.0
"""What the tests of ``mooncake.engine`` share: engines with memory, here and in another process."""

from __future__ import annotations

import hashlib

import numpy as np
from mooncake.engine import TransferEngine

HOST = "127.0.0.1"

# A passive engine with one buffer in another process.
TARGET = """
import hashlib, numpy as np
from mooncake.engine import TransferEngine, TransferNotify, TransferOpcode
engine = TransferEngine()
assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
memory = np.zeros({nbytes}, np.uint8)
assert engine.register_memory(memory.ctypes.data, memory.nbytes) == 0
def digest(offset, length):
    return hashlib.sha256(memory[offset : offset + length].tobytes()).hexdigest()
"""


def digest(data):
    return hashlib.sha256(data.tobytes()).hexdigest()


def new_engine(protocol="tcp", device="", host=HOST):
    engine = TransferEngine()
    assert engine.initialize(host, "P2PHANDSHAKE", protocol, device) == 0
    return engine


def session(engine, host=HOST):
    return f"{host}:{engine.get_rpc_port()}"


def is_zero(result):
    """Frameworks compare with ``== 0`` or use the truth value; a bool or a numpy number would surprise them."""
    return type(result) is int and result == 0


def is_failure(result):
    return type(result) is int and result < 0


class Side:
    """An engine and one registered array."""

    def __init__(self, nbytes=1 << 20, **options):
        self.engine = new_engine(**options)
        self.memory = np.zeros(nbytes, np.uint8)
        self.base = self.memory.ctypes.data
        assert is_zero(self.engine.register_memory(self.base, nbytes))
        self.session = session(self.engine)
