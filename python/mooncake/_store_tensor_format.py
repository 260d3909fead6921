# SPDX-License-Identifier: Apache-2.0
"""How a tensor is stored: a header of 304 bytes, then its elements in row-major order, little-endian.

    offset  size  field
         0     4  magic "TWTN"
         4     2  version, 1
         6     2  header_size, 304
         8     4  dtype: index in DTYPES
        12     4  ndim, at most 8
        16     4  layout_kind: 0 a whole tensor, 1 a shard of one
        20     4  flags, 0
        24     8  data_offset, 304
        32     8  data_bytes
        40    64  shape of what is stored, 8 numbers
       104    64  shape of the whole tensor
       168    64  where this shard begins in the whole, for each dimension
       232     4  axes: how many of the following are used
       236     4  0
       240    64  4 axes of 16 bytes: kind (1 = tensor parallel), split dimension (1 byte each), rank, size, 0 (2 each),
                  expert id, stage id (4 each, -1 = none)

Dimensions beyond ndim hold 0.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any, Sequence, Tuple

HEADER_BYTES = 304
MAX_DIMENSIONS = 8
DTYPES = (
    "float32",
    "float64",
    "int8",
    "uint8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "bool",
    "float16",
    "bfloat16",
    "float8_e4m3fn",
    "float8_e5m2",
)
ITEM_BYTES = (4, 8, 1, 1, 2, 2, 4, 4, 8, 8, 1, 2, 2, 1, 1)

_MAGIC = int.from_bytes(b"TWTN", "little")
_VERSION = 1
_HEAD = struct.Struct("<IHHiiIIQQ")
_LAYOUT = struct.Struct("<8q8q8qII")
_AXIS = struct.Struct("<bbHHHii")
_AXES = 4
_TENSOR_PARALLEL = 1


@dataclass(frozen=True)
class Shard:
    """Which part of a whole tensor: ``rank`` of ``size`` along ``dimension``, beginning at ``start`` there."""

    rank: int
    size: int
    dimension: int
    start: int
    global_shape: Tuple[int, ...]


@dataclass(frozen=True)
class Layout:
    """What a header says. ``dtype``: index in DTYPES. ``shard``: None for a whole tensor."""

    dtype: int
    shape: Tuple[int, ...]
    shard: Any = field(default=None)

    @property
    def elements(self) -> int:
        count = 1
        for extent in self.shape:
            count *= extent
        return count

    @property
    def data_bytes(self) -> int:
        return self.elements * ITEM_BYTES[self.dtype]


def _eight(values: Sequence[int]) -> Tuple[int, ...]:
    return tuple(values) + (0,) * (MAX_DIMENSIONS - len(values))


def write_header(layout: Layout) -> bytes:
    """The 304 bytes. ValueError for more than 8 dimensions."""
    ndim = len(layout.shape)
    if ndim > MAX_DIMENSIONS:
        raise ValueError(f"a tensor of {ndim} dimensions; at most {MAX_DIMENSIONS} can be stored")
    shard = layout.shard
    head = _HEAD.pack(
        _MAGIC, _VERSION, HEADER_BYTES, layout.dtype, ndim, int(shard is not None), 0, HEADER_BYTES, layout.data_bytes
    )
    whole, start, axes = layout.shape, [0] * ndim, b""
    if shard is not None:
        whole = shard.global_shape
        start[shard.dimension] = shard.start
        axes = _AXIS.pack(_TENSOR_PARALLEL, shard.dimension, shard.rank, shard.size, 0, -1, -1)
    metadata = _LAYOUT.pack(*_eight(layout.shape), *_eight(whole), *_eight(start), len(axes) // _AXIS.size, 0)
    return head + metadata + axes.ljust(_AXES * _AXIS.size, b"\0")


def read_header(data: Any, available: int) -> Layout:
    """The layout that the first 304 bytes of ``data`` describe, of an object of ``available`` bytes.

    ValueError says what is wrong: then these are not the bytes of a stored tensor.
    """
    if available < HEADER_BYTES:
        raise ValueError(f"{available} bytes are fewer than a tensor's header of {HEADER_BYTES}")
    raw = bytes(memoryview(data).cast("B")[:HEADER_BYTES])
    magic, version, size, dtype, ndim, kind, flags, offset, nbytes = _HEAD.unpack_from(raw)
    if (magic, version, size, offset, flags) != (_MAGIC, _VERSION, HEADER_BYTES, HEADER_BYTES, 0) or kind > 1:
        raise ValueError("these bytes don't begin with a tensor's header")
    if not 0 <= dtype < len(DTYPES) or not 0 <= ndim <= MAX_DIMENSIONS:
        raise ValueError(f"a tensor's header with dtype {dtype} and {ndim} dimensions")
    numbers = _LAYOUT.unpack_from(raw, _HEAD.size)
    shape, whole, start = (tuple(numbers[first : first + ndim]) for first in (0, 8, 16))
    shard = None
    if kind == 1:
        axis, dimension, rank, count, _, _, _ = _AXIS.unpack_from(raw, _HEAD.size + _LAYOUT.size)
        if numbers[24] != 1 or axis != _TENSOR_PARALLEL or not 0 <= dimension < ndim or rank >= count:
            raise ValueError("a tensor's header with a shard that can't be")
        shard = Shard(rank, count, dimension, start[dimension], whole)
    layout = Layout(dtype, shape, shard)
    if min(shape, default=0) < 0 or layout.data_bytes != nbytes or HEADER_BYTES + nbytes > available:
        raise ValueError(f"a tensor's header with shape {shape} and {nbytes} bytes, in an object of {available}")
    return layout
