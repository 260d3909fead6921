# SPDX-License-Identifier: Apache-2.0
"""Putting and getting objects: the methods for bytes, lists, buffers and ranges."""

from __future__ import annotations

import ctypes
from array import array
from itertools import chain
from typing import Any, List, Optional, Sequence, Tuple

from tidewire._store_native import StoreBuffer, lib

from ._arguments import to_list, to_unsigned
from ._store_calls import (
    Keys,
    Parts,
    Values,
    nested_parts,
    pack_key,
    pack_keys,
    single_parts,
    split,
    to_sequence,
)
from ._store_codes import INVALID_PARAMS, OBJECT_NOT_FOUND, failed_call, note_failures, refused
from ._store_core import StoreCore, first_error
from ._store_life import BufferHandle, Connection, make_handle
from ._store_types import DEFAULT, ReplicateConfig

_new_bytes = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_ssize_t)(
    ("PyBytes_FromStringAndSize", ctypes.pythonapi)
)
_bytes_address = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object)(("PyBytes_AsString", ctypes.pythonapi))
# Copies of more bytes than this let other threads run meanwhile.
_SMALL_COPY = 64 * 1024


def _to_bytes(address: int, nbytes: int) -> bytes:
    if nbytes <= _SMALL_COPY:
        return _new_bytes(address, nbytes)
    made = _new_bytes(None, nbytes)  # nobody else has seen it yet, so it may be filled
    ctypes.memmove(_bytes_address(made), address, nbytes)
    return made


