# SPDX-License-Identifier: Apache-2.0
"""Address and length of anything that holds bytes."""

from __future__ import annotations

import ctypes
import gc
import mmap
import weakref
from array import array

import numpy as np
import pytest
import tidewire
import tidewire_testing  # noqa: F401  (makes the packages importable)
from hypothesis import given
from hypothesis import strategies as st
from tidewire import describe


def bytes_at(span):
    return ctypes.string_at(span.address, span.nbytes)


@pytest.mark.parametrize(
    "obj, readonly",
    [
        (b"some bytes", True),
        (bytearray(b"some bytes"), False),
        (memoryview(b"some bytes")[2:7], True),
        (array("d", [1.0, 2.5]), False),
        (np.arange(12, dtype=np.float32).reshape(3, 4), False),
        (np.array(7, dtype=np.int64), False),
        ((ctypes.c_int * 5)(1, 2, 3, 4, 5), False),
        (np.zeros(3, dtype="datetime64[s]"), False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_describes_what_the_object_holds(obj, readonly):
    span = describe(obj)
    expected = obj.tobytes() if hasattr(obj, "tobytes") else bytes(obj)
    assert bytes_at(span) == expected
    assert span.readonly is readonly
    assert span.location == "*"


def test_a_mapping_and_an_empty_object():
    with mmap.mmap(-1, 8192) as mapping:
        mapping[:4] = b"abcd"
        span = describe(mapping)
        assert (span.nbytes, bytes_at(span)[:4]) == (8192, b"abcd")
        del span
        gc.collect()
    assert describe(b"").nbytes == 0
    assert describe(np.zeros((0, 4))).nbytes == 0


def test_a_bytearray_can_not_move_while_it_is_described():
    data = bytearray(100)
    span = describe(data)
    with pytest.raises(BufferError):
        data.extend(bytes(10_000))
    del span
    data.extend(bytes(10))


def test_the_span_keeps_the_owner_alive():
    class Owned(np.ndarray):
        pass

    data = np.zeros(10).view(Owned)
    alive = weakref.ref(data)
    span = describe(data)
    del data
    gc.collect()
    assert alive() is not None
    del span
    gc.collect()
    assert alive() is None


def test_a_pair_is_an_address_and_a_length():
    span = describe((4096, np.int64(10)))
    assert (span.address, span.nbytes, span.owner) == (4096, 10, None)
    for bad in [(1,), (1, 2, 3), ("a", 1), (1.5, 2)]:
        with pytest.raises(TypeError):
            describe(bad)
    for bad in [(-1, 2), (1, -2), (2**64 - 1, 2), (1, 2**64)]:
        with pytest.raises(tidewire.InvalidArgumentError):
            describe(bad)


class Device:
    def __init__(self, type, index=None):
        self.type, self.index = type, index


class Tensor:
    """As torch's, as far as this matters."""

    shape = (3, 4)

    def __init__(self, array, device="cpu", index=None, contiguous=True):
        self.array, self.device, self.contiguous = array, Device(device, index), contiguous

    def data_ptr(self):
        return self.array.ctypes.data

    def numel(self):
        return self.array.size

    def element_size(self):
        return self.array.itemsize

    def is_contiguous(self):
        return self.contiguous


def test_tensors_by_data_ptr():
    data = np.arange(12, dtype=np.int16)
    span = describe(Tensor(data))
    assert (span.address, bytes_at(span), span.location) == (data.ctypes.data, data.tobytes(), "*")
    assert describe(Tensor(data, "cuda", 3)).location == "cuda:3"
    assert describe(Tensor(data, "cuda")).location == "cuda:0"
    with pytest.raises(tidewire.InvalidArgumentError, match="contiguous"):
        describe(Tensor(data, contiguous=False))


def test_torch_tensors_and_storages():
    torch = pytest.importorskip("torch")
    for tensor in [
        torch.arange(10, dtype=torch.bfloat16),
        torch.ones(3, 3, requires_grad=True),
        torch.zeros(4, dtype=torch.uint8)[1:3],
    ]:
        span = describe(tensor)
        assert (span.address, span.nbytes) == (tensor.data_ptr(), tensor.numel() * tensor.element_size())
    assert describe(torch.zeros(10).untyped_storage()).nbytes == 40
    with pytest.raises(tidewire.InvalidArgumentError):
        describe(torch.zeros(4, 4).t()[1:])


class DLPackOnly:
    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)


def test_dlpack_with_an_offset_and_without_leaking():
    class Owned(np.ndarray):
        pass

    data = np.arange(100, dtype=np.int32).view(Owned)
    alive = weakref.ref(data)
    span = describe(DLPackOnly(data[10:20]))
    assert bytes_at(span) == data[10:20].tobytes()
    with pytest.raises(tidewire.InvalidArgumentError, match="contiguous"):
        describe(DLPackOnly(data[::2]))
    del data
    gc.collect()
    assert alive() is not None
    del span
    gc.collect()
    assert alive() is None


def test_cuda_arrays_are_named_and_never_touched():
    class CudaArray:
        __cuda_array_interface__ = {"shape": (4, 2), "typestr": "<f4", "data": (0x7000, False), "strides": None}

    span = describe(CudaArray())
    assert (span.address, span.nbytes, span.location) == (0x7000, 32, "cuda:0")


def test_array_interface_is_used_where_a_type_has_no_buffer_format():
    class NoBuffer:
        def __init__(self, array):
            self.__array_interface__ = array.__array_interface__
            self.array = array

    data = np.arange(6, dtype=np.float64).reshape(2, 3)
    assert bytes_at(describe(NoBuffer(data))) == data.tobytes()
    with pytest.raises(tidewire.InvalidArgumentError):
        describe(NoBuffer(data.T))


def test_what_is_not_contiguous_is_refused():
    data = np.zeros((4, 4))
    for bad in [data[:, 1], data.T[1:], data[::2], memoryview(bytes(10))[::2]]:
        with pytest.raises(tidewire.InvalidArgumentError, match="contiguous"):
            describe(bad)


@pytest.mark.parametrize("bad", [None, 5, 2.5, "text", [1, 2], {}, object()])
def test_what_holds_no_bytes_is_a_type_error(bad):
    with pytest.raises(TypeError, match="no memory"):
        describe(bad)


@given(
    shape=st.lists(st.integers(0, 5), min_size=1, max_size=3),
    slices=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 5), st.integers(1, 3)), min_size=3, max_size=3),
)
def test_numpy_views_are_described_exactly_or_refused(shape, slices):
    data = np.arange(int(np.prod(shape)), dtype=np.uint16).reshape(shape)
    view = data[tuple(slice(*cut) for cut in slices[: len(shape)])]
    if view.flags.c_contiguous:
        span = describe(view)
        assert span.nbytes == view.nbytes
        if view.nbytes:
            assert span.address == view.ctypes.data
    else:
        with pytest.raises(tidewire.InvalidArgumentError):
            describe(view)
