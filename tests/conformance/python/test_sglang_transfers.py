# SPDX-License-Identifier: Apache-2.0
"""How SGLang moves KV and metadata, loads weights, and notices a decode instance that is gone."""

from __future__ import annotations

import threading
import time

import numpy as np
from mooncake_sides import TARGET, Side, digest, is_failure, is_zero
from tidewire_testing import HARD_STOP, pattern, wait_until


def test_sglang_hot_path_equal_parallelism(remote):
    child, peer, base, nbytes = remote
    layers, runs, piece = 94, 3, 4096
    side = Side(layers * 2 * runs * piece)
    side.memory[:] = pattern(2, side.memory.nbytes)
    count = layers * 2 * runs
    sources = [side.base + i * piece for i in range(count)]
    targets = [base + (count - 1 - i) * piece for i in range(count)]
    assert is_zero(side.engine.batch_transfer_sync_write(peer, sources, targets, [piece] * count))
    expected = side.memory.reshape(count, piece)[::-1].reshape(-1)
    assert child.eval(f"digest(0, {count * piece})") == digest(expected)


def test_sglang_hot_path_tens_of_thousands_of_tiny_pieces(remote):
    child, peer, base, nbytes = remote
    count, piece = 30_000, 256
    side = Side(count * piece)
    side.memory[:] = pattern(3, count * piece)
    order = np.random.default_rng(3).permutation(count)
    sources = (side.base + np.arange(count) * piece).tolist()
    targets = (base + order * piece).tolist()
    assert is_zero(side.engine.batch_transfer_sync_write(peer, sources, targets, [piece] * count))
    expected = np.empty((count, piece), np.uint8)
    expected[order] = side.memory.reshape(count, piece)
    assert child.eval(f"digest(0, {count * piece})") == digest(expected.reshape(-1))


def test_sglang_bytes_are_visible_when_the_call_returns_and_aux_follows_kv(remote):
    child, peer, base, nbytes = remote
    side = Side(4 << 20)
    aux = 4 << 20
    for room in range(20):
        side.memory[:] = pattern(room, 4 << 20)
        assert is_zero(side.engine.batch_transfer_sync_write(peer, [side.base], [base], [4 << 20]))
        assert is_zero(side.engine.batch_transfer_sync_write(peer, [side.base], [base + aux], [64]))
        assert child.eval(f"[digest(0, {aux}), digest({aux}, 64)]") == [digest(side.memory), digest(side.memory[:64])]


def test_sglang_decode_polls_the_metadata_row_and_then_reads_the_kv(remote):
    child, peer, base, nbytes = remote
    side = Side((4 << 20) + 64)
    aux = 4 << 20
    child.run(
        "import time\n"
        "def wait_for(room):\n"
        "    end = time.monotonic() + 30\n"
        f"    while memory[{aux}] != room and time.monotonic() < end: pass\n"
        f"    return [int(memory[{aux}]), digest(0, {aux})]\n"
    )
    for room in range(1, 11):
        child.start(f"wait_for({room})")
        side.memory[:aux] = pattern(room, aux)
        side.memory[aux:] = room
        assert is_zero(side.engine.batch_transfer_sync_write(peer, [side.base], [base], [aux]))
        assert is_zero(side.engine.batch_transfer_sync_write(peer, [side.base + aux], [base + aux], [64]))
        assert child.answer() == [room, digest(side.memory[:aux])]


def test_sglang_several_threads_share_an_engine(remote):
    child, peer, base, nbytes = remote
    threads, size = 8, 100_000
    side = Side(threads * size)
    side.memory[:] = pattern(4, threads * size)
    results = []

    def work(index):
        for _ in range(20):
            results.append(
                side.engine.batch_transfer_sync_write(peer, [side.base + index * size], [base + index * size], [size])
            )

    running = [threading.Thread(target=work, args=(index,)) for index in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join(HARD_STOP)
    assert results == [0] * (threads * 20)
    assert child.eval(f"digest(0, {threads * size})") == digest(side.memory)


def test_sglang_a_dead_decode_fails_in_time_and_the_probe_tells_when_it_is_back(child_factory, remote):
    child, peer, base, nbytes = remote
    side = Side()
    assert is_zero(side.engine.send_probe(peer))
    child.kill()
    started = time.monotonic()
    assert is_failure(side.engine.batch_transfer_sync_write(peer, [side.base], [base], [1000]))
    assert type(side.engine.send_probe(peer)) is int and side.engine.send_probe(peer) != 0
    assert time.monotonic() - started < 20
    again = child_factory(TARGET.format(nbytes=nbytes).replace('"127.0.0.1"', repr(peer)))
    wait_until(lambda: side.engine.send_probe(peer) == 0, "the probe finds the new process", 20)
    base = again.eval("memory.ctypes.data")
    assert is_zero(side.engine.batch_transfer_sync_write(peer, [side.base], [base], [1000]))


def test_sglang_weight_loading_makes_a_second_engine_and_reads(remote):
    child, peer, base, nbytes = remote
    child.run("memory[:] = np.arange(memory.nbytes, dtype=np.uint64).astype(np.uint8)")
    first, second = Side(), Side()
    assert first.engine.get_rpc_port() != second.engine.get_rpc_port()
    half = first.memory.nbytes // 2
    assert is_zero(
        second.engine.batch_transfer_sync_read(
            peer, [second.base, second.base + half], [base, base + half], [half, half]
        )
    )
    assert (second.memory == np.arange(second.memory.nbytes, dtype=np.uint64).astype(np.uint8)).all()
