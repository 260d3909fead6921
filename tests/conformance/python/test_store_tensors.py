# SPDX-License-Identifier: Apache-2.0
"""Tensors in the store: the header byte by byte, and with torch every type, shape and shard."""

from __future__ import annotations

import itertools
import struct

import numpy as np
import pytest
from mooncake._store_tensor_format import DTYPES, HEADER_BYTES, ITEM_BYTES, Layout, Shard, read_header, write_header
from mooncake._store_torch import shard_ranges
from mooncake.store import (
    MooncakeDistributedStore,
    ParallelAxis,
    ReadTarget,
    ReplicateConfig,
    TensorParallelism,
    _deserialize_tensor,
    _serialize_tensor,
    _tensor_metadata_size,
)
from store_cluster import is_zero

pytest_plugins = ["store_fixtures"]

SHAPES = [(), (1,), (0,), (5,), (2, 3), (2, 0, 3), (1, 2, 3, 4, 1, 2, 1, 2)]


# -- the header, without torch --


def test_the_header_has_304_bytes():
    assert _tensor_metadata_size() == HEADER_BYTES == 304 == 40 + 264
    assert len(DTYPES) == len(ITEM_BYTES) == 15
    assert (DTYPES[0], DTYPES[14]) == ("float32", "float8_e5m2")


def test_the_header_lies_as_documented():
    shard = Shard(rank=1, size=4, dimension=1, start=8, global_shape=(3, 32))
    raw = write_header(Layout(DTYPES.index("bfloat16"), (3, 8), shard))
    assert struct.unpack_from("<4sHHiiIIQQ", raw) == (b"TWTN", 1, 304, 12, 2, 1, 0, 304, 48)
    assert struct.unpack_from("<8q", raw, 40) == (3, 8, 0, 0, 0, 0, 0, 0)
    assert struct.unpack_from("<8q", raw, 104) == (3, 32, 0, 0, 0, 0, 0, 0)
    assert struct.unpack_from("<8q", raw, 168) == (0, 8, 0, 0, 0, 0, 0, 0)
    assert struct.unpack_from("<II", raw, 232) == (1, 0)
    assert struct.unpack_from("<bbHHHii", raw, 240) == (1, 1, 1, 4, 0, -1, -1)
    assert raw[256:] == bytes(48) and len(raw) == 304


@pytest.mark.parametrize("dtype", range(len(DTYPES)), ids=DTYPES)
def test_every_layout_is_read_as_it_was_written(dtype):
    for shape in SHAPES:
        whole = Layout(dtype, shape)
        assert read_header(write_header(whole), 304 + whole.data_bytes) == whole
        for dimension in range(len(shape)):
            part = Layout(dtype, shape, Shard(2, 5, dimension, 7, tuple(extent * 5 for extent in shape)))
            assert read_header(write_header(part), 304 + part.data_bytes) == part


def test_nine_dimensions_are_refused():
    with pytest.raises(ValueError, match="9 dimensions"):
        write_header(Layout(0, (1,) * 9))


def test_bytes_that_are_no_tensor_are_refused():
    layout = Layout(0, (2, 3))
    good = write_header(layout)
    read_header(good, 304 + 24)
    with pytest.raises(ValueError, match="fewer"):
        read_header(good[:303], 303)
    with pytest.raises(ValueError):
        read_header(good, 304 + 23)
    for offset, fmt, value in [
        (0, "<I", 0),
        (4, "<H", 2),
        (6, "<H", 303),
        (8, "<i", 15),
        (8, "<i", -1),
        (12, "<i", 9),
        (12, "<i", -1),
        (16, "<I", 1),  # a shard without an axis
        (16, "<I", 2),
        (20, "<I", 1),
        (24, "<Q", 0),
        (32, "<Q", 25),
        (40, "<q", -2),
        (40, "<q", 2**62),
        (48, "<q", 4),
    ]:
        bad = bytearray(good)
        struct.pack_into(fmt, bad, offset, value)
        with pytest.raises(ValueError):
            read_header(bad, 304 + 24)


def test_every_flipped_bit_of_a_header_is_refused_or_describes_as_many_bytes():
    layout = Layout(1, (4, 3), Shard(1, 2, 0, 4, (8, 3)))
    good = write_header(layout)
    for bit in range(8 * 304):
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        try:
            found = read_header(bad, 304 + layout.data_bytes)
        except ValueError:
            continue
        assert found.data_bytes == layout.data_bytes


def test_shards_cover_a_dimension_without_gaps():
    for extent, count in itertools.product(range(1, 20), range(1, 9)):
        ranges = shard_ranges(extent, count)
        assert len(ranges) == count and sum(length for _, length in ranges) == extent
        assert all(start + length == following[0] for (start, length), following in zip(ranges, ranges[1:]))
        assert max(length for _, length in ranges) - min(length for _, length in ranges) <= 1


