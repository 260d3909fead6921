# SPDX-License-Identifier: Apache-2.0
"""Hostile arguments: they fail, change nothing and reach nobody else."""

from __future__ import annotations

import ctypes
import logging

import numpy as np
import pytest
from mooncake.engine import TransferEngine, TransferNotify, TransferOpcode
from mooncake_sides import HOST, is_failure, is_zero


def test_nothing_works_before_initialize_and_nothing_raises(caplog):
    engine = TransferEngine()
    assert engine.get_rpc_port() == 0
    for result in [
        engine.register_memory(4096, 4096),
        engine.unregister_memory(4096),
        engine.batch_register_memory([4096], [4096]),
        engine.batch_unregister_memory([4096]),
        engine.transfer_sync_write("127.0.0.1:1", 1, 2, 3),
        engine.batch_transfer_sync_read("127.0.0.1:1", [1], [2], [3]),
        engine.transfer_sync("127.0.0.1:1", 1, 2, 3, TransferOpcode.Read),
        engine.free_managed_buffer(4096, 1),
        engine.write_bytes_to_buffer(4096, b"a", 1),
        engine.transfer_check_status(1),
        engine.get_batch_transfer_status([1]),
        engine.send_probe("127.0.0.1:1"),
        engine.warmup_efa_segment("127.0.0.1:1"),
    ]:
        assert is_failure(result)
    assert engine.transfer_submit_write("x:1", 1, 2, 3) == 0 == engine.batch_transfer_async_write("x:1", [1], [2], [3])
    assert engine.allocate_managed_buffer(10) == 0 == engine.get_first_buffer_address("x:1")
    assert engine.get_notifies() == [] and engine.read_bytes_from_buffer(4096, 1) == b""
    assert "initialize" in caplog.text


@pytest.mark.parametrize(
    "call",
    [
        lambda e, s: e.transfer_sync_write(5, 1, 2, 3),
        lambda e, s: e.transfer_sync_write(s, "1", 2, 3),
        lambda e, s: e.transfer_sync_write(s, 1.0, 2, 3),
        lambda e, s: e.transfer_sync_write(s, -1, 2, 3),
        lambda e, s: e.transfer_sync_write(s, 1, 2, 2**64),
        lambda e, s: e.transfer_sync_write(s, 1, 2),
        lambda e, s: e.transfer_sync_write(s, 1, 2, 3, 4),
        lambda e, s: e.batch_transfer_sync_write(s, 1, [2], [3]),
        lambda e, s: e.batch_transfer_sync_write(s, [1], None, [3]),
        lambda e, s: e.batch_transfer_sync_write(s, [1], [2.5], [3]),
        lambda e, s: e.batch_transfer_sync_write(s, [1], [-2], [3]),
        lambda e, s: e.batch_transfer_sync_write(s, b"\1", [2], [3]),
        lambda e, s: e.batch_transfer_sync_write(s, {1: 1}, [2], [3]),
        lambda e, s: e.transfer_sync(s, 1, 2, 3, 1),
        lambda e, s: e.transfer_sync(s, 1, 2, 3, TransferOpcode.Read, "notify"),
        lambda e, s: e.register_memory(None, 1),
        lambda e, s: e.register_memory(1, 1, 5),
        lambda e, s: e.batch_register_memory([None], [1]),
        lambda e, s: e.write_bytes_to_buffer(1, 5, 1),
        lambda e, s: e.initialize(HOST, "P2PHANDSHAKE", "tcp"),
        lambda e, s: e.initialize(HOST, "P2PHANDSHAKE", "tcp", None),
        lambda e, s: e.initialize(local_hostname=HOST, metadata_server="P2PHANDSHAKE", protocol="tcp", device_name=""),
        lambda e, s: e.get_batch_transfer_status(5),
        lambda e, s: e.transfer_check_status("x"),
        lambda e, s: TransferNotify(1, 2),
    ],
)
def test_wrong_types_are_type_errors(sides, call):
    with pytest.raises(TypeError):
        call(sides[0].engine, sides[1].session)


def test_hostile_numbers_fail_and_change_nothing(sides):
    a, b = sides
    before = b.memory.copy()
    for buffer, peer_address, length in [
        (0, b.base, 10),
        (a.base, 0, 10),
        (a.base, b.base, 2**63),
        (a.base, 2**64 - 5, 10),
        (2**64 - 5, b.base, 10),
        (a.base, b.base + b.memory.nbytes - 1, 2),
        (a.base - 1, b.base, 10),
    ]:
        assert is_failure(a.engine.transfer_sync_write(b.session, buffer, peer_address, length))
        assert is_failure(a.engine.batch_transfer_sync_write(b.session, [buffer], [peer_address], [length]))
    for lists in [([a.base] * 2, [b.base], [1]), ([a.base], [b.base] * 2, [1]), ([a.base], [b.base], [])]:
        assert is_failure(a.engine.batch_transfer_sync_write(b.session, *lists))
    assert is_failure(a.engine.batch_register_memory([a.base], [1, 2]))
    assert is_failure(a.engine.register_memory(a.base + (1 << 40), 0))
    assert is_failure(a.engine.register_memory(0, 4096))
    assert (b.memory == before).all()
    assert is_zero(a.engine.transfer_sync_write(b.session, a.base, b.base, 10))


@pytest.mark.parametrize("name", ["", "host", "host:", ":1", "127.0.0.1:99999", "1:2:3", "a" * 300 + ":1", "\n:1"])
def test_bad_session_ids_fail_with_one_line(sides, caplog, name):
    caplog.clear()
    assert is_failure(sides[0].engine.batch_transfer_sync_write(name, [sides[0].base], [1], [1]))
    assert len([record for record in caplog.records if record.levelno >= logging.ERROR]) == 1


def test_a_nul_in_a_session_id_does_not_lead_to_another_peer(sides):
    a, b = sides
    assert is_failure(a.engine.transfer_sync_write(b.session + "\0junk", a.base, b.base, 1))
    assert is_failure(a.engine.send_probe(b.session + "\0"))


def test_forged_batch_ids_are_refused(sides):
    engine = sides[0].engine
    for forged in [
        0,
        1,
        2**64 - 1,
        ctypes.addressof(ctypes.c_int()),
        *np.random.default_rng(1).integers(1, 2**63, 100).tolist(),
    ]:
        assert engine.transfer_check_status(forged) == -1
        assert engine.get_batch_transfer_status([forged]) == -1


def test_device_pointers_never_reach_the_processor(sides):
    # What libcuda would own can't be had here; the binding itself must never look at the bytes of an address.
    assert is_failure(sides[0].engine.register_memory(0x7F00_0000_0000, 4096, "cuda:0"))
