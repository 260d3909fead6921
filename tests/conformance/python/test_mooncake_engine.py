# SPDX-License-Identifier: Apache-2.0
"""``mooncake.engine`` as frameworks call it: one test for each way of use, then the interface itself, then misuse."""

from __future__ import annotations

import ctypes
import gc
import inspect
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import mooncake.engine
import numpy as np
import pytest
from mooncake.engine import TransferEngine, TransferNotify, TransferOpcode
from tidewire_testing import HARD_STOP, environment, pattern, run_script, wait_until

HOST = "127.0.0.1"

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
    import hashlib

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


@pytest.fixture
def sides():
    made = Side(), Side()
    yield made
    del made
    gc.collect()


@pytest.fixture
def remote(child_factory):
    """A target process; (child, session id, base address, nbytes)."""
    nbytes = 8 << 20
    child = child_factory(TARGET.format(nbytes=nbytes))
    port, base = child.eval("[engine.get_rpc_port(), memory.ctypes.data]")
    return child, f"{HOST}:{port}", base, nbytes


# -- SGLang, prefill-decode --


no_rdma_device = pytest.mark.skipif(
    os.path.isdir("/sys/class/infiniband") and bool(os.listdir("/sys/class/infiniband")),
    reason="this host has InfiniBand-class devices",
)


@no_rdma_device
@pytest.mark.parametrize("devices", ["", "ib0, ib1"])
def test_sglang_set_up_over_tcp_where_there_is_no_rdma_device(capfd, devices):
    engine = TransferEngine()
    assert is_zero(engine.initialize(HOST, "P2PHANDSHAKE", "rdma", devices))
    port = engine.get_rpc_port()
    assert type(port) is int and 0 < port < 65536
    lines = [line for line in capfd.readouterr().err.splitlines() if "rdma" in line]
    assert len(lines) == 1 and "TCP is used" in lines[0]


WITH_DEVICE = """
set -e
mount -t tmpfs none /sys/class
mkdir -p /sys/class/infiniband/mlx5_0 /sys/class/net
exec "$1" -c "$2"
"""

SET_UP = """
from mooncake.engine import TransferEngine
engine = TransferEngine()
print(engine.initialize("127.0.0.1", "P2PHANDSHAKE", "rdma", "mlx5_0"))
print(engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", ""))
"""


def with_rdma_device(source, **changes):
    """Runs a program where /sys shows an InfiniBand-class device; needs a mount namespace."""
    if os.geteuid() != 0 or subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode != 0:
        pytest.skip("mount namespaces need root")
    command = ["unshare", "-m", "sh", "-c", WITH_DEVICE, "sh", sys.executable, source]
    return subprocess.run(command, env=environment(**changes), capture_output=True, text=True, timeout=HARD_STOP)


def test_sglang_rdma_devices_that_can_not_be_used_are_refused_by_name():
    result = with_rdma_device(SET_UP, MC_FORCE_TCP="")
    assert (result.returncode, result.stdout) == (0, "-1\n0\n"), result.stderr
    for word in ["mlx5_0", "MOONCAKE_PROTOCOL=efa", "MOONCAKE_PROTOCOL=tcp"]:
        assert word in result.stderr


def test_sglang_set_up_with_forced_tcp():
    result = with_rdma_device(SET_UP, MC_FORCE_TCP="1")
    assert (result.returncode, result.stdout) == (0, "0\n-1\n"), result.stderr
    assert "MC_FORCE_TCP" in result.stderr and "TCP is used" in result.stderr


def test_sglang_protocol_efa_arrives_and_is_refused_by_name(caplog):
    assert is_failure(TransferEngine().initialize(HOST, "P2PHANDSHAKE", "efa", ""))
    assert "efa" in caplog.text


@pytest.mark.parametrize("own", ["::1", "[::1]"])
def test_sglang_ipv6_literals(own):
    a, b = new_engine(host=own), new_engine(host=own)
    mine, theirs = pattern(1, 1000), np.zeros(1000, np.uint8)
    assert is_zero(a.register_memory(mine.ctypes.data, 1000)) and is_zero(b.register_memory(theirs.ctypes.data, 1000))
    for peer in [f"[::1]:{b.get_rpc_port()}", f"::1:{b.get_rpc_port()}"]:  # vLLM doesn't bracket
        theirs[:] = 0
        assert is_zero(a.transfer_sync_write(peer, mine.ctypes.data, theirs.ctypes.data, 1000))
        assert (theirs == mine).all()


