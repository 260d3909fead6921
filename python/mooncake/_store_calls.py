# SPDX-License-Identifier: Apache-2.0
"""Packs keys, lists of buffers and options for the C interface.

Batches have thousands of keys, so everything here works on whole lists in C speed: joins, maps and array.array. A wrong
type raises TypeError that names the argument.
"""

from __future__ import annotations

import ctypes
from array import array
from itertools import chain
from typing import Any, List, Optional, Sequence, Tuple

import tidewire
from tidewire._arguments import Numbers
from tidewire._store_native import StoreKeys, StorePutOptions

from ._arguments import to_list, to_string
from ._store_codes import NOT_SUPPORTED, refused
from ._store_types import DEFAULT, ReplicateConfig

_NANOSECONDS_PER_MS = 1_000_000


class Keys:
    """Keys (or other names) for the C interface: ``reference`` is a pointer to them, valid while this object lives."""

    __slots__ = ("count", "reference", "raw", "_lengths")

    def __init__(self, blob: bytes, lengths: array) -> None:
        self.count = len(lengths)
        self._lengths = lengths
        self.raw = StoreKeys(blob, lengths.buffer_info()[0] or None, self.count)
        self.reference = ctypes.byref(self.raw)


def pack_keys(values: Any, name: str = "keys") -> Keys:
    """The keys of a sequence of str (or bytes)."""
    values = to_sequence(values, name)
    try:
        text = "".join(values)
    except TypeError:
        return _pack_slowly(values, name)
    if not text.isascii():
        return _pack_slowly(values, name)
    return Keys(text.encode("ascii"), array("Q", list(map(len, values))))


def _pack_slowly(values: Sequence[Any], name: str) -> Keys:
    encoded = [encode_key(value, name) for value in values]
    return Keys(b"".join(encoded), array("Q", map(len, encoded)))


def pack_key(value: Any, name: str = "key") -> Keys:
    """One key."""
    encoded = encode_key(value, name)
    return Keys(encoded, array("Q", (len(encoded),)))


def encode_key(value: Any, name: str) -> bytes:
    try:
        return to_string(value, name).encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise TypeError(f"{name}: {value!r} is no text that UTF-8 can hold") from None


def to_sequence(values: Any, name: str) -> Sequence[Any]:
    """A copy of ``values``, which other threads don't change; TypeError for what is no sequence, and for a text."""
    if type(values) is list or type(values) is tuple:
        return list(values)
    if isinstance(values, (str, bytes, bytearray, dict, set)) or not hasattr(values, "__len__"):
        raise TypeError(f"{name} must be a list, not {type(values).__name__}")
    return list(values)


class Parts:
    """The buffers of a call: ``counts`` is how many belong to each key, None for one each."""

    __slots__ = ("counts", "addresses", "lengths", "offsets", "keys")

    def __init__(
        self,
        counts: Optional[array],
        addresses: Numbers,
        lengths: Numbers,
        offsets: Optional[Numbers] = None,
    ) -> None:
        self.counts = counts
        self.addresses = addresses
        self.lengths = lengths
        self.offsets = offsets
        self.keys = len(counts) if counts is not None else addresses.count

    @property
    def arguments(self) -> Tuple[Any, Any, Any]:
        """(counts, addresses, lengths) as the C interface takes them."""
        counts = self.counts.buffer_info()[0] if self.counts is not None else None
        return counts, self.addresses.pointer, self.lengths.pointer

    def fault(self, keys: int) -> str:
        """What is wrong with the shape of the lists for so many keys, or ""."""
        if self.keys != keys:
            return f"{keys} keys but buffers for {self.keys}"
        if self.lengths.count != self.addresses.count:
            return f"{self.addresses.count} buffers but {self.lengths.count} sizes"
        if self.offsets is not None and self.offsets.count != self.addresses.count:
            return f"{self.addresses.count} buffers but {self.offsets.count} offsets"
        if self.counts is not None and sum(self.counts) != self.addresses.count:
            return "lists that change during the call"
        return ""


def single_parts(addresses: Any, lengths: Any, names: Tuple[str, str] = ("buffer_ptrs", "sizes")) -> Parts:
    """One buffer for each key."""
    return Parts(None, to_list(addresses, names[0]), to_list(lengths, names[1]))


def nested_parts(
    all_addresses: Any, all_lengths: Any, all_offsets: Any = None, offsets_name: str = ""
) -> Optional[Parts]:
    """Several buffers for each key; None where the lists don't have the same shape."""
    addresses, counts = _flatten(all_addresses, "all_buffer_ptrs")
    lengths, length_counts = _flatten(all_lengths, "all_sizes")
    offsets = None
    if all_offsets is not None:
        offsets, offset_counts = _flatten(all_offsets, offsets_name)
        if offset_counts != counts:
            return None
    if length_counts != counts:
        return None
    return Parts(counts, addresses, lengths, offsets)


