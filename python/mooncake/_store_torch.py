# SPDX-License-Identifier: Apache-2.0
"""Between torch's tensors and stored bytes. torch is imported when the first tensor comes or goes, and not before."""

from __future__ import annotations

import ctypes
from typing import Any, Tuple

from ._store_life import buffer_over
from ._store_tensor_format import DTYPES, HEADER_BYTES, ITEM_BYTES, Layout, read_header, write_header


class _Memory:
    """A ctypes array over memory that ``_owner`` keeps."""

    _owner: Any = None


def load_torch() -> Any:
    """The module torch. ValueError where there is none."""
    try:
        import torch
    except ImportError as error:
        raise ValueError(f"tensors need torch: {error}") from None
    return torch


def pack_tensor(tensor: Any, shard: Any = None) -> Tuple[bytes, Any, int]:
    """(header, a contiguous tensor in ordinary memory, bytes of its elements). ValueError for what can't be stored."""
    torch = load_torch()
    if not isinstance(tensor, torch.Tensor):
        raise ValueError(f"a {type(tensor).__name__} is no torch.Tensor")
    name = str(tensor.dtype).rsplit(".", 1)[-1]
    if name not in DTYPES or tensor.layout is not torch.strided:
        raise ValueError(f"a tensor of {tensor.dtype} and {tensor.layout} can't be stored")
    plain = tensor.detach().cpu().resolve_neg().contiguous()
    layout = Layout(DTYPES.index(name), tuple(plain.shape), shard)
    return write_header(layout), plain, layout.data_bytes


def tensor_of(data: Any, layout: Layout, copy: bool) -> Any:
    """The tensor whose elements follow the header in ``data`` (a writable buffer), with or without a copy."""
    torch = load_torch()
    dtype = getattr(torch, DTYPES[layout.dtype], None)
    if dtype is None:
        raise ValueError(f"this torch has no {DTYPES[layout.dtype]}")
    if layout.elements == 0:
        return torch.empty(layout.shape, dtype=dtype)
    flat = torch.frombuffer(data, dtype=dtype, count=layout.elements, offset=HEADER_BYTES)
    return (flat.clone() if copy else flat).reshape(layout.shape)


def tensor_at(address: int, available: int) -> Any:
    """The tensor over a stored object's bytes at ``address``, without a copy. The memory must outlive it."""
    memory = buffer_over(_Memory, address, available)
    return tensor_of(memory, read_header(memory, available), False)


def serialize(tensor: Any) -> bytes:
    """The bytes under which a tensor is stored."""
    header, plain, nbytes = pack_tensor(tensor)
    return header + (bytes((ctypes.c_ubyte * nbytes).from_address(plain.data_ptr())) if nbytes else b"")


def deserialize(data: Any) -> Any:
    """The tensor that ``serialize`` made bytes of. ValueError for other bytes."""
    copied = bytearray(data)
    return tensor_of(copied, read_header(copied, len(copied)), False)


def shard_ranges(extent: int, count: int) -> Tuple[Tuple[int, int], ...]:
    """(start, length) of ``count`` parts of a dimension; they differ by at most one."""
    base, more = divmod(extent, count)
    lengths = [base + (rank < more) for rank in range(count)]
    return tuple((sum(lengths[:rank]), length) for rank, length in enumerate(lengths))


__all__ = [
    "HEADER_BYTES",
    "ITEM_BYTES",
    "deserialize",
    "load_torch",
    "pack_tensor",
    "serialize",
    "shard_ranges",
    "tensor_at",
    "tensor_of",
]
