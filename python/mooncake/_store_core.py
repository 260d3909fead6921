# SPDX-License-Identifier: Apache-2.0
"""What every method of ``MooncakeDistributedStore`` shares: the connection, and calls with a result for each key."""

from __future__ import annotations

from typing import Any, Callable, List, Optional

from tidewire._store_native import lib

from ._store_calls import Keys, Parts, PutOptions, results_of
from ._store_codes import INVALID_PARAMS, OBJECT_ALREADY_EXISTS, failed_call, note_failures, refused
from ._store_life import Connection
from ._store_types import ReplicateConfig


class StoreCore:
    """A store that may be set up. Nothing here raises but TypeError."""

    def __init__(self) -> None:
        self._connection: Optional[Connection] = None

    def _live(self, what: str) -> Optional[Connection]:
        """The connection, or None after one line in the log."""
        connection = self._connection
        if connection is None:
            refused(what, "setup() has not succeeded yet")
            return None
        refusal = connection.refusal()
        if refusal:
            refused(what, refusal)
            return None
        return connection

    def _each(self, what: str, keys: Keys, call: Callable[[int, Any, int], int]) -> List[int]:
        """Runs ``call(handle, keys, results)``; one result for each key."""
        count = keys.count
        connection = self._live(what)
        if connection is None:
            return [INVALID_PARAMS] * count
        if not count:
            return []
        out = results_of(count)
        code = call(connection.handle, keys.reference, out.buffer_info()[0])
        if code:
            return [failed_call(code, what)] * count
        results = out.tolist()
        if min(results) < 0:
            note_failures(results, what)
        return results

    def _put(
        self, what: str, keys: Keys, parts: Optional[Parts], config: Optional[ReplicateConfig], upsert: bool = False
    ) -> List[int]:
        """Puts each key from its parts: 0 or a negative code each. A key that exists keeps its bytes: a success."""
        options = PutOptions(config, keys.count, upsert, what)
        if options.code:
            return [options.code] * keys.count
        fault = parts.fault(keys.count) if parts is not None else "lists of different lengths"
        if fault or parts is None:
            return [refused(what, fault)] * keys.count
        arguments = parts.arguments
        results = self._each(
            what, keys, lambda handle, packed, out: lib.tw_store_put(handle, packed, *arguments, options.pointer, out)
        )
        if not upsert and OBJECT_ALREADY_EXISTS in results:
            return [0 if result == OBJECT_ALREADY_EXISTS else result for result in results]
        return results

    def _get_into(self, what: str, keys: Keys, parts: Optional[Parts]) -> List[int]:
        """Reads each key into its parts: bytes or a negative code each."""
        fault = parts.fault(keys.count) if parts is not None else "lists of different lengths"
        if fault or parts is None:
            return [refused(what, fault)] * keys.count
        arguments = parts.arguments
        offsets = parts.offsets.pointer if parts.offsets is not None else None
        return self._each(
            what, keys, lambda handle, packed, out: lib.tw_store_get_into(handle, packed, *arguments, offsets, out)
        )


def first_error(results: List[int]) -> int:
    """0, or the first negative result."""
    return next((result for result in results if result < 0), 0)
