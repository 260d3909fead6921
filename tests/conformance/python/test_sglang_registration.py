# SPDX-License-Identifier: Apache-2.0
"""How SGLang sets engines up, registers memory and takes it back."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys

import numpy as np
import pytest
import tidewire
from mooncake.engine import TransferEngine
from mooncake_sides import HOST, Side, digest, is_failure, is_zero, new_engine
from tidewire_testing import HARD_STOP, environment, pattern

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


def test_sglang_registers_memory_of_different_devices_in_one_call(sides):
    a, b = sides
    lib, nbytes = tidewire._native.lib, 1 << 16
    regions = [ctypes.c_void_p() for _ in range(4)]
    for region in regions:
        tidewire.check(lib.tw_test_device_allocate(nbytes, ctypes.byref(region)))
    rows = [np.zeros(64, np.uint8) for _ in range(3)]
    pointers = [region.value for region in regions] + [row.ctypes.data for row in rows]
    lengths = [nbytes] * len(regions) + [64] * len(rows)
    assert is_zero(b.engine.batch_register_memory(pointers, lengths))
    a.memory[:] = pattern(7, a.memory.nbytes)
    assert is_zero(a.engine.batch_transfer_sync_write(b.session, [a.base] * len(pointers), pointers, lengths))
    for row in rows:
        assert (row == a.memory[:64]).all()
    for region in regions:
        back = a.base + a.memory.nbytes // 2
        assert is_zero(a.engine.transfer_sync_read(b.session, back, region.value, nbytes))
        assert (a.memory[a.memory.nbytes // 2 :][:nbytes] == a.memory[:nbytes]).all()
    assert is_zero(b.engine.batch_unregister_memory(pointers))
    for region in regions:
        tidewire.check(lib.tw_test_device_free(region))


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


def test_the_engine_object_is_opaque_and_handed_on():
    engine = new_engine()
    handle = engine.get_engine()
    assert handle is not None and type(handle).__name__ == "InnerTransferEngine"
    assert type(engine.get_engine_ptr()) is int and engine.get_engine_ptr() != 0
    assert TransferEngine().get_engine_ptr() == 0
