# SPDX-License-Identifier: Apache-2.0
"""The life of a store's connection: what it holds, how it is closed, collected, forked and ended with the program."""

from __future__ import annotations

import atexit
import ctypes
import functools
import threading
import weakref
from typing import Any, Optional

import tidewire
from tidewire import _native
from tidewire._life import _together
from tidewire._store_native import StoreOptions, lib

from ._store_codes import failed_call, log

# Every connection that is not destroyed, so that the interpreter's exit can close them.
_connections: "weakref.WeakSet[Connection]" = weakref.WeakSet()
# Engines that connections were given, by store handle: one that is collected together with its store, in a cycle, must
# not be closed first.
_borrowed: dict[int, tidewire.Engine] = {}


class Connection:
    """An open store of the C interface. It is destroyed by ``close``, its collection, or the interpreter's exit.

    While buffers that it handed out live it can't go: it is closed for every further call, and goes with the last one.
    """

    def __init__(self, handle: int, engine: Optional[tidewire.Engine]) -> None:
        self.handle = handle
        self.closed = False
        # Memory of this process that is mounted, by ordinal: kept until it is unmounted.
        self.mounted: dict[int, Any] = {}
        self._destroyed = False
        self._buffers = 0
        self._process = _native.process_id
        self._lock = threading.RLock()  # a collection may release a buffer while this thread holds it
        if engine is not None:
            _borrowed[handle] = engine
        _connections.add(self)

    @classmethod
    def open(cls, options: StoreOptions, engine: Optional[tidewire.Engine]) -> tuple[int, Optional["Connection"]]:
        """(0, connection), or a negative code after a line in the log."""
        out = ctypes.c_uint64()
        code = failed_call(lib.tw_store_create(ctypes.byref(options), ctypes.byref(out)), "setup")
        return (code, None) if code else (0, cls(out.value, engine))

    def refusal(self) -> str:
        """Why no call may be made, or ""."""
        if self._process != _native.process_id:
            return f"this store belongs to process {self._process}; a forked process must set up its own"
        return "this store is closed" if self.closed else ""

    def close(self) -> int:
        """Unmounts its memory and frees everything. 0, or a negative code. In a forked child this does nothing."""
        with self._lock:
            if self.closed:
                return 0
            self.closed = True
            held = self._buffers
        if held and self._reachable():
            log.warning("a store is closed while %d buffer(s) of it are in use: it stays until they are gone", held)
            return 0
        return self._destroy()

    def add_buffers(self, count: int) -> None:
        """Counts buffers that this connection hands out."""
        with self._lock:
            self._buffers += count

    def release_buffer(self, handle: int) -> None:
        """Gives a buffer's memory back."""
        if not self._reachable():
            return
        lib.tw_store_buffer_release(handle)
        with self._lock:
            self._buffers -= 1
            last = self.closed and not self._buffers
        if last:
            self._destroy()

    def __del__(self) -> None:
        if not getattr(self, "_destroyed", True):
            self._destroy()

    def _reachable(self) -> bool:
        return not (self._destroyed or _native.exiting or self._process != _native.process_id)

    def _destroy(self) -> int:
        with self._lock:
            if not self._reachable():
                return 0
            self._destroyed = self.closed = True
        code = failed_call(lib.tw_store_destroy(self.handle), "close")
        _borrowed.pop(self.handle, None)
        self.mounted.clear()
        return code


class BufferHandle:
    """An object's bytes in memory of the store, as ``get_buffer`` gives them, without a copy.

    Has the buffer protocol (``numpy.frombuffer``, ``memoryview``, ``bytes``) and a ``len``. The memory stays until the
    handle and everything made over it are gone, also beyond the store's ``close``. It is not to be written to.
    """

    # Each handle is of a subclass that is also a ctypes array of its size: that is what has a buffer in Python 3.9.
    _keeper: Optional[tuple[Connection, int]] = None

    def __init__(self) -> None:
        raise TypeError("a BufferHandle comes from get_buffer")

    def ptr(self) -> int:
        """The address of the first byte."""
        return ctypes.addressof(self)  # type: ignore[arg-type]

    def size(self) -> int:
        """Length in bytes."""
        return len(self)  # type: ignore[arg-type]

    def __repr__(self) -> str:
        return f"<BufferHandle {self.size()} bytes at {self.ptr():#x}>"

    def __del__(self) -> None:
        keeper = self._keeper
        if keeper is not None:
            self._keeper = None
            keeper[0].release_buffer(keeper[1])


@functools.lru_cache(maxsize=64)
def _array_type(base: type, nbytes: int) -> Any:
    return type(base.__name__, (base, ctypes.c_ubyte * nbytes), {})


def buffer_over(base: type, address: int, nbytes: int) -> Any:
    """An object of the class ``base`` that has the buffer protocol over ``nbytes`` at ``address``."""
    return _array_type(base, nbytes).from_address(address)


def make_handle(connection: Connection, data: int, nbytes: int, handle: int) -> BufferHandle:
    """The handle that gives ``handle`` back to the library when it goes; ``connection`` has counted it."""
    made = _array_type(BufferHandle, nbytes).from_address(data)
    made._keeper = (connection, handle)
    return made


def _close_at_exit() -> None:
    """Closes every connection of this process. Runs before the engines' own: what is registered later goes first.

    One whose buffers daemon threads may still be looking at is left to the kernel.
    """
    open_ones = [connection for connection in list(_connections) if connection._reachable()]
    daemons = threading.active_count() > 1
    _together([connection._destroy for connection in open_ones if not (connection._buffers and daemons)])


atexit.register(_close_at_exit)
