# SPDX-License-Identifier: Apache-2.0
"""CUDA memory through the drop-in interface, over the stand-in for the driver, each test in a process of its own.

A driver that a process has loaded stays in it, hence the processes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
LIBRARY = Path(os.environ.get("TIDEWIRE_BUILD", ROOT / "build")) / "tests" / "fake_cuda" / "libcuda.so.1"

PRELUDE = """
import ctypes, sys
import numpy as np
from mooncake.engine import TransferEngine

cuda = ctypes.CDLL(sys.argv[1])
assert cuda.cuInit(0) == 0

def enter(device):
    context = ctypes.c_void_p()
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0
    assert cuda.cuCtxSetCurrent(context) == 0

def allocate(device, size):
    enter(device)
    address = ctypes.c_uint64()
    assert cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size)) == 0
    return address.value

def put(address, array):
    assert cuda.cuMemcpyHtoD_v2(ctypes.c_uint64(address), array.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(array.nbytes)) == 0

def get(address, size):
    array = np.zeros(size, np.uint8)
    assert cuda.cuMemcpyDtoH_v2(array.ctypes.data_as(ctypes.c_void_p), ctypes.c_uint64(address), ctypes.c_size_t(size)) == 0
    return array

def stream_of(device):
    enter(device)
    stream = ctypes.c_void_p()
    assert cuda.cuStreamCreate(ctypes.byref(stream), 1) == 0
    return stream

a, b = TransferEngine(), TransferEngine()
for engine in (a, b):
    assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
target = f"127.0.0.1:{b.get_rpc_port()}"
N = 1 << 20
data = np.random.default_rng(1).integers(0, 256, N, np.uint8)
"""


def run(body: str, **environment: str) -> str:
    """Runs PRELUDE and body; the lines that they logged."""
    if not LIBRARY.exists():
        pytest.skip("the stand-in for libcuda is not built")
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + body, str(LIBRARY)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "python"), **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stderr


def test_device_and_host_pointers_are_mixed_in_one_registration_and_one_transfer():
    run("""
devices = [allocate(0, N), allocate(1, N), allocate(0, N)]
rows = [np.zeros(N, np.uint8) for _ in range(2)]
theirs = devices + [row.ctypes.data for row in rows]
assert b.batch_register_memory(theirs, [N] * 5) == 0
source_device = allocate(1, N)
put(source_device, data)
source_host = data.copy()
mine = [source_device, source_host.ctypes.data]
assert a.batch_register_memory(mine, [N, N]) == 0
sources = [source_device, source_host.ctypes.data, source_host.ctypes.data, source_device, source_host.ctypes.data]
assert a.batch_transfer_sync_write(target, sources, theirs, [N] * 5) == 0
for address in devices:
    enter(0)
    assert (get(address, N) == data).all()
for row in rows:
    assert (row == data).all()
assert b.batch_unregister_memory(theirs) == 0 and a.batch_unregister_memory(mine) == 0
""")


def test_a_registration_with_one_bad_device_range_leaves_nothing_registered():
    run("""
device, row = allocate(0, N), np.zeros(N, np.uint8)
assert b.batch_register_memory([row.ctypes.data, device], [N, 2 * N]) < 0
source = data.copy()
assert a.register_memory(source.ctypes.data, N) == 0
assert a.transfer_sync_write(target, source.ctypes.data, row.ctypes.data, 64) == -1
assert b.batch_register_memory([row.ctypes.data, device], [N, N]) == 0
assert a.batch_transfer_sync_write(target, [source.ctypes.data] * 2, [row.ctypes.data, device], [N, N]) == 0
""")


def test_a_hidden_device_is_named_with_the_variable_that_hides_it():
    logged = run(
        """
row = np.zeros(N, np.uint8)
assert a.register_memory(row.ctypes.data, N, "cuda:1") < 0
""",
        CUDA_VISIBLE_DEVICES="0",
    )
    assert "cuda:1" in logged and "CUDA_VISIBLE_DEVICES" in logged


def test_transfers_on_a_stream_come_between_the_work_before_and_after_them():
    run(
        """
source, sink = allocate(0, N), allocate(1, N)
assert a.register_memory(source, N) == 0 and b.register_memory(sink, N) == 0
stream = stream_of(0)
other = data[::-1].copy()
def copy_later(array):
    assert cuda.cuMemcpyHtoDAsync_v2(ctypes.c_uint64(source), array.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(N), stream) == 0
copy_later(data)
assert a.transfer_write_on_cuda(target, source, sink, N, stream.value) is None
copy_later(other)
assert cuda.cuStreamSynchronize(stream) == 0
assert (get(source, N) == other).all()
assert (get(sink, N) == data).all()
a.batch_transfer_read_on_cuda(target, [source], [sink], [N], stream.value)
assert cuda.cuStreamSynchronize(stream) == 0
assert (get(source, N) == data).all()
""",
        FAKE_CUDA_RATE="50000000",
    )


def test_a_transfer_that_fails_on_a_stream_is_told_by_the_next_call_and_the_process_lives():
    logged = run("""
source = allocate(0, N)
assert a.register_memory(source, N) == 0
stream = stream_of(0)
a.transfer_write_on_cuda(target, source, 0x1000, N, stream.value)
assert cuda.cuStreamSynchronize(stream) == 0
try:
    a.transfer_read_on_cuda(target, source, 0x1000, N, stream.value)
except RuntimeError as error:
    assert "earlier transfer" in str(error), error
else:
    raise SystemExit("nothing was raised")
try:
    a.batch_transfer_write_on_cuda(target, [source], [0x1000], [N, N], stream.value)
except RuntimeError as error:
    assert "lengths" in str(error)
else:
    raise SystemExit("nothing was raised")
""")
    assert "failed" in logged
