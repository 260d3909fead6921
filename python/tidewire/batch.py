# SPDX-License-Identifier: Apache-2.0
"""Batches: transfers that were submitted together, share one deadline and are waited for as one."""

from __future__ import annotations

import ctypes
import enum
import os
import time
from typing import TYPE_CHECKING, Any, Generator, NamedTuple, Optional

from . import _native
from .errors import ClosedError, Code, WaitTimeoutError, check, make_error

if TYPE_CHECKING:
    import asyncio

    from .engine import Engine


class State(enum.IntEnum):
    """Where a transfer or a batch is. COMPLETED, CANCELED, TIMEOUT, FAILED and INVALID are terminal."""

    WAITING = 0
    PENDING = 1
    INVALID = 2
    CANCELED = 3
    COMPLETED = 4
    TIMEOUT = 5
    FAILED = 6

    @property
    def terminal(self) -> bool:
        """Whether nothing will happen any more."""
        return self >= State.INVALID


class BatchStatus(NamedTuple):
    """A batch's counts. ``failed`` includes what timed out or was cancelled."""

    state: State
    code: Code
    transfers: int
    completed: int
    failed: int
    transferred_bytes: int


class TransferStatus(NamedTuple):
    """One transfer of a batch."""

    state: State
    code: Code
    transferred_bytes: int