def _flatten(lists: Any, name: str) -> Tuple[Numbers, array]:
    outer = to_sequence(lists, name)
    try:
        flat = array("Q", list(chain.from_iterable(outer)))
        counts = array("I", list(map(len, outer)))
    except (TypeError, OverflowError) as error:
        raise TypeError(f"{name} must be a list of lists of unsigned ints: {error}") from None
    return to_list(flat, name), counts


class Values:
    """Addresses and lengths of objects with a buffer; keeps them in place."""

    __slots__ = ("addresses", "lengths", "_keep")

    def __init__(self, values: Sequence[Any], name: str) -> None:
        if all(type(value) is bytes for value in values):
            pointers = (ctypes.c_char_p * len(values))(*values)
            self.addresses = Numbers(ctypes.addressof(pointers), len(values), pointers)
            self.lengths = to_list(list(map(len, values)), name)
            self._keep: Any = values
            return
        spans = [_describe(value, name) for value in values]
        self.addresses = to_list([span.address for span in spans], name)
        self.lengths = to_list([span.nbytes for span in spans], name)
        self._keep = spans

    def parts(self, counts: Optional[array] = None) -> Parts:
        return Parts(counts, self.addresses, self.lengths)


def _describe(value: Any, name: str) -> Any:
    if isinstance(value, (str, tuple)):
        raise TypeError(f"{name} must have the buffer protocol, not be a {type(value).__name__}")
    try:
        return tidewire.describe(value)
    except TypeError:
        raise TypeError(f"{name} must have the buffer protocol, not be a {type(value).__name__}") from None


class PutOptions:
    """``pointer`` is a ``tw_store_put_options*`` or None; ``code`` is negative when the configuration is refused."""

    __slots__ = ("pointer", "code", "_keep")

    def __init__(self, config: Optional[ReplicateConfig], keys: int, upsert: bool, what: str) -> None:
        self.pointer: Any = None
        self.code = 0
        self._keep: Any = None
        if config is None or config is DEFAULT:
            self.pointer = _UPSERT if upsert else None
            return
        if not isinstance(config, ReplicateConfig):
            raise TypeError(f"config must be a ReplicateConfig, not {type(config).__name__}")
        for name in ("nof_replica_num", "dfs_replica_num", "preferred_nof_segments"):
            if getattr(config, name):
                why = f"ReplicateConfig.{name} = {getattr(config, name)!r} is not supported ({NOT_SUPPORTED})"
                self.code = refused(what, why, NOT_SUPPORTED)
                return
        if config.replica_num >= 2**32 or (config.soft_pin_ttl_ms or 0) >= 2**64 // _NANOSECONDS_PER_MS:
            self.code = refused(what, f"out of range: {config!r}")
            return
        groups = pack_keys(config.group_ids, "group_ids") if config.group_ids is not None else None
        if groups is not None and groups.count != keys:
            self.code = refused(what, f"{groups.count} group_ids for {keys} keys")
            return
        segments = [encode_key(segment, "preferred_segments") for segment in config.preferred_segments]
        if config.preferred_segment:
            segments.append(encode_key(config.preferred_segment, "preferred_segment"))
        if any(b"\0" in segment for segment in segments):
            self.code = refused(what, f"a segment's name with a NUL: {config!r}")
            return
        self._fill(config, upsert, segments, groups)

    def _fill(self, config: ReplicateConfig, upsert: bool, segments: List[bytes], groups: Optional[Keys]) -> None:
        names = (ctypes.c_char_p * (len(segments) + 1))(*segments, None) if segments else None
        raw = StorePutOptions(
            struct_size=ctypes.sizeof(StorePutOptions),
            upsert=int(upsert),
            replicas=config.replica_num,
            soft_pin=int(config.soft_pin_action),
            soft_pin_ttl_ns=(config.soft_pin_ttl_ms or 0) * _NANOSECONDS_PER_MS,
            hard_pin=int(config.with_hard_pin),
            prefer_same_host=int(config.prefer_alloc_in_same_node),
            preferred_segments=ctypes.cast(names, ctypes.POINTER(ctypes.c_char_p)) if names is not None else None,
            data_type=int(config.data_type),
            groups=ctypes.pointer(groups.raw) if groups is not None else None,
        )
        self._keep = (raw, names, groups)
        self.pointer = ctypes.byref(raw)


# Put with the default configuration, and replace.
_UPSERT = ctypes.byref(StorePutOptions(struct_size=ctypes.sizeof(StorePutOptions), upsert=1, replicas=1))


def results_of(count: int) -> array:
    """Room for one result for each key."""
    return array("q", bytes(8 * count))


def split(results: List[int], counts: Sequence[int]) -> List[List[int]]:
    """The results in groups of these lengths."""
    out, start = [], 0
    for count in counts:
        out.append(results[start : start + count])
        start += count
    return out
