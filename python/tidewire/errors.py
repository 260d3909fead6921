# SPDX-License-Identifier: Apache-2.0
"""One exception class for each code of the C interface.

Every failure of the engine raises a subclass of :class:`Error`. ``.code`` is the :class:`Code`, ``str(error)`` names
the thing, its value and the remedy. Where Python has a class of that meaning the subclass is one of it too, so that
``except ConnectionError`` and ``except TimeoutError`` do what they say.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Optional

from . import _native

if TYPE_CHECKING:
    from .batch import BatchStatus


class Code(enum.IntEnum):
    """The codes of ``tw_code``."""

    OK = 0
    INVALID_ARGUMENT = 1
    NOT_FOUND = 2
    BUSY = 3
    NOT_REGISTERED = 4
    OVERLAP = 5
    PERMISSION_DENIED = 6
    UNREACHABLE = 7
    PEER_GONE = 8
    TIMEOUT = 9
    CANCELED = 10
    PARTIAL = 11
    NO_MEMORY = 12
    NO_RESOURCES = 13
    ADDRESS_IN_USE = 14
    UNSUPPORTED = 15
    UNAUTHENTICATED = 16
    PROTOCOL = 17
    FORKED = 18
    CLOSED = 19
    INTERNAL = 20


class Error(Exception):
    """A failure of the engine.

    ``code``: the :class:`Code`. ``status``: for a failed batch its :class:`~tidewire.BatchStatus`, else ``None``.
    """

    code: Code = Code.INTERNAL
    status: Optional["BatchStatus"] = None


class InvalidArgumentError(Error, ValueError):
    """A value is out of range or malformed; nothing was done."""

    code = Code.INVALID_ARGUMENT


class NotFoundError(Error, LookupError):
    """An unknown or stale handle, or an unknown peer name."""

    code = Code.NOT_FOUND


class BusyError(Error):
    """Work in flight, or a live view of the memory, forbids the call."""

    code = Code.BUSY


class WaitTimeoutError(BusyError, TimeoutError):
    """``Batch.wait(timeout)`` gave up waiting; the batch itself is still running."""


class NotRegisteredError(Error):
    """A range is not covered by registered regions, here or at the peer."""

    code = Code.NOT_REGISTERED


class OverlapError(Error):
    """A registration overlaps another without being identical."""

    code = Code.OVERLAP


class PermissionDeniedError(Error, PermissionError):
    """The remote region's permission forbids the operation."""

    code = Code.PERMISSION_DENIED


class UnreachableError(Error, ConnectionError):
    """No path to the peer: refused, no route, silent, or in back-off."""

    code = Code.UNREACHABLE


class PeerGoneError(Error, ConnectionError):
    """The peer closed, died or restarted while the work was under way."""

    code = Code.PEER_GONE


class DeadlineError(Error, TimeoutError):
    """The deadline of the operation passed."""

    code = Code.TIMEOUT


class CanceledError(Error):
    """The batch was cancelled."""

    code = Code.CANCELED


class PartialError(Error):
    """Some transfers of a batch completed and some did not; ``status`` counts them."""

    code = Code.PARTIAL


class NoMemoryError(Error, MemoryError):
    """Memory could not be had."""

    code = Code.NO_MEMORY


class NoResourcesError(Error, OSError):
    """Descriptors, ports, shared memory or device limits are used up."""

    code = Code.NO_RESOURCES


class AddressInUseError(Error, OSError):
    """The port belongs to another socket."""

    code = Code.ADDRESS_IN_USE


class UnsupportedError(Error):
    """This machine, build or peer can't do it; the text says what is missing."""

    code = Code.UNSUPPORTED


class UnauthenticatedError(Error, PermissionError):
    """The cluster secrets differ."""

    code = Code.UNAUTHENTICATED


class ProtocolError(Error, ConnectionError):
    """The other side speaks another protocol or sent malformed bytes."""

    code = Code.PROTOCOL


class ForkedError(Error):
    """The engine belongs to the parent process; a child makes its own."""

    code = Code.FORKED


class ClosedError(Error):
    """The engine, buffer or batch is closed."""

    code = Code.CLOSED


class InternalError(Error):
    """A defect of Tidewire: please report it."""

    code = Code.INTERNAL


_CLASSES: dict[int, type[Error]] = {
    int(cls.code): cls
    for cls in (
        InvalidArgumentError,
        NotFoundError,
        BusyError,
        NotRegisteredError,
        OverlapError,
        PermissionDeniedError,
        UnreachableError,
        PeerGoneError,
        DeadlineError,
        CanceledError,
        PartialError,
        NoMemoryError,
        NoResourcesError,
        AddressInUseError,
        UnsupportedError,
        UnauthenticatedError,
        ProtocolError,
        ForkedError,
        ClosedError,
        InternalError,
    )
}


def error_class(code: int) -> type[Error]:
    """The exception class for a code; :class:`InternalError` for a code that this version doesn't know."""
    return _CLASSES.get(code, InternalError)


def make_error(code: int, text: str = "", status: Optional["BatchStatus"] = None) -> Error:
    """The exception for a code. An empty text becomes the code's name."""
    if not text:
        text = (_native.lib.tw_code_name(code) or b"").decode("ascii", "replace") or f"code {code}"
    error = error_class(code)(text)
    error.status = status
    return error


def check(code: int) -> None:
    """Raises for a code other than OK, with the text of the calling thread's last failure."""
    if code:
        raise make_error(code, _native.last_error())