def test_sglang_registers_kv_state_and_rows_in_one_call(sides):
    a, b = sides
    layers = 8
    kv = [np.zeros(1 << 20, np.uint8) for _ in range(2 * layers)]
    state = [np.zeros(4096, np.float32) for _ in range(3)]
    rows = [np.zeros(64, np.uint8) for _ in range(10)]
    buffers = kv + state + rows
    pointers, lengths = [x.ctypes.data for x in buffers], [x.nbytes for x in buffers]
    assert is_zero(b.engine.batch_register_memory(pointers, lengths))
    sources = [int(a.base)] * len(buffers)
    assert is_zero(a.engine.batch_transfer_sync_write(b.session, sources, pointers, [64] * len(buffers)))
    assert is_zero(b.engine.batch_unregister_memory(pointers))


def test_sglang_a_failed_registration_is_all_or_nothing_and_loud(sides, caplog):
    a, b = sides
    good, other = np.zeros(4096, np.uint8), np.zeros(4096, np.uint8)
    overlapping = b.base + 100
    result = b.engine.batch_register_memory([good.ctypes.data, overlapping, other.ctypes.data], [4096] * 3)
    assert result == -7
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "batch_register_memory" in caplog.text
    for target in [good.ctypes.data, other.ctypes.data]:
        assert is_failure(a.engine.transfer_sync_write(b.session, a.base, target, 8))
    assert is_zero(b.engine.batch_register_memory([good.ctypes.data, other.ctypes.data], [4096] * 2))


def test_sglang_role_switch_unregisters_and_registers_while_peers_hold_records(remote):
    child, peer, base, nbytes = remote
    side = Side()
    side.memory[:] = pattern(1, side.memory.nbytes)
    for turn in range(20):
        assert is_zero(side.engine.transfer_sync_write(peer, side.base, base, 1000))
        child.run("assert engine.batch_unregister_memory([memory.ctypes.data]) == 0; memory[:] = 0")
        assert is_failure(side.engine.transfer_sync_write(peer, side.base, base, 1000))
        assert child.eval("int(memory.sum())") == 0, f"turn {turn}: an old registration was used"
        child.run("assert engine.batch_register_memory([memory.ctypes.data], [memory.nbytes]) == 0")
    assert is_zero(side.engine.transfer_sync_write(peer, side.base, base, 1000))
    assert child.eval("digest(0, 1000)") == digest(pattern(1, side.memory.nbytes)[:1000])


def test_encoder_disaggregation_registers_each_tensor(sides):
    a, b = sides
    arena = np.zeros(1 << 20, np.uint8)
    for turn in range(500):
        source = pattern(turn, 100 + turn)
        offset = 1 + 1500 * (turn % 500)
        sink = arena[offset : offset + source.nbytes]
        assert is_zero(a.engine.register_memory(source.ctypes.data, source.nbytes))
        assert is_zero(b.engine.register_memory(sink.ctypes.data, sink.nbytes))
        assert is_zero(a.engine.transfer_sync_write(b.session, source.ctypes.data, sink.ctypes.data, source.nbytes))
        assert (sink == source).all()
        assert is_zero(a.engine.unregister_memory(source.ctypes.data))
        assert is_zero(b.engine.unregister_memory(sink.ctypes.data))


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


def test_the_engine_object_is_opaque_and_handed_on():
    engine = new_engine()
    handle = engine.get_engine()
    assert handle is not None and type(handle).__name__ == "InnerTransferEngine"
    assert type(engine.get_engine_ptr()) is int and engine.get_engine_ptr() != 0
    assert TransferEngine().get_engine_ptr() == 0


@pytest.mark.parametrize("first, second", [("mooncake.engine", "tidewire"), ("tidewire", "mooncake.engine")])
def test_both_import_orders_work_and_end(first, second):
    result = run_script(
        f"import {first}, {second}\n"
        "from mooncake.engine import TransferEngine\n"
        "a, b = TransferEngine(), TransferEngine()\n"
        "print([x.initialize('127.0.0.1', 'P2PHANDSHAKE', 'tcp', '') for x in (a, b)])\n"
    )
    assert (result.returncode, result.stdout) == (0, "[0, 0]\n"), result.stderr


