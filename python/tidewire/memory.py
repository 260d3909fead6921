# SPDX-License-Identifier: Apache-2.0
"""Memory of an engine: ``Buffer`` is allocated by it, ``Region`` is registered with it and belongs to somebody else."""

from __future__ import annotations

import ctypes
import functools
import weakref
from typing import TYPE_CHECKING, Any, Optional

from . import _native
from .buffers import Span
from .errors import ClosedError, check

if TYPE_CHECKING:
    from .engine import Engine


class Buffer:
    """Zeroed, page-aligned, registered pool memory that peers on this host can map. ``Engine.allocate`` makes it.

    ``close()`` frees it, or the end of a ``with`` block, or its collection. While views of it live (memoryviews, numpy
    arrays over them) the memory stays: a close takes effect when the last view is gone.
    """

    __slots__ = ("_address", "_closed", "_engine", "_exporter", "_freed", "_location", "_nbytes", "__weakref__")

    def __init__(self, engine: "Engine", address: int, nbytes: int, location: str) -> None:
        self._engine = engine
        self._address = address
        self._nbytes = nbytes
        self._location = location
        self._closed = False
        self._freed = False
        self._exporter: Optional[weakref.ref[Any]] = None

    @property
    def address(self) -> int:
        """Virtual address of the first byte."""
        return self._address

    @property
    def nbytes(self) -> int:
        """Length in bytes."""
        return self._nbytes

    def view(self) -> memoryview:
        """A writable memoryview of ``nbytes`` unsigned bytes; ``numpy.frombuffer(buffer.view(), dtype)`` shapes it.

        For memory that the processor may not touch use ``Engine.copy_in`` and ``Engine.copy_out`` instead.
        """
        self._engine._live()
        exporter = self._exporter() if self._exporter is not None else None
        if self._closed:
            raise ClosedError(f"the buffer at {self._address:#x} is closed")
        if exporter is None:
            exporter = _exporter_type(self._nbytes).from_address(self._address)
            exporter.buffer = self  # whoever holds a view holds this buffer
            self._engine._views.add(self._address)
            itself = weakref.ref(self)  # alive when the callback runs, because the exporter's attributes go last

            def gone(_: Any) -> None:
                buffer = itself()
                if buffer is not None:
                    buffer._view_gone()

            self._exporter = weakref.ref(exporter, gone)
        return memoryview(exporter).cast("B")

    def close(self) -> None:
        """Frees the memory, at once or when its last view is gone. Idempotent."""
        self._closed = True
        if self._exporter is None or self._exporter() is None:
            check(self._free())

    def __len__(self) -> int:
        return self._nbytes

    def __enter__(self) -> "Buffer":
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<tidewire.Buffer {self._nbytes} bytes at {self._address:#x}{' closed' if self._closed else ''}>"

    def __del__(self) -> None:
        if hasattr(self, "_exporter"):
            self._closed = True
            self._view_gone()

    def _view_gone(self) -> None:
        self._engine._views.discard(self._address)
        if self._closed:
            self._free()
        self._engine._destroy_when_unused()

    def _free(self) -> int:
        if self._freed or not self._engine._reachable():
            return 0
        code = _native.lib.tw_free(self._engine._handle, self._address)
        self._freed = code == 0
        return code

    def _tidewire_span(self) -> Span:
        if self._closed:
            raise ClosedError(f"the buffer at {self._address:#x} is closed")
        return Span(self._address, self._nbytes, self._location, False, self)


class Region:
    """A registered range of memory that belongs to ``obj``. ``Engine.register`` makes it.

    The engine keeps the region and the object alive until ``close()`` (or the end of a ``with`` block, or the close of
    the engine), so a program that registers once and forgets the region is right too.
    """

    __slots__ = ("_closed", "_engine", "_obj", "_permission", "_span", "__weakref__")

    def __init__(self, engine: "Engine", obj: Any, span: Span, permission: str) -> None:
        self._engine = engine
        self._obj = obj
        self._span = span
        self._permission = permission
        self._closed = False

    @property
    def address(self) -> int:
        """Virtual address of the first byte."""
        return self._span.address

    @property
    def nbytes(self) -> int:
        """Length in bytes."""
        return self._span.nbytes

    @property
    def permission(self) -> str:
        """What peers may do: "none", "read" or "read-write"."""
        return self._permission

    def close(self) -> None:
        """Unregisters: peers are refused from now on, work in flight is waited for (bounded, 0.4 s). Idempotent."""
        if self._closed:
            return
        if self._engine._reachable():
            check(_native.lib.tw_unregister(self._engine._handle, self._span.address))
        self._closed = True
        self._engine._forget(self)

    def __enter__(self) -> "Region":
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<tidewire.Region {self.nbytes} bytes at {self.address:#x}{' closed' if self._closed else ''}>"

    def _tidewire_span(self) -> Span:
        if self._closed:
            raise ClosedError(f"the region at {self.address:#x} is closed")
        return self._span


@functools.lru_cache(maxsize=64)
def _exporter_type(nbytes: int) -> Any:
    # A subclass, because a plain ctypes array takes neither attributes nor weak references.
    return type("_Exporter", (ctypes.c_ubyte * nbytes,), {})