class Objects(StoreCore):
    """The methods for bytes, lists, buffers and ranges."""

    # -- bytes --

    def put(self, key: str, value: Any, config: ReplicateConfig = DEFAULT) -> int:
        """Puts the bytes of ``value`` (anything with a buffer, more than 0 bytes). 0, also when the key exists and so
        keeps its bytes, or a negative code: -200 no space for now, -600 a bad value."""
        return self._put_values("put", pack_key(key), [value], None, config)

    def put_parts(self, key: str, *parts: Any, config: ReplicateConfig = DEFAULT) -> int:
        """Puts one object made of ``parts`` one after the other. RuntimeError for a part that is no contiguous buffer
        of one dimension."""
        return self._put_values("put_parts", pack_key(key), _checked_parts(parts), len(parts), config)

    def put_batch(self, keys: Sequence[str], values: Sequence[Any], config: ReplicateConfig = DEFAULT) -> int:
        """Puts ``values[i]`` under ``keys[i]``. 0 or the first negative code."""
        return self._put_batch("put_batch", keys, values, config, False)

    def upsert(self, key: str, value: Any, config: ReplicateConfig = DEFAULT) -> int:
        """As :meth:`put`, but a key that exists gets the new bytes, at once for all readers."""
        return self._put_values("upsert", pack_key(key), [value], None, config, True)

    def upsert_parts(self, key: str, *parts: Any, config: ReplicateConfig = DEFAULT) -> int:
        """As :meth:`put_parts`, but a key that exists gets the new bytes."""
        return self._put_values("upsert_parts", pack_key(key), _checked_parts(parts), len(parts), config, True)

    def upsert_batch(self, keys: Sequence[str], values: Sequence[Any], config: ReplicateConfig = DEFAULT) -> int:
        """As :meth:`put_batch`, but keys that exist get the new bytes."""
        return self._put_batch("upsert_batch", keys, values, config, True)

    def get(self, key: str, /) -> bytes:
        """The object's bytes; b"" on any failure."""
        return self._get_bytes("get", pack_key(key))[0]

    def get_batch(self, keys: Sequence[str], /) -> List[bytes]:
        """The bytes of each key, b"" for each that fails; [b""] for no keys or a store that is not set up."""
        return self._get_bytes("get_batch", pack_keys(keys)) or [b""]

    def get_buffer(self, key: str, /) -> Optional[BufferHandle]:
        """The object in memory of the store, or None. The bytes are not copied again."""
        return self._get_buffers("get_buffer", pack_key(key))[0]

    def batch_get_buffer(self, keys: Sequence[str], /) -> List[Optional[BufferHandle]]:
        """As :meth:`get_buffer` for each key."""
        return self._get_buffers("batch_get_buffer", pack_keys(keys))

    # -- buffers --

    def put_from(self, key: str, buffer_ptr: int, size: int, config: ReplicateConfig = DEFAULT) -> int:
        """Puts ``size`` bytes at the address ``buffer_ptr``, without a copy where it is registered. As :meth:`put`."""
        return self._put("put_from", pack_key(key), _one_part(buffer_ptr, size), config)[0]

    def put_from_with_metadata(
        self,
        key: str,
        buffer_ptr: int,
        metadata_buffer_ptr: int,
        size: int,
        metadata_size: int,
        config: ReplicateConfig = DEFAULT,
    ) -> int:
        """Puts one object: ``metadata_size`` bytes of metadata, followed by ``size`` bytes at ``buffer_ptr``."""
        addresses = [to_unsigned(metadata_buffer_ptr, "metadata_buffer_ptr"), to_unsigned(buffer_ptr, "buffer_ptr")]
        lengths = [to_unsigned(metadata_size, "metadata_size"), to_unsigned(size, "size")]
        parts = Parts(array("I", (2,)), to_list(addresses, "buffer_ptr"), to_list(lengths, "size"))
        return self._put("put_from_with_metadata", pack_key(key), parts, config)[0]

    def batch_put_from(
        self,
        keys: Sequence[str],
        buffer_ptrs: Sequence[int],
        sizes: Sequence[int],
        config: ReplicateConfig = DEFAULT,
    ) -> List[int]:
        """Puts ``sizes[i]`` bytes at ``buffer_ptrs[i]`` under ``keys[i]``. 0 or a negative code for each."""
        return self._put("batch_put_from", pack_keys(keys), single_parts(buffer_ptrs, sizes), config)

    def batch_put_from_multi_buffers(
        self,
        keys: Sequence[str],
        all_buffer_ptrs: Sequence[Sequence[int]],
        all_sizes: Sequence[Sequence[int]],
        config: ReplicateConfig = DEFAULT,
    ) -> List[int]:
        """Puts under ``keys[i]`` the buffers of ``all_buffer_ptrs[i]`` one after the other. 0 or a negative code for
        each; -200 means that there is no space for now."""
        parts = nested_parts(all_buffer_ptrs, all_sizes)
        return self._put("batch_put_from_multi_buffers", pack_keys(keys), parts, config)

    def upsert_from(self, key: str, buffer_ptr: int, size: int, config: ReplicateConfig = DEFAULT) -> int:
        """As :meth:`put_from`, but a key that exists gets the new bytes."""
        return self._put("upsert_from", pack_key(key), _one_part(buffer_ptr, size), config, True)[0]

    def batch_upsert_from(
        self,
        keys: Sequence[str],
        buffer_ptrs: Sequence[int],
        sizes: Sequence[int],
        config: ReplicateConfig = DEFAULT,
    ) -> List[int]:
        """As :meth:`batch_put_from`, but keys that exist get the new bytes."""
        return self._put("batch_upsert_from", pack_keys(keys), single_parts(buffer_ptrs, sizes), config, True)

    def get_into(self, key: str, buffer_ptr: int, size: int) -> int:
        """Reads the object into ``size`` bytes at ``buffer_ptr``. Bytes read; -600 when they are too few."""
        return self._get_into("get_into", pack_key(key), _one_part(buffer_ptr, size))[0]

    def batch_get_into(self, keys: Sequence[str], buffer_ptrs: Sequence[int], sizes: Sequence[int]) -> List[int]:
        """As :meth:`get_into` for each key."""
        return self._get_into("batch_get_into", pack_keys(keys), single_parts(buffer_ptrs, sizes))

    def batch_get_into_multi_buffers(
        self,
        keys: Sequence[str],
        all_buffer_ptrs: Sequence[Sequence[int]],
        all_sizes: Sequence[Sequence[int]],
        prefer_alloc_in_same_node: bool = False,
    ) -> List[int]:
        """Reads ``keys[i]`` into the buffers of ``all_buffer_ptrs[i]``, which follow one another. Bytes or a negative
        code for each. ``prefer_alloc_in_same_node`` changes nothing: the nearest replica is read anyway."""
        parts = nested_parts(all_buffer_ptrs, all_sizes)
        return self._get_into("batch_get_into_multi_buffers", pack_keys(keys), parts)

    # -- ranges --

    def get_into_ranges(
        self,
        buffer_ptrs: Sequence[int],
        all_keys: Sequence[Sequence[str]],
        all_dst_offsets: Sequence[Sequence[Sequence[int]]],
        all_src_offsets: Sequence[Sequence[Sequence[int]]],
        all_sizes: Sequence[Sequence[Sequence[int]]],
    ) -> List[List[List[int]]]:
        """Reads fragments: ``all_sizes[i][j][k]`` bytes from ``all_src_offsets[i][j][k]`` of object ``all_keys[i][j]``
        to ``buffer_ptrs[i] + all_dst_offsets[i][j][k]``. Bytes or a negative code for each, in the same shape."""
        what = "get_into_ranges"
        bases = list(to_sequence(buffer_ptrs, "buffer_ptrs"))
        names = [to_sequence(keys, "all_keys") for keys in to_sequence(all_keys, "all_keys")]
        shape = _shape(all_sizes, "all_sizes")
        same = shape == _shape(all_dst_offsets, "all_dst_offsets") == _shape(all_src_offsets, "all_src_offsets")
        if not same or len(bases) != len(names) or [len(keys) for keys in names] != [len(counts) for counts in shape]:
            refused(what, "lists of different lengths")
            return [[[INVALID_PARAMS] * count for count in counts] for counts in shape]
        destinations = [
            to_unsigned(base, "buffer_ptrs") + to_unsigned(offset, "all_dst_offsets")
            for base, per_key in zip(bases, all_dst_offsets)
            for offsets in per_key
            for offset in offsets
        ]
        counts = list(chain.from_iterable(shape))
        flat = [
            to_list(_flat(lists), name)
            for lists, name in ((all_sizes, "all_sizes"), (all_src_offsets, "all_src_offsets"))
        ]
        addresses = to_list(destinations, "all_dst_offsets")
        parts = Parts(array("I", counts), addresses, flat[0], flat[1])
        keys = list(chain.from_iterable(names))
        sizes = _flat(all_sizes)
        fragments = self._fragments(what, keys, parts, sizes, counts)
        return [
            split(per_buffer, per_key) for per_buffer, per_key in zip(split(fragments, list(map(sum, shape))), shape)
        ]

    def _fragments(self, what: str, keys: List[Any], parts: Parts, sizes: List[int], counts: List[int]) -> List[int]:
        """One result for each fragment: of keys that failed as a whole the fragments are read one by one."""
        results: List[int] = []
        again: List[Tuple[int, int]] = []  # (key, fragment)
        for key, (result, count) in enumerate(zip(self._get_into(what, pack_keys(keys, "all_keys"), parts), counts)):
            start = len(results)
            if result >= 0:
                results += sizes[start : start + count]
            else:
                results += [result] * count
                if count > 1 and result != OBJECT_NOT_FOUND and self._connection is not None:
                    again += [(key, index) for index in range(start, start + count)]
        if again:
            chosen = [index for _, index in again]
            picked = [_pick(numbers, chosen) for numbers in (parts.addresses, parts.lengths, parts.offsets)]
            single = Parts(None, picked[0], picked[1], picked[2])
            names = pack_keys([keys[key] for key, _ in again], "all_keys")
            for index, result in zip(chosen, self._get_into(what, names, single)):
                results[index] = result
        return results

    # -- helpers --

    def _put_values(
        self,
        what: str,
        keys: Keys,
        values: Sequence[Any],
        parts_of_one_key: Optional[int],
        config: Optional[ReplicateConfig],
        upsert: bool = False,
    ) -> int:
        try:
            packed = Values(values, "value")
        except ValueError as error:  # not contiguous
            return refused(what, str(error))
        counts = None if parts_of_one_key is None else array("I", (parts_of_one_key,))
        return first_error(self._put(what, keys, packed.parts(counts), config, upsert))

    def _put_batch(
        self, what: str, keys: Sequence[str], values: Sequence[Any], config: Optional[ReplicateConfig], upsert: bool
    ) -> int:
        return self._put_values(what, pack_keys(keys), to_sequence(values, "values"), None, config, upsert)

    def _fetch(self, what: str, keys: Keys) -> Tuple[Optional[Connection], List[Tuple[int, int, int, int]]]:
        """(connection, for each key its address, bytes, result and handle); no connection after a line in the log."""
        connection = self._live(what)
        if connection is None or not keys.count:
            return None, []
        out = array("q", bytes(ctypes.sizeof(StoreBuffer) * keys.count))
        if failed_call(lib.tw_store_get(connection.handle, keys.reference, out.buffer_info()[0]), what):
            return None, []
        results = out[2::4].tolist()
        if min(results) < 0:
            note_failures(results, what)
        return connection, list(zip(out[0::4], out[1::4], results, out[3::4]))

    def _get_bytes(self, what: str, keys: Keys) -> List[bytes]:
        connection, items = self._fetch(what, keys)
        if connection is None:
            return [b""] * keys.count if self._connection is not None else [b""]
        values: List[bytes] = []
        for address, nbytes, result, handle in items:
            try:
                values.append(_to_bytes(address, nbytes) if result >= 0 else b"")
            except MemoryError:
                refused(what, f"no memory for {nbytes} bytes")
                values.append(b"")
            finally:
                if handle:
                    lib.tw_store_buffer_release(handle)
        return values

    def _get_buffers(self, what: str, keys: Keys) -> List[Optional[BufferHandle]]:
        connection, items = self._fetch(what, keys)
        if connection is None:
            return [None] * keys.count
        connection.add_buffers(sum(result >= 0 for _, _, result, _ in items))
        return [
            make_handle(connection, address, nbytes, handle) if result >= 0 else None
            for address, nbytes, result, handle in items
        ]