def test_an_object_that_is_no_tensor_gives_none(store):
    assert is_zero(store.put("bytes", b"x" * 1000)) and is_zero(store.put("short", b"x"))
    memory = np.zeros(2000, np.uint8)
    assert store.get_tensor("bytes") is None and store.batch_get_tensor(["short", "missing"]) == [None, None]
    assert store.get_tensor_into("bytes", memory.ctypes.data, 2000) is None


def test_what_is_no_tensor_is_refused(store, caplog):
    assert store.put_tensor("k", b"bytes") == -600
    assert store.batch_put_tensor(["k", "l"], [1, None]) == [-600] * 2
    assert store.batch_put_tensor(["k", "l"], [1]) == [-600] * 2
    assert store.put_tensor_with_tp("k", b"bytes", tp_size=2) == -600
    assert store.batch_is_exist(["k", "l"]) == [0, 0]


def test_parallelism_that_is_not_supported_is_refused_by_name(caplog):
    store = MooncakeDistributedStore()
    parallelism = TensorParallelism([ParallelAxis("tp", 0, 2, 0)])
    assert store.put_tensor_with_parallelism("k", None, parallelism) == -1012
    assert "parallelism=<TensorParallelism" in caplog.text
    assert store.batch_put_tensor_with_parallelism(["k", "l"], [1, 2], [None, parallelism]) == [-1012] * 2
    assert store.get_tensor_with_parallelism("k", ReadTarget("full")) is None
    assert store.batch_get_tensor_with_parallelism(["k"], [ReadTarget("shard", parallelism)]) == [None]
    assert store.put_tensor_with_parallelism("k", None, writer_partition=1) == -1012


# -- with torch --


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


def filled(torch, name, shape):
    """A tensor of random bits (of 0 and 1 for bool)."""
    dtype = getattr(torch, name, None)
    if dtype is None:
        pytest.skip(f"this torch has no {name}")
    count = int(np.prod(shape, dtype=np.int64)) * ITEM_BYTES[DTYPES.index(name)]
    raw = torch.randint(0, 2 if name == "bool" else 256, (count,), dtype=torch.uint8)
    return raw.view(dtype).reshape(shape)


def same(torch, one, other):
    """Whether shape, type and every bit agree."""
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    bits = [tensor.contiguous().reshape(-1).view(torch.uint8) for tensor in (one, other)]
    return torch.equal(*bits)


@pytest.mark.parametrize("name", DTYPES)
def test_tensors_of_every_type_and_shape_come_back(torch, store, name):
    tensors = [filled(torch, name, shape) for shape in SHAPES]
    keys = [f"{name}-{index}" for index in range(len(SHAPES))]
    assert store.batch_put_tensor(keys, tensors) == [0] * len(SHAPES)
    for tensor, found, key in zip(tensors, store.batch_get_tensor(keys), keys):
        assert same(torch, tensor, found) and same(torch, tensor, store.get_tensor(key))
        assert same(torch, tensor, _deserialize_tensor(_serialize_tensor(tensor)))
        assert store.get(key) == _serialize_tensor(tensor)


def test_a_tensor_that_comes_back_is_the_callers_own(torch, store):
    tensor = torch.arange(6.0)
    assert is_zero(store.put_tensor("k", tensor))
    store.get_tensor("k").zero_()
    assert torch.equal(store.get_tensor("k"), tensor)


def test_tensors_without_order_and_with_gradients(torch, store):
    base = torch.arange(24.0).reshape(4, 6)
    views = [base.t(), base[::2, 1::2], base[1:2].expand(3, 6), base.clone().requires_grad_()]
    keys = [f"view-{index}" for index in range(len(views))]
    assert store.batch_put_tensor(keys, views) == [0] * len(views)
    for view, found in zip(views, store.batch_get_tensor(keys)):
        assert torch.equal(view.detach(), found) and not found.requires_grad
    assert store.put_tensor("sparse", base.to_sparse()) == -600
    assert store.put_tensor("complex", base.to(torch.complex64)) == -600


def test_puts_keep_and_upserts_replace(torch, store):
    one, two = torch.ones(3), torch.full((2, 2), 2)
    assert is_zero(store.put_tensor("k", one)) and is_zero(store.put_tensor("k", two))
    assert torch.equal(store.get_tensor("k"), one)
    assert is_zero(store.upsert_tensor("k", two)) and torch.equal(store.get_tensor("k"), two)
    assert is_zero(store.pub_tensor("p", one, ReplicateConfig()))
    assert is_zero(store.upsert_pub_tensor("p", two, config=ReplicateConfig()))
    assert store.batch_upsert_tensor(["p", "q"], [one, two]) == [0, 0]
    assert store.batch_upsert_pub_tensor(["p"], [two]) == [0] and store.batch_pub_tensor(["q"], [one]) == [0]
    assert torch.equal(store.get_tensor("p"), two) and torch.equal(store.get_tensor("q"), two)


