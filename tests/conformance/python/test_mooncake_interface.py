# SPDX-License-Identifier: Apache-2.0
"""Every name of ``mooncake.engine``: order, defaults, results."""

from __future__ import annotations

import inspect
import json
import os
import signal
import time

import mooncake.engine
import numpy as np
import pytest
from mooncake.engine import TransferEngine, TransferNotify, TransferOpcode
from mooncake_sides import HOST, TARGET, Side, is_failure, is_zero, new_engine
from tidewire_testing import pattern, wait_until

SIGNATURES = {
    "initialize": "self, local_hostname, metadata_server, protocol, device_name, /",
    "initialize_ext": "self, local_hostname, metadata_server, protocol, device_name, metadata_type, /",
    "get_rpc_port": "self",
    "allocate_managed_buffer": "self, length",
    "free_managed_buffer": "self, buffer_addr, length",
    "transfer_sync_write": "self, target_hostname, buffer, peer_buffer_address, length, transport_hint=''",
    "transfer_sync_read": "self, target_hostname, buffer, peer_buffer_address, length, transport_hint=''",
    "batch_transfer_sync_write": "self, target_hostname, buffers, peer_buffer_addresses, lengths, transport_hint=''",
    "batch_transfer_sync_read": "self, target_hostname, buffers, peer_buffer_addresses, lengths, transport_hint=''",
    "batch_transfer_async_write": "self, target_hostname, buffers, peer_buffer_addresses, lengths, transport_hint=''",
    "batch_transfer_async_read": "self, target_hostname, buffers, peer_buffer_addresses, lengths, transport_hint=''",
    "transfer_sync": "self, target_hostname, buffer, peer_buffer_address, length, opcode, notify=None, "
    "transport_hint=''",
    "batch_transfer_sync": "self, target_hostname, buffers, peer_buffer_addresses, lengths, opcode, notify=None, "
    "transport_hint=''",
    "batch_transfer_async": "self, target_hostname, buffers, peer_buffer_addresses, lengths, opcode, transport_hint=''",
    "get_batch_transfer_status": "self, batch_ids",
    "transfer_submit_write": "self, target_hostname, buffer, peer_buffer_address, length, transport_hint=''",
    "transfer_check_status": "self, batch_id",
    "write_bytes_to_buffer": "self, dest_address, src, length",
    "read_bytes_from_buffer": "self, source_address, length",
    "register_memory": "self, buffer_addr, capacity, location='*'",
    "unregister_memory": "self, buffer_addr",
    "batch_register_memory": "self, buffer_addresses, capacities, location='*'",
    "batch_unregister_memory": "self, buffer_addresses",
    "get_local_topology": "self, device_name=None",
    "get_first_buffer_address": "self, segment_name",
    "warmup_efa_segment": "self, segment_name",
    "get_notifies": "self",
    "send_probe": "self, peer_server_name",
    "get_engine": "self",
    "get_engine_ptr": "self",
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_names_order_and_defaults(name):
    method = getattr(TransferEngine, name)
    parameters = inspect.signature(method).parameters.values()
    plain = inspect.Signature([parameter.replace(annotation=inspect.Parameter.empty) for parameter in parameters])
    assert str(plain) == f"({SIGNATURES[name]})"
    assert method.__doc__


def arguments(a, b):
    """For each method that a started engine can be asked: arguments by name, and what comes back."""
    one = {"target_hostname": b.session, "buffer": a.base, "peer_buffer_address": b.base, "length": 100}
    many = {"target_hostname": b.session, "buffers": [a.base], "peer_buffer_addresses": [b.base], "lengths": [100]}
    hint, notify = {"transport_hint": ""}, {"notify": None, "transport_hint": ""}
    extra = np.zeros(3 * 4096, np.uint8)
    pages = [extra.ctypes.data + 4096 * i for i in range(3)]
    return extra, {
        "transfer_sync_write": ({**one, **hint}, is_zero),
        "transfer_sync_read": ({**one, **hint}, is_zero),
        "batch_transfer_sync_write": ({**many, **hint}, is_zero),
        "batch_transfer_sync_read": ({**many, **hint}, is_zero),
        "transfer_sync": ({**one, "opcode": TransferOpcode.Write, **notify}, is_zero),
        "batch_transfer_sync": ({**many, "opcode": TransferOpcode.Read, **notify}, is_zero),
        "batch_transfer_async_write": ({**many, **hint}, bool),
        "batch_transfer_async_read": ({**many, **hint}, bool),
        "batch_transfer_async": ({**many, "opcode": TransferOpcode.Read, **hint}, bool),
        "transfer_submit_write": ({**one, **hint}, bool),
        "transfer_check_status": ({"batch_id": 12345}, lambda result: result == -1),
        "get_batch_transfer_status": ({"batch_ids": []}, is_zero),
        "register_memory": ({"buffer_addr": pages[0], "capacity": 4096, "location": "cpu:0"}, is_zero),
        "batch_register_memory": (
            {"buffer_addresses": pages[1:], "capacities": [4096] * 2, "location": "*"},
            is_zero,
        ),
        "unregister_memory": ({"buffer_addr": pages[0]}, is_zero),
        "batch_unregister_memory": ({"buffer_addresses": pages[1:]}, is_zero),
        "write_bytes_to_buffer": ({"dest_address": a.base, "src": b"abc", "length": 3}, is_zero),
        "read_bytes_from_buffer": ({"source_address": a.base, "length": 3}, lambda result: result == b"abc"),
        "get_local_topology": ({"device_name": None}, json.loads),
        "get_first_buffer_address": ({"segment_name": b.session}, lambda result: result == b.base),
        "warmup_efa_segment": ({"segment_name": b.session}, is_zero),
        "send_probe": ({"peer_server_name": b.session}, is_zero),
    }


@pytest.mark.parametrize("form", ["keyword", "positional", "keywords in another order", "defaults left out"])
def test_every_call_by_keyword_and_by_position(sides, form):
    a, b = sides
    extra, calls = arguments(a, b)
    optional = {"transport_hint", "notify", "location", "device_name"}
    for name, (keywords, expected) in calls.items():
        call = getattr(a.engine, name)
        if form == "positional":
            result = call(*keywords.values())
        elif form == "keyword":
            result = call(**keywords)
        elif form == "defaults left out":
            result = call(**{key: value for key, value in keywords.items() if key not in optional})
        else:
            result = call(**dict(reversed(keywords.items())))
        assert expected(result), f"{name}: {result!r}"
    buffer = (
        a.engine.allocate_managed_buffer(length=100) if form == "keyword" else a.engine.allocate_managed_buffer(100)
    )
    assert buffer
    freed = {"buffer_addr": buffer, "length": 100}
    free = a.engine.free_managed_buffer
    assert is_zero(free(*freed.values()) if form == "positional" else free(**freed))


def test_module_attributes_and_enumeration():
    for name in ["EFA", "HIP", "MNNVL", "MUSA", "INTRA_NVLINK", "CUDA"]:
        assert getattr(mooncake.engine, f"SUPPORT_{name}") is False
    assert (int(TransferOpcode.Read), int(TransferOpcode.Write)) == (0, 1)
    assert TransferEngine.TransferOpcode is TransferOpcode
    assert mooncake.engine.Write is TransferOpcode.Write is TransferEngine.Write
    assert TransferOpcode(1) == TransferOpcode.Write and TransferOpcode.Read.name == "Read"
    empty, full = TransferNotify(), TransferNotify("a", "b")
    assert (empty.name, empty.msg, full.name, full.msg) == ("", "", "a", "b")
    full.name = "c"
    assert full.name == "c"


def test_single_transfers_in_both_directions_with_notifications(sides):
    a, b = sides
    a.memory[:] = pattern(1, a.memory.nbytes)
    text = "mésság\0e"
    result = a.engine.transfer_sync(
        b.session, a.base, b.base, 1000, TransferOpcode.Write, TransferNotify("one", text), transport_hint="anything"
    )
    assert is_zero(result) and (b.memory[:1000] == a.memory[:1000]).all()
    assert [(n.name, n.msg) for n in b.engine.get_notifies()] == [("one", text)]
    assert is_zero(a.engine.transfer_sync(b.session, a.base + 5000, b.base, 1000, opcode=TransferOpcode.Read))
    assert (a.memory[5000:6000] == a.memory[:1000]).all()
    lists = [a.base, a.base + 100], [b.base + 2000, b.base + 3000], [100, 100]
    assert is_zero(
        a.engine.batch_transfer_sync(b.session, *lists, TransferOpcode.Write, notify=TransferNotify("two", ""))
    )
    assert [n.name for n in b.engine.get_notifies()] == ["two"] and b.engine.get_notifies() == []
    assert (b.memory[3000:3100] == a.memory[100:200]).all()


def test_asynchronous_batches(sides):
    a, b = sides
    a.memory[:] = pattern(2, a.memory.nbytes)
    lists = [a.base], [b.base], [1000]
    ids = [
        a.engine.batch_transfer_async_write(b.session, *lists),
        a.engine.batch_transfer_async_read(b.session, [a.base + 5000], [b.base], [10]),
        a.engine.batch_transfer_async(b.session, *lists, TransferOpcode.Write),
        a.engine.batch_transfer_async(b.session, *lists, opcode=TransferOpcode.Read, transport_hint=""),
    ]
    assert all(type(one) is int and one > 0 for one in ids) and len(set(ids)) == 4
    assert is_zero(a.engine.get_batch_transfer_status(ids))
    assert is_zero(a.engine.get_batch_transfer_status([]))
    assert a.engine.get_batch_transfer_status(ids) == -1  # they are freed
    one = a.engine.transfer_submit_write(b.session, a.base, b.base + 100, 500)
    wait_until(lambda: a.engine.transfer_check_status(one) == 1, "the write ends")
    assert a.engine.transfer_check_status(one) == -1
    assert (b.memory[100:600] == a.memory[:500]).all()


def test_asynchronous_failures_are_freed_and_waited_for_together(sides):
    a, b = sides
    assert a.engine.batch_transfer_async_write(f"{HOST}:1", [a.base], [b.base], [1]) == 0
    assert a.engine.transfer_submit_write(f"{HOST}:1", a.base, b.base, 1) == 0
    good = a.engine.batch_transfer_async_write(b.session, [a.base], [b.base], [10])
    bad = a.engine.batch_transfer_async_write(b.session, [a.base], [0x1000], [10])
    assert good and bad
    assert a.engine.get_batch_transfer_status([bad, good]) == -1
    assert not a.engine._batches
    bad = a.engine.transfer_submit_write(b.session, a.base, 0x1000, 10)
    wait_until(lambda: a.engine.transfer_check_status(bad) == -1, "the write fails")
    assert not a.engine._batches


@pytest.mark.parametrize("value, expected", [("1", 5), ("6", 6)])
def test_the_timeout_is_mooncakes_variable_with_its_minimum(child_factory, monkeypatch, value, expected):
    child = child_factory(TARGET.format(nbytes=64 << 20), TIDEWIRE_SAME_HOST="false")
    port, base = child.eval("[engine.get_rpc_port(), memory.ctypes.data]")
    peer = f"{HOST}:{port}"
    monkeypatch.setenv("MC_TRANSFER_TIMEOUT", value)
    monkeypatch.setenv("TIDEWIRE_SAME_HOST", "false")
    monkeypatch.setenv("TIDEWIRE_LANE_STALL_TIMEOUT", "60s")
    side = Side(64 << 20)
    assert is_zero(side.engine.transfer_sync_write(peer, side.base, base, 10))
    os.kill(child.pid, signal.SIGSTOP)
    try:
        batch = side.engine.transfer_submit_write(peer, side.base, base, 64 << 20)
        assert batch and side.engine.transfer_check_status(batch) == 0
        started = time.monotonic()
        assert side.engine.transfer_sync_write(peer, side.base, base, 64 << 20) == -1
        assert expected - 0.5 <= time.monotonic() - started < expected + 5
        wait_until(lambda: side.engine.transfer_check_status(batch) != 0, "the batch times out")
        assert side.engine.transfer_check_status(batch) == -2 == side.engine.transfer_check_status(batch)
        assert side.engine.get_batch_transfer_status([batch]) == -1
        assert side.engine.transfer_check_status(batch) == -1
    finally:
        os.kill(child.pid, signal.SIGCONT)


def test_managed_buffers(sides, caplog):
    engine = sides[0].engine
    address = engine.allocate_managed_buffer(100_000)
    assert type(address) is int and address
    data = pattern(1, 1000).tobytes()
    assert is_zero(engine.write_bytes_to_buffer(address + 10, data, 1000))
    assert engine.read_bytes_from_buffer(address + 10, 1000) == data
    assert type(engine.read_bytes_from_buffer(address, 0)) is bytes
    assert is_zero(engine.write_bytes_to_buffer(address, "text", 4))
    assert engine.read_bytes_from_buffer(address, 4) == b"text"
    assert is_zero(sides[1].engine.transfer_sync_read(sides[0].session, sides[1].base, address + 10, 1000))
    assert sides[1].memory[:1000].tobytes() == data
    caplog.clear()
    assert is_failure(engine.write_bytes_to_buffer(address, data, 1001)), "more than src holds"
    assert "1001" in caplog.text
    assert is_failure(engine.write_bytes_to_buffer(0x1000, data, 8)) and engine.read_bytes_from_buffer(0x1000, 8) == b""
    assert is_zero(engine.free_managed_buffer(address, 100_000))
    assert is_failure(engine.free_managed_buffer(address, 100_000))
    assert engine.allocate_managed_buffer(0) == 0 == engine.allocate_managed_buffer(2**62)


def test_first_buffer_topology_and_warm_up(sides):
    a, b = sides
    assert a.engine.get_first_buffer_address(b.session) == b.base
    assert a.engine.get_first_buffer_address(f"{HOST}:1") == 0
    topology = json.loads(a.engine.get_local_topology())
    assert topology and all(location.startswith("cpu:") for location in topology)
    assert all(len(lists) == 2 for lists in topology.values())
    names = json.loads(a.engine.get_local_topology("no_such_device"))
    assert all(lists == [[], []] for lists in names.values())
    assert is_zero(a.engine.warmup_efa_segment(b.session))
    assert is_zero(a.engine.transfer_sync_read("/" + b.session, a.base, b.base, 10))


def test_initialize_ext_and_metadata_addresses(caplog):
    assert is_zero(TransferEngine().initialize_ext(HOST, "P2PHANDSHAKE", "tcp", "", "http"))
    for server, kind in [("127.0.0.1:2379", ""), ("redis://127.0.0.1:6379", ""), ("127.0.0.1:2379", "etcd")]:
        caplog.clear()
        assert is_failure(TransferEngine().initialize_ext(HOST, server, "tcp", "", kind))
        assert "etcd" in caplog.text or "redis" in caplog.text
    for protocol in ["xgmi", "", "nonsense"]:
        assert is_failure(TransferEngine().initialize(HOST, "P2PHANDSHAKE", protocol, ""))
    engine = new_engine()
    assert is_failure(engine.initialize(HOST, "P2PHANDSHAKE", "tcp", "")), "a running engine is not replaced"


def test_numpy_lists_are_lists(sides):
    a, b = sides
    a.memory[:] = pattern(8, a.memory.nbytes)
    offsets = np.arange(0, 10_000, 100, dtype=np.uint64)
    lengths = np.full(100, 100, np.uint64)
    assert is_zero(
        a.engine.batch_transfer_sync_write(
            b.session, np.uint64(a.base) + offsets, (b.base + offsets).astype(np.int64), lengths
        )
    )
    assert (b.memory[:10_000] == a.memory[:10_000]).all()


def test_empty_lists_and_zero_lengths_succeed(sides):
    a, b = sides
    assert is_zero(a.engine.batch_transfer_sync_write(b.session, [], [], []))
    assert is_zero(a.engine.batch_register_memory([], [])) and is_zero(a.engine.batch_unregister_memory([]))
    assert is_zero(a.engine.transfer_sync_write(b.session, a.base, b.base, 0))
    assert is_zero(a.engine.batch_transfer_sync_write(b.session, [a.base] * 3, [b.base] * 3, [1, 0, 2]))