def _one_part(address: Any, size: Any) -> Parts:
    addresses = to_list([to_unsigned(address, "buffer_ptr")], "buffer_ptr")
    return Parts(None, addresses, to_list([to_unsigned(size, "size")], "size"))


def _checked_parts(parts: Sequence[Any]) -> Sequence[Any]:
    for index, part in enumerate(parts):
        if type(part) is bytes:
            continue
        try:
            view = memoryview(part)
        except (TypeError, ValueError, BufferError):
            raise RuntimeError(f"part {index} is no buffer but a {type(part).__name__}") from None
        if view.ndim != 1 or not view.c_contiguous:
            raise RuntimeError(f"part {index} must be a contiguous buffer of one dimension, not of shape {view.shape}")
    return parts


def _shape(lists: Any, name: str) -> List[List[int]]:
    try:
        return [
            [len(to_sequence(inner, name)) for inner in to_sequence(outer, name)] for outer in to_sequence(lists, name)
        ]
    except TypeError:
        raise TypeError(f"{name} must be a list of lists of lists of unsigned ints") from None


def _flat(lists: Any) -> List[int]:
    return list(chain.from_iterable(chain.from_iterable(lists)))


def _pick(numbers: Any, indices: Sequence[int]) -> Any:
    """These of the numbers."""
    every = (ctypes.c_uint64 * numbers.count).from_address(numbers.pointer)
    return to_list([every[index] for index in indices], "indices")
