# SPDX-License-Identifier: Apache-2.0
"""vLLM's MooncakeConnector and its encoder-cache connector."""

from __future__ import annotations

import threading

import numpy as np
from mooncake.engine import TransferEngine
from mooncake_sides import HOST, digest, is_failure, is_zero
from tidewire_testing import HARD_STOP, pattern


def test_vllm_connector_calls_by_keyword_from_ten_threads(remote):
    child, peer, base, nbytes = remote
    engine = TransferEngine()
    assert is_zero(engine.initialize(HOST, "P2PHANDSHAKE", "tcp", ""))
    memory = pattern(6, 1 << 20)
    assert is_zero(engine.batch_register_memory(buffer_addresses=[memory.ctypes.data], capacities=[memory.nbytes]))
    results, size = [], 100_000

    def work(index):
        results.append(
            engine.batch_transfer_sync_write(
                target_hostname=peer,
                buffers=[memory.ctypes.data + index * size],
                peer_buffer_addresses=[base + index * size],
                lengths=[size],
            )
        )

    threads = [threading.Thread(target=work, args=(index,)) for index in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HARD_STOP)
    assert results == [0] * 10
    assert child.eval(f"digest(0, {10 * size})") == digest(memory[: 10 * size])


def test_vllm_connector_calls_by_position(remote):
    child, peer, base, nbytes = remote
    engine = TransferEngine()
    assert is_zero(engine.initialize(HOST, "P2PHANDSHAKE", "rdma", ""))
    layers = [pattern(layer, 100_000) for layer in range(4)]
    assert is_zero(engine.batch_register_memory([x.ctypes.data for x in layers], [x.nbytes for x in layers]))
    assert is_zero(
        engine.batch_transfer_sync_write(
            peer, [x.ctypes.data for x in layers], [base + i * 100_000 for i in range(4)], [100_000] * 4
        )
    )
    assert child.eval("digest(0, 400_000)") == digest(np.concatenate(layers))


def test_vllm_one_bad_entry_fails_the_merged_call(sides):
    a, b = sides
    result = a.engine.batch_transfer_sync_write(
        b.session, [a.base] * 3, [b.base, b.base + b.memory.nbytes, b.base + 64], [64] * 3
    )
    assert is_failure(result)
    assert is_zero(a.engine.batch_transfer_sync_write(b.session, [a.base] * 2, [b.base, b.base + 64], [64] * 2))


def test_vllm_encoder_cache_connector_unregisters_singly_and_in_lists(sides):
    engine = sides[0].engine
    tensors = [np.zeros(1000, np.uint8) for _ in range(4)]
    pointers = [tensor.ctypes.data for tensor in tensors]
    assert is_zero(engine.batch_register_memory(pointers, [1000] * 4))
    assert is_zero(engine.unregister_memory(pointers[0]))
    assert is_zero(engine.batch_unregister_memory(pointers[1:]))
    assert is_failure(engine.unregister_memory(pointers[0]))
