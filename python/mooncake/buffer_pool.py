# SPDX-License-Identifier: Apache-2.0
"""A pool of registered host memory: buffers for values that are put from and read into memory without a copy.

Registering memory costs more than a small transfer. A pool registers each buffer once and lends it again and again.
"""

from __future__ import annotations

import mmap
import threading
import time
import weakref
from typing import Any, Dict, List, Optional

import tidewire

from ._store_life import buffer_over

_CLOSED = 2  # what health_check answers then


class BufferLeaseView:
    """The bytes of a lease, writable: has the buffer protocol (``numpy.frombuffer``, ``memoryview``) and a ``len``.

    While it lives, or anything made over it, the buffer is lent to nobody else, even after ``release``.
    """

    _lease: Any = None


class _Region:
    """One buffer of the pool: registered, aligned memory of a size class."""

    __slots__ = ("memory", "ptr", "size")

    def __init__(self, size: int, alignment: int) -> None:
        # Pages that are not touched cost nothing, so alignment is room in front.
        self.memory = mmap.mmap(-1, size + alignment)
        base = tidewire.describe(self.memory).address
        self.ptr = -(-base // alignment) * alignment
        self.size = size


class BufferLease:
    """A buffer that is lent: ``size`` bytes at ``ptr``. ``release()``, the end of a ``with`` block or its collection
    give it back."""

    __slots__ = ("_pool", "_region", "_released", "_size", "_view", "__weakref__")

    def __init__(self, pool: "BufferPool", region: _Region, size: int) -> None:
        self._pool = pool
        self._region = region
        self._size = size
        self._released = False
        self._view: Optional[weakref.ref[Any]] = None

    @property
    def ptr(self) -> int:
        """The address of the first byte. RuntimeError after ``release``."""
        self._check()
        return self._region.ptr

    @property
    def size(self) -> int:
        """Length in bytes, as it was asked for."""
        return self._size

    @property
    def buffer(self) -> Any:
        """A :class:`BufferLeaseView` of the bytes. RuntimeError after ``release``."""
        self._check()
        view = self._view() if self._view is not None else None
        if view is None:
            view = buffer_over(BufferLeaseView, self._region.ptr, self._size)
            view._lease = self
            # The lease lives when this runs, because a view's attributes go after its weak references.
            itself = weakref.ref(self)
            self._view = weakref.ref(view, lambda _: _view_gone(itself))
        return view

    def release(self) -> None:
        """Gives the buffer back, at once or when its last view is gone. Idempotent."""
        if self._released:
            return
        self._released = True
        if self._view is None or self._view() is None:
            self._pool._take_back(self._region)

    def _check(self) -> None:
        if self._released:
            raise RuntimeError("this lease was released")

    def __enter__(self) -> "BufferLease":
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.release()

    def __del__(self) -> None:
        if hasattr(self, "_view"):
            self.release()

    def __repr__(self) -> str:
        return f"<BufferLease {self._size} bytes at {self._region.ptr:#x}{' released' if self._released else ''}>"


def _view_gone(reference: Any) -> None:
    lease = reference()
    if lease is not None and lease._released:
        lease._pool._take_back(lease._region)


class BufferPool:
    """Registered buffers of a store, in size classes of powers of two.

    ``store``: a store that is set up; it must outlive the pool. ``max_bytes``: of all buffers together, 0 = no limit.
    ``min_size_class``, ``max_size_class`` (None = no limit): bytes; a larger request is refused. ``alignment``: of each
    buffer's address. ``block_on_exhaustion``: whether ``acquire`` waits at the limit for buffers to come back, for
    ``default_timeout`` seconds (None = as long as it takes). ``max_regions``: how many buffers at most.
    ``prewarm_size`` and ``prewarm_count``: buffers to register at once. Every failure raises RuntimeError.
    """

    def __init__(
        self,
        store: Any,
        max_bytes: int = 0,
        min_size_class: int = 65536,
        max_size_class: Optional[int] = None,
        alignment: int = 8 * 1024 * 1024,
        block_on_exhaustion: bool = True,
        default_timeout: Optional[float] = None,
        max_regions: Optional[int] = None,
        prewarm_size: Optional[int] = None,
        prewarm_count: int = 0,
    ) -> None:
        if max_bytes < 0 or min_size_class < 1 or alignment < 1 or alignment & (alignment - 1):
            raise RuntimeError("max_bytes must be 0 or more, min_size_class 1 or more, alignment a power of two")
        if max_size_class is not None and max_size_class < min_size_class:
            raise RuntimeError(f"max_size_class {max_size_class} is below min_size_class {min_size_class}")
        self._store = store
        self._max_bytes = max_bytes
        self._min_class = 1 << (min_size_class - 1).bit_length()
        self._max_class = max_size_class
        self._alignment = alignment
        self._block = block_on_exhaustion
        self._timeout = default_timeout
        self._max_regions = max_regions
        # Reentrant: a lease may be collected, and so come back, in a thread that is in here.
        self._changed = threading.Condition(threading.RLock())
        self._free: Dict[int, List[_Region]] = {}
        self._bytes = 0
        self._regions = 0
        self._closed = False
        if prewarm_size is not None and prewarm_count > 0:
            self.prewarm(prewarm_size, prewarm_count)

    def acquire(self, size: int, block: Optional[bool] = None, timeout: Optional[float] = None) -> BufferLease:
        """A lease of ``size`` bytes. ``block``, ``timeout`` (seconds): instead of the pool's own."""
        size_class = self._class_of(size)
        wait = self._block if block is None else block
        limit = self._timeout if timeout is None else timeout
        end = None if limit is None else time.monotonic() + limit
        with self._changed:
            while True:
                self._check()
                free = self._free.get(size_class)
                if free:
                    return BufferLease(self, free.pop(), size)
                if self._make_room(size_class):
                    return BufferLease(self, self._new(size_class), size)
                left = None if end is None else end - time.monotonic()
                if not wait or (left is not None and left <= 0):
                    raise RuntimeError(
                        f"no buffer of {size} bytes: {self._regions} buffers with {self._bytes} bytes are in use "
                        f"(max_bytes {self._max_bytes}, max_regions {self._max_regions})"
                    )
                self._changed.wait(left)

    def buffer(self, size: int, block: Optional[bool] = None, timeout: Optional[float] = None) -> BufferLease:
        """As :meth:`acquire`, for ``with pool.buffer(n) as lease``."""
        return self.acquire(size, block, timeout)

    def prewarm(self, size: int, count: int) -> None:
        """Registers ``count`` more buffers for ``size`` bytes; RuntimeError at the limit."""
        size_class = self._class_of(size)
        with self._changed:
            for _ in range(count):
                self._check()
                if not self._fits(size_class):
                    raise RuntimeError(f"{count} buffers of {size_class} bytes are more than the pool may have")
                self._free.setdefault(size_class, []).append(self._new(size_class))
            self._changed.notify_all()

    def close(self) -> None:
        """Unregisters every buffer; those that are lent, when they come back. Idempotent."""
        with self._changed:
            self._closed = True
            for regions in list(self._free.values()):
                for region in regions:
                    self._drop(region)
            self._free.clear()
            self._changed.notify_all()

    def __del__(self) -> None:
        if not getattr(self, "_closed", True):
            self.close()

    def __enter__(self) -> "BufferPool":
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.close()

    def _check(self) -> None:
        if self._closed:
            raise RuntimeError("this pool is closed")

    def _class_of(self, size: int) -> int:
        if size <= 0:
            raise RuntimeError(f"a buffer of {size} bytes")
        if self._max_class is not None and size > self._max_class:
            raise RuntimeError(f"{size} bytes are more than max_size_class {self._max_class}")
        found = max(self._min_class, 1 << (size - 1).bit_length())
        return found if self._max_class is None else min(found, max(self._max_class, size))

    def _fits(self, nbytes: int) -> bool:
        few = self._max_regions is None or self._regions < self._max_regions
        return few and (not self._max_bytes or self._bytes + nbytes <= self._max_bytes)

    def _make_room(self, nbytes: int) -> bool:
        """Whether one more buffer may be made; free ones of other sizes go for it."""
        if self._max_bytes and nbytes > self._max_bytes:
            raise RuntimeError(f"{nbytes} bytes are more than max_bytes {self._max_bytes}")
        while not self._fits(nbytes):
            others = next((regions for regions in list(self._free.values()) if regions), None)
            if others is None:
                return False
            self._drop(others.pop())
        return True

    def _new(self, size_class: int) -> _Region:
        try:
            region = _Region(size_class, self._alignment)
        except (OSError, ValueError, OverflowError) as error:
            raise RuntimeError(f"no memory for a buffer of {size_class} bytes: {error}") from None
        code = self._store.register_buffer(region.ptr, region.size)
        if code:
            raise RuntimeError(f"a buffer of {size_class} bytes could not be registered: {code}")
        self._regions += 1
        self._bytes += size_class
        return region

    def _drop(self, region: _Region) -> None:
        if self._store.health_check() != _CLOSED:  # a store that is closed has unregistered everything
            self._store.unregister_buffer(region.ptr)
        self._regions -= 1
        self._bytes -= region.size

    def _take_back(self, region: _Region) -> None:
        with self._changed:
            if self._closed:
                self._drop(region)
            else:
                self._free.setdefault(region.size, []).append(region)
            self._changed.notify_all()
