# SPDX-License-Identifier: Apache-2.0
"""Memory: allocated, registered, permitted, copied in and out."""

from __future__ import annotations

import ctypes
import os

import numpy as np
import pytest
import tidewire
from tidewire import Code
from tidewire_testing import pattern


def test_allocated_memory_is_zeroed_writable_and_registered(pair):
    a, b = pair
    with b.allocate(10_000) as buffer:
        view = buffer.view()
        assert (len(view), view.format, view.readonly, bytes(view)) == (10_000, "B", False, bytes(10_000))
        assert buffer.address % os.sysconf("SC_PAGE_SIZE") == 0
        source = a.register(pattern(3, 10_000))
        a.write(b.address, source, buffer.address).wait()
        assert bytes(view) == pattern(3, 10_000).tobytes()
        del view
    with pytest.raises(tidewire.ClosedError):
        buffer.view()
    with pytest.raises(tidewire.NotRegisteredError):
        a.write(b.address, source, buffer.address).wait()


@pytest.mark.parametrize("nbytes", [0, -1, 2**62])
def test_impossible_allocations_are_clear_errors(pair, nbytes):
    with pytest.raises(tidewire.Error) as failure:
        pair[0].allocate(nbytes)
    assert failure.value.code in (Code.INVALID_ARGUMENT, Code.NO_MEMORY, Code.NO_RESOURCES)
    pair[0].allocate(4096).close()


def test_nothing_is_not_registered(pair):
    for nothing in [bytearray(), (0, 0), (4096, 0), (0, 4096)]:
        with pytest.raises(tidewire.InvalidArgumentError):
            pair[0].register(nothing)


def test_the_same_range_is_counted_and_an_overlap_refused(pair):
    a, b = pair
    memory = np.zeros(8192, np.uint8)
    source = a.register(np.ones(10, np.uint8))
    first, second = b.register(memory), b.register(memory)
    with pytest.raises(tidewire.OverlapError):
        b.register(memory[100:200])
    first.close()
    a.write(b.address, source, second.address).wait()
    assert memory[:10].all()
    second.close()
    with pytest.raises(tidewire.NotRegisteredError):
        a.write(b.address, source, memory.ctypes.data).wait()


def test_many_are_registered_or_none(pair):
    a, _ = pair
    good, other = np.zeros(4096, np.uint8), np.zeros(4096, np.uint8)
    with pytest.raises(tidewire.Error, match="1"):
        a.register_many([good, other[:0], other])
    regions = a.register_many([good, other])
    assert [region.address for region in regions] == [good.ctypes.data, other.ctypes.data]
    for region in regions:
        region.close()
        region.close()


def test_permissions_are_checked_at_the_target(pair):
    a, b = pair
    mine = a.register(bytearray(16))
    secret = b.register(np.ones(16, np.uint8), permission="none")
    shown = b.register(b"0123456789abcdef", permission="read")
    for operation, remote in [(a.read, secret), (a.write, secret), (a.write, shown)]:
        with pytest.raises(tidewire.PermissionDeniedError):
            operation(b.address, mine, remote.address).wait()
    a.read(b.address, mine, shown.address).wait()
    assert bytes(mine._obj) == b"0123456789abcdef"
    with pytest.raises(tidewire.InvalidArgumentError, match="read-only"):
        b.register(b"constant")
    with pytest.raises(tidewire.InvalidArgumentError, match="permission"):
        b.register(bytearray(8), permission="write")


def test_device_pointers_are_refused_by_name(pair):
    class CudaArray:
        __cuda_array_interface__ = {"shape": (64,), "typestr": "|u1", "data": (0x7000, False)}

    with pytest.raises(tidewire.UnsupportedError, match="cuda"):
        pair[0].register(CudaArray())


def test_copies_in_and_out(pair):
    a, _ = pair
    with a.allocate(100) as buffer:
        a.copy_in(buffer, b"hello")
        a.copy_in(buffer.address + 5, b" you")
        out = bytearray(9)
        a.copy_out(out, buffer)
        assert bytes(out) == b"hello you"
        with pytest.raises(tidewire.InvalidArgumentError):
            a.copy_in(buffer, bytes(101))
        with pytest.raises(tidewire.InvalidArgumentError):
            a.copy_out(b"constant", buffer)
    with pytest.raises(tidewire.NotRegisteredError):
        a.copy_in(0x1000, b"x")


def test_memory_that_the_processor_may_not_touch(pair):
    lib = tidewire._native.lib
    address = ctypes.c_void_p()
    tidewire.check(lib.tw_test_device_allocate(4096, ctypes.byref(address)))
    a, b = pair
    region = b.register((address.value, 4096), location="testdev:0")
    data = pattern(9, 4096)
    a.write(b.address, a.register(data), region.address).wait()
    back = bytearray(4096)
    b.copy_out(back, region)
    assert back == data.tobytes()
    region.close()
    tidewire.check(lib.tw_test_device_free(address))
