# SPDX-License-Identifier: Apache-2.0
"""Questions about keys, their removal, their replicas, and sessions: one question to the master, then many ranges."""

from __future__ import annotations

import ctypes
import json
from typing import Any, Dict, List, Sequence

from tidewire import _native
from tidewire._store_native import lib

from ._arguments import to_list, to_string
from ._store_calls import Keys, PutOptions, encode_key, nested_parts, pack_key, pack_keys, to_sequence
from ._store_codes import INVALID_PARAMS, failed_call, not_supported, refused
from ._store_core import StoreCore, first_error
from ._store_types import DEFAULT, Descriptor, MemoryDescriptor, ReplicaDescriptor, ReplicaStatus, ReplicateConfig


class KeyMethods(StoreCore):
    """Questions about keys, their removal, their replicas, and sessions."""

    def is_exist(self, key: str, /) -> int:
        """1 or 0, or a negative code."""
        return self._exists("is_exist", pack_key(key))[0]

    def batch_is_exist(self, keys: Sequence[str]) -> List[int]:
        """1, 0 or a negative code for each key."""
        return self._exists("batch_is_exist", pack_keys(keys))

    def get_size(self, key: str, /) -> int:
        """The object's bytes, or a negative code."""
        return self._each("get_size", pack_key(key), lib.tw_store_sizes)[0]

    # -- removal --

    def remove(self, key: str, force: bool = False) -> int:
        """0, or a negative code: -704 no such key, -706 a reader has a lease (which ``force`` overrides)."""
        return self._remove("remove", pack_key(key), force)[0]

    def batch_remove(self, keys: Sequence[str], force: bool = False) -> List[int]:
        """As :meth:`remove` for each key."""
        return self._remove("batch_remove", pack_keys(keys), force)

    def remove_by_regex(self, regex_pattern: str, force: bool = False) -> int:
        """Removes the keys in which the regular expression (ECMAScript) matches. How many, or a negative code."""
        pattern = encode_key(regex_pattern, "regex_pattern")
        if not pattern or b"\0" in pattern:
            return refused("remove_by_regex", f"{regex_pattern!r} is no pattern (remove_all removes all)")
        return self._remove_matching("remove_by_regex", pattern, force)

    def remove_all(self, force: bool = False) -> int:
        """Removes all keys. How many, or a negative code."""
        return self._remove_matching("remove_all", None, force)

    # -- replicas --

    def get_replica_desc(self, key: str) -> List[ReplicaDescriptor]:
        """The replicas of a key; [] when there are none."""
        return self._replicas("get_replica_desc", pack_key(key))[0]

    def batch_get_replica_desc(self, keys: Sequence[str]) -> Dict[str, List[ReplicaDescriptor]]:
        """The replicas of each key by key; [] for a key that has none."""
        names = [to_string(key, "keys") for key in to_sequence(keys, "keys")]
        return dict(zip(names, self._replicas("batch_get_replica_desc", pack_keys(names))))

    def batch_replica_clear(self, keys: Sequence[str], segment_name: str = "") -> List[str]:
        """Removes all replicas of the keys, unless readers have leases. The keys that are gone now. Replicas on one
        segment alone (``segment_name``) can't be removed: [] and a line in the log."""
        names = [to_string(key, "keys") for key in to_sequence(keys, "keys")]
        if to_string(segment_name, "segment_name"):
            not_supported(f"batch_replica_clear(segment_name={segment_name!r})")
            return []
        results = self._remove("batch_replica_clear", pack_keys(names), False)
        return [name for name, result in zip(names, results) if result == 0]

    # -- sessions --

    def batch_get_session_start(self, keys: Sequence[str]) -> List[int]:
        """Finds a complete replica of each key and takes a lease on it, for :meth:`batch_get_into_multi_buffer_ranges`.
        0 or a negative code for each; keys that are in a session already are skipped."""
        return self._each("batch_get_session_start", pack_keys(keys), lib.tw_store_get_session_start)

    def batch_get_into_multi_buffer_ranges(
        self,
        keys: Sequence[str],
        all_buffer_ptrs: Sequence[Sequence[int]],
        all_sizes: Sequence[Sequence[int]],
        all_src_offsets: Sequence[Sequence[int]],
    ) -> List[int]:
        """Reads ``all_sizes[i][j]`` bytes from ``all_src_offsets[i][j]`` of object i to ``all_buffer_ptrs[i][j]``.
        Bytes or a negative code for each key. In a get session this asks the master nothing."""
        parts = nested_parts(all_buffer_ptrs, all_sizes, all_src_offsets, "all_src_offsets")
        return self._get_into("batch_get_into_multi_buffer_ranges", pack_keys(keys), parts)

    def batch_get_session_end(self, keys: Sequence[str]) -> int:
        """Gives the leases back. 0 or the first negative code."""
        return first_error(self._each("batch_get_session_end", pack_keys(keys), lib.tw_store_get_session_end))

    def batch_put_session_start(
        self, keys: Sequence[str], sizes: Sequence[int], config: ReplicateConfig = DEFAULT
    ) -> List[int]:
        """Takes space of ``sizes[i]`` bytes for each key, for :meth:`batch_put_from_multi_buffer_ranges`. 0 or a
        negative code for each. Nobody sees the objects before :meth:`batch_put_session_end`."""
        what, packed, lengths = "batch_put_session_start", pack_keys(keys), to_list(sizes, "sizes")
        options = PutOptions(config, packed.count, False, what)
        if options.code:
            return [options.code] * packed.count
        if lengths.count != packed.count:
            return [refused(what, f"{packed.count} keys but {lengths.count} sizes")] * packed.count
        return self._each(
            what,
            packed,
            lambda handle, names, out: lib.tw_store_put_session_start(
                handle, names, lengths.pointer, options.pointer, out
            ),
        )

    def batch_put_from_multi_buffer_ranges(
        self,
        keys: Sequence[str],
        all_buffer_ptrs: Sequence[Sequence[int]],
        all_sizes: Sequence[Sequence[int]],
        all_dst_offsets: Sequence[Sequence[int]],
    ) -> List[int]:
        """Writes ``all_sizes[i][j]`` bytes at ``all_buffer_ptrs[i][j]`` to ``all_dst_offsets[i][j]`` of object i of a
        put session. Bytes or a negative code for each key."""
        what, packed = "batch_put_from_multi_buffer_ranges", pack_keys(keys)
        parts = nested_parts(all_buffer_ptrs, all_sizes, all_dst_offsets, "all_dst_offsets")
        fault = parts.fault(packed.count) if parts is not None else "lists of different lengths"
        if fault or parts is None or parts.offsets is None:
            return [refused(what, fault)] * packed.count
        arguments, offsets = parts.arguments, parts.offsets.pointer
        return self._each(
            what,
            packed,
            lambda handle, names, out: lib.tw_store_put_session_write(handle, names, *arguments, offsets, out),
        )

    def batch_put_session_end(self, keys: Sequence[str]) -> List[int]:
        """Waits for ranges that are on their way, then makes the objects visible. 0 or a negative code for each."""
        return self._end_put("batch_put_session_end", pack_keys(keys), 1)

    def batch_put_session_revoke(self, keys: Sequence[str]) -> List[int]:
        """Waits for ranges that are on their way, then gives the space back. 0 or a negative code for each."""
        return self._end_put("batch_put_session_revoke", pack_keys(keys), 0)

    # -- helpers --

    def _exists(self, what: str, keys: Keys) -> List[int]:
        return self._each(what, keys, lib.tw_store_exists)

    def _remove(self, what: str, keys: Keys, force: Any) -> List[int]:
        forced = int(bool(force))
        return self._each(what, keys, lambda handle, names, out: lib.tw_store_remove(handle, names, forced, out))

    def _remove_matching(self, what: str, pattern: Any, force: Any) -> int:
        connection = self._live(what)
        if connection is None:
            return INVALID_PARAMS
        count = ctypes.c_int64()
        code = lib.tw_store_remove_matching(connection.handle, pattern, int(bool(force)), ctypes.byref(count))
        return failed_call(code, what) or count.value

    def _end_put(self, what: str, keys: Keys, commit: int) -> List[int]:
        return self._each(
            what, keys, lambda handle, names, out: lib.tw_store_put_session_end(handle, names, commit, out)
        )

    def _replicas(self, what: str, keys: Keys) -> List[List[ReplicaDescriptor]]:
        connection = self._live(what)
        if connection is None or not keys.count:
            return [[] for _ in range(keys.count)]
        handle = connection.handle
        code, text = _native.read_text(
            lambda out, size, needed: lib.tw_store_replicas_json(handle, keys.reference, out, size, needed)
        )
        if failed_call(code, what):
            return [[] for _ in range(keys.count)]
        return [[_replica(item) for item in replicas] for replicas in json.loads(text)]


def _replica(item: Dict[str, Any]) -> ReplicaDescriptor:
    status = item["status"]
    if isinstance(status, str):
        found = ReplicaStatus.__members__.get(status.upper(), ReplicaStatus.UNDEFINED)
    else:
        found = ReplicaStatus(status)
    place = MemoryDescriptor(Descriptor(int(item["size"]), int(item["address"]), item["endpoint"]))
    return ReplicaDescriptor(found, place)
