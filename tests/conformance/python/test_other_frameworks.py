# SPDX-License-Identifier: Apache-2.0
"""checkpoint-engine and LMDeploy. TensorRT-LLM's calls are in test_c_interface.py."""

from __future__ import annotations

import socket

import numpy as np
from mooncake.engine import TransferEngine
from mooncake_sides import HOST, Side, is_failure, is_zero, session


def test_checkpoint_engine_retries_initialize_after_a_port_conflict(sides):
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        engine = TransferEngine()
        name = f"{HOST}:{taken.getsockname()[1]}"
        for _ in range(3):
            assert is_failure(engine.initialize(name, "P2PHANDSHAKE", "tcp", ""))
    assert is_zero(engine.initialize(name, "P2PHANDSHAKE", "tcp", ""))
    assert session(engine) == name
    memory = np.ones(100, np.uint8)
    assert is_zero(engine.register_memory(memory.ctypes.data, 100))
    assert engine.batch_transfer_sync_read(sides[0].session, [memory.ctypes.data], [sides[0].base], [100]) == 0
    assert not memory.any()


def test_lmdeploy_has_one_engine_for_each_link(remote):
    child, peer, base, nbytes = remote
    child.run("memory[:] = 7")
    links = [Side(1000) for _ in range(6)]
    assert len({link.session for link in links}) == 6
    for link in links:
        assert link.engine.transfer_sync_read(peer, link.base, base, 1000) == 0
        assert (link.memory == 7).all()