# -- vLLM --


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


def test_vllm_encoder_cache_connector_unregisters_singly_and_in_lists(sides):
    engine = sides[0].engine
    tensors = [np.zeros(1000, np.uint8) for _ in range(4)]
    pointers = [tensor.ctypes.data for tensor in tensors]
    assert is_zero(engine.batch_register_memory(pointers, [1000] * 4))
    assert is_zero(engine.unregister_memory(pointers[0]))
    assert is_zero(engine.batch_unregister_memory(pointers[1:]))
    assert is_failure(engine.unregister_memory(pointers[0]))


# -- others --


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


# -- the interface --

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


# -- misuse --


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


def test_empty_lists_and_zero_lengths_succeed(sides):
    a, b = sides
    assert is_zero(a.engine.batch_transfer_sync_write(b.session, [], [], []))
    assert is_zero(a.engine.batch_register_memory([], [])) and is_zero(a.engine.batch_unregister_memory([]))
    assert is_zero(a.engine.transfer_sync_write(b.session, a.base, b.base, 0))
    assert is_zero(a.engine.batch_transfer_sync_write(b.session, [a.base] * 3, [b.base] * 3, [1, 0, 2]))


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


def test_a_forked_child_fails_and_the_parent_goes_on(sides):
    a, b = sides
    pid = os.fork()
    if pid == 0:
        failed = (
            a.engine.transfer_sync_write(b.session, a.base, b.base, 1) == -1 and a.engine.register_memory(1, 1) == -1
        )
        os._exit(0 if failed else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert is_zero(a.engine.transfer_sync_write(b.session, a.base, b.base, 1))


def test_ctrl_c_ends_a_transfer_and_leaves_nothing(child_factory, monkeypatch):
    child = child_factory(TARGET.format(nbytes=64 << 20), TIDEWIRE_SAME_HOST="false")
    port, base = child.eval("[engine.get_rpc_port(), memory.ctypes.data]")
    monkeypatch.setenv("TIDEWIRE_SAME_HOST", "false")
    monkeypatch.setenv("TIDEWIRE_LANE_STALL_TIMEOUT", "60s")
    side = Side(64 << 20)
    assert is_zero(side.engine.transfer_sync_write(f"{HOST}:{port}", side.base, base, 10))
    os.kill(child.pid, signal.SIGSTOP)
    try:
        timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            side.engine.transfer_sync_write(f"{HOST}:{port}", side.base, base, 64 << 20)
        timer.join()
        inner = side.engine._engine
        wait_until(lambda: inner._reap() or not inner._orphans, "the cancelled batch is freed", 20)
    finally:
        os.kill(child.pid, signal.SIGCONT)


# -- beside Mooncake's own wheel --


@pytest.mark.parametrize("other", ["mooncake_transfer_engine", "mooncake_transfer_engine_non_cuda"])
def test_beside_mooncakes_wheel_the_import_says_how_to_switch_and_to_go_back(tmp_path, other):
    (tmp_path / f"{other}-0.3.12.dist-info").mkdir()
    result = run_script(f"import sys; sys.path.append({str(tmp_path)!r}); import mooncake.engine")
    name = other.replace("_", "-")
    assert result.returncode == 1
    assert f"pip uninstall -y {name} &&" in result.stderr
    assert "pip uninstall -y tidewire-mooncake &&" in result.stderr


def test_tidewire_itself_does_not_mind_mooncakes_wheel(tmp_path):
    (tmp_path / "mooncake_transfer_engine-0.3.12.dist-info").mkdir()
    result = run_script(f"import sys; sys.path.append({str(tmp_path)!r}); import tidewire; tidewire.Engine().close()")
    assert result.returncode == 0, result.stderr


def test_device_pointers_never_reach_the_processor(sides):
    # What libcuda would own can't be had here; the binding itself must never look at the bytes of an address.
    assert is_failure(sides[0].engine.register_memory(0x7F00_0000_0000, 4096, "cuda:0"))