class Batch:
    """Transfers under way. ``Engine.write`` and ``Engine.read`` make it.

    The local memory must stay valid until the batch is terminal; objects that were given as ``local`` are kept alive
    by the batch. A batch that nobody holds any more goes on to its end and is then freed. As a context manager it is
    waited for at the end of the block, or cancelled when the block raises. Any thread may use it; any number may wait.
    """

    __slots__ = ("_engine", "_error", "_handle", "_keep", "_status", "__weakref__")

    def __init__(self, engine: "Engine", handle: int, keep: Any) -> None:
        self._engine = engine
        self._handle = handle
        self._keep = keep
        self._status: Optional[BatchStatus] = None
        self._error = ""

    def wait(self, timeout: Optional[float] = None) -> BatchStatus:
        """Returns the status once every transfer COMPLETED: the bytes are in place and visible.

        ``timeout``: seconds; ``None`` waits for the terminal state, which the batch's own deadline bounds. Raises
        WaitTimeoutError (a TimeoutError) when the batch is still running after ``timeout``, and the error of the
        batch when it failed: PartialError, DeadlineError, CanceledError, PeerGoneError and so on, with ``.status``.
        """
        end = None if timeout is None else time.monotonic_ns() + _native.to_nanoseconds(timeout, 0)
        while self._status is None:
            slice_ns = (
                _native.WAIT_SLICE_NS if end is None else max(0, min(_native.WAIT_SLICE_NS, end - time.monotonic_ns()))
            )
            if not self._refresh(slice_ns) and end is not None and time.monotonic_ns() >= end:
                raise WaitTimeoutError(f"the batch is still running after {timeout} s")
        return self._outcome()

    def __await__(self) -> Generator[Any, None, BatchStatus]:
        """``await batch`` is :meth:`wait` for asyncio: sleeps in the event loop, not in a thread.

        Cancelling the awaiting task stops the wait only; use :meth:`cancel` for the transfers.
        """
        return self._wait_in_loop().__await__()

    async def _wait_in_loop(self) -> BatchStatus:
        import asyncio  # only for those who use it: it is a large import

        loop = asyncio.get_running_loop()
        while not self._refresh(0):
            own = ctypes.c_int(-1)
            code = _native.lib.tw_batch_fd(self._handle, ctypes.byref(own))
            if code:
                self._engine._live()
                check(code)
            # A duplicate for each waiter: an event loop takes one reader for each descriptor, and the batch may be
            # freed while a loop still holds this one.
            fd = os.dup(own.value)
            done: asyncio.Future[None] = loop.create_future()
            waiter = (loop, done)
            self._engine._loop_waiters.add(waiter)
            try:
                loop.add_reader(fd, _resolve, done)
                await done
            finally:
                self._engine._loop_waiters.discard(waiter)
                loop.remove_reader(fd)
                os.close(fd)
        return self._outcome()

    @property
    def status(self) -> BatchStatus:
        """The counts now; does not wait and does not raise for failed transfers."""
        if self._status is None:
            raw = _native.BatchStatus(state=-1)
            self._take(_native.lib.tw_batch_poll(self._handle_or_raise(), ctypes.byref(raw)), raw)
            if self._status is None:
                return _to_status(raw)
        return self._status  # type: ignore[return-value]

    @property
    def done(self) -> bool:
        """Whether the batch is terminal."""
        return self._refresh(0)

    def transfer_status(self, index: int) -> TransferStatus:
        """The status of transfer ``index`` (0-based, in the order of submission)."""
        if index < 0:
            raise IndexError(f"transfer {index} of a batch")
        raw = _native.TransferStatus()
        handle = self._handle_or_raise()
        check(_native.lib.tw_batch_transfer_status(handle, index, ctypes.byref(raw)))
        return TransferStatus(State(raw.state), Code(raw.code), raw.transferred_bytes)

    def cancel(self) -> None:
        """Starts cancellation. Completed transfers stay completed; wait for the terminal state."""
        if self._status is None:
            check(_native.lib.tw_batch_cancel(self._handle_or_raise()))

    def close(self) -> None:
        """Frees the batch now; one that still runs is cancelled first (bounded, about half a second). Idempotent."""
        handle = self._handle
        if not handle or not self._engine._reachable():
            self._handle = 0
            self._keep = None
            return
        if not self._refresh(0):
            _native.lib.tw_batch_cancel(handle)
            while not self._refresh(_native.WAIT_SLICE_NS):
                pass
        self._handle = 0
        _native.lib.tw_batch_release(handle)

    def __enter__(self) -> "Batch":
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        try:
            if kind is None:
                self.wait()
        finally:
            self.close()

    def __repr__(self) -> str:
        status = self._status
        return f"<tidewire.Batch {status.state.name if status else 'running'}>"

    def __del__(self, _native: Any = _native) -> None:
        handle = getattr(self, "_handle", 0)
        if not handle or _native.exiting or not self._engine._reachable():
            return
        # Poll first: a refused release would replace the thread's error text under a call that is about to read it.
        raw = _native.BatchStatus()
        if self._status is None and _native.lib.tw_batch_poll(handle, ctypes.byref(raw)) in (0, Code.BUSY):
            if raw.state < State.INVALID:
                self._engine._orphans.append((handle, self._keep))
                return
        _native.lib.tw_batch_release(handle)

    # -- inside --

    def _handle_or_raise(self) -> int:
        self._engine._live()
        if not self._handle:
            raise ClosedError("the batch is closed")
        return self._handle

    def _refresh(self, timeout_ns: int) -> bool:
        """Waits up to ``timeout_ns``; whether the batch is terminal. Raises when it can't be asked."""
        if self._status is not None:
            return True
        raw = _native.BatchStatus(state=-1)
        self._take(_native.lib.tw_batch_wait(self._handle_or_raise(), timeout_ns, ctypes.byref(raw)), raw)
        return self._status is not None

    def _take(self, code: int, raw: Any) -> None:
        """Keeps a terminal status. A call that wrote no status has failed itself."""
        if raw.state < 0:
            text = _native.last_error()
            if code == 0:
                return
            self._engine._live()
            raise make_error(code, text)
        if raw.state < State.INVALID:
            return
        if raw.code and not self._error:
            buffer = ctypes.create_string_buffer(2048)
            if _native.lib.tw_batch_error(self._handle, buffer, len(buffer)) == 0:
                self._error = buffer.value.decode("utf-8", "replace")
        self._status = _to_status(raw)
        self._keep = None

    def _outcome(self) -> BatchStatus:
        status = self._status
        assert status is not None
        if status.state != State.COMPLETED or status.code:
            raise make_error(status.code or Code.INTERNAL, self._error, status)
        return status


def _to_status(raw: Any) -> BatchStatus:
    return BatchStatus(
        State(raw.state), Code(raw.code), raw.transfers, raw.completed, raw.failed, raw.transferred_bytes
    )


def _resolve(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
