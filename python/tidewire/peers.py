# SPDX-License-Identifier: Apache-2.0
"""Other engines as this one knows them, and the messages that come from them."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _native
from .errors import ClosedError, check

if TYPE_CHECKING:
    from .engine import Engine


class Notification(NamedTuple):
    """A received message. ``sender`` is the sending engine's "host:port"."""

    name: str
    message: bytes
    sender: str


class Peer:
    """Another engine, as this one knows it. ``Engine.open`` makes it; ``close()`` forgets it."""

    __slots__ = ("_engine", "_handle", "_name", "__weakref__")

    def __init__(self, engine: "Engine", handle: int, name: str) -> None:
        self._engine = engine
        self._handle = handle
        self._name = name

    @property
    def name(self) -> str:
        """The "host:port" or metadata name that it was opened by."""
        return self._name

    def first_region(self) -> tuple[int, int]:
        """(address, nbytes) of the peer's first registered region. NotFoundError when it has none."""
        address, nbytes = ctypes.c_uint64(), ctypes.c_uint64()
        check(
            _native.lib.tw_peer_first_region(
                self._engine._live(), self._live(), ctypes.byref(address), ctypes.byref(nbytes)
            )
        )
        return address.value, nbytes.value

    def close(self) -> None:
        """Forgets the peer; connections that other work uses stay. Idempotent."""
        handle, self._handle = self._handle, 0
        if handle and self._engine._reachable():
            check(_native.lib.tw_peer_close(self._engine._handle, handle))

    def __enter__(self) -> "Peer":
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<tidewire.Peer {self._name}>"

    def __del__(self) -> None:
        if getattr(self, "_handle", 0) and self._engine._reachable():
            _native.lib.tw_peer_close(self._engine._handle, self._handle)

    def _live(self) -> int:
        if not self._handle:
            raise ClosedError(f"the peer {self._name} is closed")
        return self._handle


def take_notifications(engine: int) -> list[Notification]:
    """All received notifications of the engine with this handle, oldest first."""
    listed = ctypes.POINTER(_native.Notification)()
    count = ctypes.c_size_t()
    check(_native.lib.tw_notifications_take(engine, ctypes.byref(listed), ctypes.byref(count)))
    try:
        return [
            Notification(
                (item.name or b"").decode("utf-8", "surrogateescape"),
                ctypes.string_at(item.message, item.length) if item.length else b"",
                (item.sender or b"").decode("utf-8", "replace"),
            )
            for item in listed[: count.value]
        ]
    finally:
        if listed:
            _native.lib.tw_notifications_free(listed, count.value)
