# SPDX-License-Identifier: Apache-2.0
"""checkpoint-engine and LMDeploy. TensorRT-LLM's calls are in test_c_interface.py."""

from __future__ import annotations

import socket

import numpy as np
from mooncake.engine import TransferEngine
from mooncake_sides import HOST, Side, is_failure, is_zero, session
from tidewire_testing import descriptors


def test_checkpoint_engine_retries_initialize_after_a_port_conflict(sides):
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        engine = TransferEngine()
        name = f"{HOST}:{taken.getsockname()[1]}"
        before = descriptors()
        for _ in range(7):
            assert is_failure(engine.initialize(name, "P2PHANDSHAKE", "tcp", ""))
        assert descriptors() == before, "a failed start leaves nothing behind"
    # The eighth and last try.
    assert is_zero(engine.initialize(name, "P2PHANDSHAKE", "tcp", ""))
    assert session(engine) == name
    memory = np.ones(100, np.uint8)
    assert is_zero(engine.register_memory(memory.ctypes.data, 100))
    assert engine.batch_transfer_sync_read(sides[0].session, [memory.ctypes.data], [sides[0].base], [100]) == 0
    assert not memory.any()


def test_checkpoint_engine_retries_with_other_ports_until_one_is_free():
    with socket.socket() as first, socket.socket() as second:
        for taken in (first, second):
            taken.bind((HOST, 0))
            taken.listen()
        names = [f"{HOST}:{taken.getsockname()[1]}" for taken in (first, second)] + [HOST]
        results = []
        for name in names * 8:
            engine = TransferEngine()
            results.append(engine.initialize(name, "P2PHANDSHAKE", "tcp", ""))
            if results[-1] == 0:
                break
        assert results == [-1, -1, 0]
        assert session(engine) not in names


def test_lmdeploy_has_one_engine_for_each_link(remote):
    child, peer, base, nbytes = remote
    child.run("memory[:] = 7")
    links = [Side(1000) for _ in range(6)]
    assert len({link.session for link in links}) == 6
    for link in links:
        assert link.engine.transfer_sync_read(peer, link.base, base, 1000) == 0
        assert (link.memory == 7).all()
