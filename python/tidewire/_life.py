# SPDX-License-Identifier: Apache-2.0
"""The life of an engine: what it holds, how it is closed, collected, forked and ended with the interpreter."""

from __future__ import annotations

import atexit
import ctypes
import logging
import threading
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any, Callable, Sequence

from . import _native
from .batch import State, _resolve
from .errors import ClosedError, Code, ForkedError, check

if TYPE_CHECKING:
    from .memory import Region
    from .peers import Peer

_log = logging.getLogger("tidewire")

# Every engine that is not destroyed, so that the interpreter's exit can close them.
_engines: "weakref.WeakSet[EngineLife]" = weakref.WeakSet()


class EngineLife:
    """What an engine holds while it lives, and every way in which it ends. ``Engine`` adds what it can do."""

    def __init__(self) -> None:
        self._handle = 0
        self._closed = True
        self._destroyed = True
        self._process = _native.process_id
        self._lock = threading.RLock()
        self._views: set[int] = set()
        self._regions: dict[Region, None] = {}
        self._by_object: dict[int, Region] = {}
        self._peers: dict[str, Peer] = {}
        self._orphans: deque[tuple[int, Any]] = deque()
        self._loop_waiters: set[tuple[Any, Any]] = set()
        if _native.exiting:
            raise ClosedError("the interpreter is exiting")

    def _start(self, options: _native.EngineOptions) -> None:
        handle = ctypes.c_uint64()
        check(_native.lib.tw_engine_create(ctypes.byref(options), ctypes.byref(handle)))
        self._handle = handle.value
        self._closed = self._destroyed = False
        self._address, self._port = self._read_address()
        _engines.add(self)

    def close(self) -> None:
        """Finishes or cancels what is in flight (bounded, about 1 s), tells peers and frees everything. Idempotent.

        While views of allocated memory live the engine can't go: it is closed for every further call, a warning is
        logged, and it goes when the last view does or the interpreter exits. In a forked child this does nothing.
        """
        with self._lock:
            if self._closed:
                return
            self._closed = True
        if self._views and self._reachable():
            _log.warning(
                "engine %s closed while %d buffer(s) of it have live views (numpy arrays, memoryviews): it stays until "
                "they are gone",
                self._address,
                len(self._views),
            )
        self._destroy_when_unused()

    def __del__(self) -> None:
        if not getattr(self, "_destroyed", True):
            self._destroy()

    def _live(self) -> int:
        """The handle, or why there is none."""
        if self._process != _native.process_id:
            raise ForkedError(
                f"engine {getattr(self, '_address', '?')} belongs to process {self._process}; this process was forked "
                "from it and must create its own engine"
            )
        if self._closed:
            raise ClosedError(f"engine {getattr(self, '_address', '?')} is closed")
        return self._handle

    def _reachable(self) -> bool:
        """Whether clean-up may call the library for this engine."""
        return not (self._destroyed or _native.exiting or self._process != _native.process_id)

    def _destroy_when_unused(self) -> None:
        if self._closed and not self._views:
            self._destroy()

    def _destroy(self) -> None:
        with self._lock:
            if not self._reachable():
                return
            self._destroyed = self._closed = True
        code = _native.lib.tw_engine_destroy(self._handle)
        if code:
            _log.error("engine %s did not close cleanly: %s", self._address, _native.last_error())
        self._regions.clear()
        self._by_object.clear()
        self._peers.clear()
        self._orphans.clear()
        for loop, future in list(self._loop_waiters):
            try:
                loop.call_soon_threadsafe(_resolve, future)
            except RuntimeError:  # that loop is closed
                pass

    def _read_address(self) -> tuple[str, int]:
        out = ctypes.create_string_buffer(512)
        port = ctypes.c_uint16()
        check(_native.lib.tw_engine_address(self._handle, out, len(out)))
        check(_native.lib.tw_engine_port(self._handle, ctypes.byref(port)))
        return out.value.decode("utf-8", "replace"), port.value

    def _forget(self, region: Region) -> None:
        self._regions.pop(region, None)
        if self._by_object.get(id(region._obj)) is region:
            del self._by_object[id(region._obj)]

    def _reap(self) -> None:
        """Frees batches that nobody holds any more and that have ended."""
        for _ in range(len(self._orphans)):
            try:
                handle, keep = self._orphans.popleft()
            except IndexError:
                return
            raw = _native.BatchStatus()
            code = _native.lib.tw_batch_poll(handle, ctypes.byref(raw))
            if code in (0, Code.BUSY) and raw.state < State.INVALID:
                self._orphans.append((handle, keep))
            else:
                _native.lib.tw_batch_release(handle)


def _close_at_exit() -> None:
    """Closes every engine of this process; afterwards objects may be collected in any order.

    Each close is bounded by the library, and all run at the same time. An engine whose memory daemon threads may still
    be looking at is left to the kernel, which closes its sockets.
    """
    engines = [engine for engine in list(_engines) if engine._reachable()]
    daemons = threading.active_count() > 1
    _together([engine._destroy for engine in engines if not (engine._views and daemons)])
    _native.exiting = True


def _together(calls: Sequence[Callable[[], Any]]) -> None:
    """Makes the calls at the same time and waits for them, also while the interpreter ends."""
    threads = []
    for call in calls[1:]:
        thread = threading.Thread(target=call, daemon=True)
        try:
            thread.start()
            threads.append(thread)
        except RuntimeError:  # the interpreter starts no more threads
            call()
    if calls:
        calls[0]()
    for thread in threads:
        thread.join(10)


atexit.register(_close_at_exit)