def test_tensors_go_into_buffers_and_from_them(torch, store):
    tensor = filled(torch, "bfloat16", (3, 5))
    nbytes = 304 + 30
    memory = np.zeros((2, 400), np.uint8)
    base = memory.ctypes.data
    assert is_zero(store.register_buffer(base, 800)) and is_zero(store.put_tensor("k", tensor))
    found = store.get_tensor_into("k", base, 400)
    assert same(torch, tensor, found) and found.data_ptr() == base + 304
    assert is_zero(store.put_tensor_from("copy", base, nbytes))
    assert same(torch, tensor, store.get_tensor("copy"))
    pointers, sizes = [base, base + 400], [400, 400]
    found = store.batch_get_tensor_into(["copy", "missing"], pointers, sizes)
    assert same(torch, tensor, found[0]) and found[1] is None
    assert store.get_tensor_into("k", base, nbytes - 1) is None
    assert is_zero(store.upsert_tensor_from("k", base, nbytes))
    assert store.batch_put_tensor_from(["x", "y"], [base, base], [nbytes, 0]) == [0, -600]
    assert store.batch_upsert_tensor_from(["x"], [base], [nbytes]) == [0]


@pytest.mark.parametrize("dimension", [0, 1, -1])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_shards_are_stored_under_keys_of_their_ranks(torch, store, dimension, size):
    tensor = torch.arange(7 * 4 * 5.0).reshape(7, 4, 5)
    assert is_zero(store.put_tensor_with_tp("w", tensor, tp_size=size, split_dim=dimension))
    shards = [store.get_tensor_with_tp("w", rank, size, dimension) for rank in range(size)]
    assert torch.equal(torch.cat(shards, dimension), tensor)
    if size > 1:
        assert all(torch.equal(store.get_tensor(f"w_tp_{rank}"), shard) for rank, shard in enumerate(shards))
        assert store.get_tensor("w") is None
    found = store.batch_get_tensor_with_tp(["w", "missing"], tp_rank=size - 1, tp_size=size)
    assert torch.equal(found[0], shards[-1]) and found[1] is None


def test_shards_of_many_tensors_and_in_buffers(torch, store):
    tensors = [torch.arange(8.0) + index for index in range(2)]
    assert store.batch_put_tensor_with_tp(["a", "b"], tensors, tp_size=2) == [0, 0]
    assert store.batch_pub_tensor_with_tp(["c", "d"], tensors, ReplicateConfig(), tp_size=4) == [0, 0]
    assert is_zero(store.pub_tensor_with_tp("e", tensors[0], tp_size=2))
    memory = np.zeros((2, 400), np.uint8)
    pointers = [memory.ctypes.data, memory.ctypes.data + 400]
    found = store.batch_get_tensor_with_tp_into(["a", "b"], pointers, [400, 400], tp_rank=1, tp_size=2)
    assert torch.equal(found[0], tensors[0][4:]) and torch.equal(found[1], tensors[1][4:])
    assert torch.equal(store.get_tensor_with_tp_into("c", pointers[0], 400, 3, 4), tensors[0][6:])
    assert is_zero(store.put_tensor_with_tp_from("f", pointers[0], 304 + 8, tp_rank=1, tp_size=2))
    assert torch.equal(store.get_tensor_with_tp("f", 1, 2), tensors[0][6:])
    assert store.batch_put_tensor_with_tp_from(["g"], pointers[:1], [304 + 8], 0, 2) == [0]


def test_more_ranks_than_rows_are_refused(torch, store):
    assert store.put_tensor_with_tp("k", torch.ones(3), tp_size=4) == -600
    assert store.put_tensor_with_tp("k", torch.ones(3), tp_size=2, split_dim=1) == -600
    assert store.put_tensor_with_tp("k", torch.tensor(1.0), tp_size=2) == -600


def test_no_parallelism_is_a_plain_tensor(torch, store):
    tensor = torch.arange(4.0)
    assert is_zero(store.put_tensor_with_parallelism("k", tensor))
    assert is_zero(store.upsert_tensor_with_parallelism("k", tensor + 1, TensorParallelism([])))
    assert torch.equal(store.get_tensor_with_parallelism("k", ReadTarget()), tensor + 1)
    assert torch.equal(store.batch_get_tensor_with_parallelism(["k"], [None])[0], store.get_tensor("k"))
