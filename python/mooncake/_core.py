# SPDX-License-Identifier: Apache-2.0
"""What every method of ``mooncake.engine.TransferEngine`` shares: peers, submission, waiting, the log."""

from __future__ import annotations

import ctypes
import logging
from typing import Any, Optional

import tidewire
from tidewire import Code, _native

from . import _protocol
from ._arguments import Lists, TransferNotify, to_string

_log = logging.getLogger("mooncake")
_lib = _native.lib

INVALID_ARGUMENT = -1
_RESULTS = {
    Code.INVALID_ARGUMENT: INVALID_ARGUMENT,
    Code.NOT_REGISTERED: -3,
    Code.BUSY: -4,
    Code.OVERLAP: -7,
    Code.NO_MEMORY: -302,
    Code.UNSUPPORTED: -303,
}


class Core:
    """An engine, its peers by session id, and its running asynchronous batches."""

    def __init__(self) -> None:
        self._engine: Optional[tidewire.Engine] = None
        self._peers: dict[str, int] = {}
        self._batches: dict[int, str] = {}  # running asynchronous batches, and whom they go to
        self._timed_out: dict[int, None] = {}
        self._p2p = True

    def _handle(self, what: str) -> int:
        """The engine's handle, 0 (and a line in the log) where there is none."""
        engine = self._engine
        if engine is None:
            _log.error("%s: initialize() has not succeeded yet", what)
            return 0
        try:
            return engine._live()
        except tidewire.Error as error:
            self._refused(what, error)
            return 0

    def _refused(self, what: str, error: tidewire.Error) -> None:
        """One line, but none for a thread that goes on asking while the interpreter's exit closes the engines."""
        engine = self._engine
        closing = engine is not None and engine.closed and not isinstance(error, tidewire.ForkedError)
        _log.log(logging.DEBUG if closing else logging.ERROR, "%s: %s", what, error)

    def _failed(self, code: int, what: str) -> int:
        """0, or for a failed call a negative number after one line in the log."""
        if not code:
            return 0
        text = _native.last_error()
        _log.error("%s failed: %s: %s", what, code_name(code), text)
        return _RESULTS.get(code, -1)  # type: ignore[call-overload]

    def _session(self, name: str) -> bytes:
        text = _protocol.peer_name(name) if self._p2p else name.lstrip("/")
        # A NUL would end the name early and lead to another peer; spelled out, it is refused by name.
        return text.replace("\0", "\\0").encode("utf-8", "surrogateescape")

    def _peer(self, handle: int, name: str, what: str) -> int:
        """The handle of a peer, opened once; 0 (and a line in the log) when it can't be."""
        peer = self._peers.get(name)
        if peer is None:
            out = ctypes.c_uint64()
            if self._failed(_lib.tw_peer_open(handle, self._session(name), ctypes.byref(out)), f"{what} to {name}"):
                return 0
            peer = self._peers.setdefault(name, out.value)
        return peer

    def _submit(
        self,
        direction: int,
        target: str,
        lists: Lists,
        hint: str,
        what: str,
        notify: Optional[TransferNotify] = None,
    ) -> int:
        """The handle of a new batch; 0 (and a line in the log) on failure."""
        name = to_string(target, "target_hostname")
        to_string(hint, "transport_hint")
        local, remote, lengths = lists
        options = _options(notify)
        handle = self._handle(what)
        if not handle:
            return 0
        if not local.count == remote.count == lengths.count:
            _log.error(
                "%s to %s: %d buffers, %d peer addresses, %d lengths",
                what,
                name,
                local.count,
                remote.count,
                lengths.count,
            )
            return 0
        out = ctypes.c_uint64()
        code = 0
        for _ in range(2):
            peer = self._peer(handle, name, what)
            if not peer:
                return 0
            code = _lib.tw_submit_lists(
                handle,
                peer,
                direction,
                local.pointer,
                remote.pointer,
                lengths.pointer,
                local.count,
                options,
                ctypes.byref(out),
            )
            if code != Code.NOT_FOUND:
                break
            self._peers.pop(name, None)  # a stale handle: open the peer again, once
        return 0 if self._failed(code, f"{what} to {name}") else out.value

    def _finish(self, batch: int, target: str, what: str) -> int:
        """Waits for the terminal state, which the engine bounds, and frees the batch. 0 or -1."""
        status = _native.BatchStatus(state=-1)
        reference = ctypes.byref(status)
        try:
            code = _lib.tw_batch_wait(batch, _native.WAIT_SLICE_NS, reference)
            while code == Code.BUSY:
                code = _lib.tw_batch_wait(batch, _native.WAIT_SLICE_NS, reference)
        except BaseException:  # Ctrl-C between two waits: the transfer must not outlive the call
            _lib.tw_batch_cancel(batch)
            if self._engine is not None:
                self._engine._orphans.append((batch, None))
            raise
        if code == 0:
            _lib.tw_batch_release(batch)
            return 0
        if status.state < 0:
            _log.error("%s to %s failed: %s: %s", what, target, code_name(code), _native.last_error())
            return -1
        text = ctypes.create_string_buffer(2048)
        _lib.tw_batch_error(batch, text, len(text))
        _log.error(
            "%s to %s failed: %s: %s (%d of %d transfers completed, %d bytes)",
            what,
            target,
            code_name(code),
            text.value.decode("utf-8", "replace"),
            status.completed,
            status.transfers,
            status.transferred_bytes,
        )
        _lib.tw_batch_release(batch)
        return -1

    def _transfer(
        self,
        direction: int,
        target: str,
        lists: Lists,
        hint: str,
        what: str,
        notify: Optional[TransferNotify] = None,
    ) -> int:
        """Submits and waits. 0 or -1."""
        batch = self._submit(direction, target, lists, hint, what, notify)
        return self._finish(batch, target, what) if batch else -1

    def _start(self, direction: int, target: str, lists: Lists, hint: str, what: str) -> int:
        """Submits. A batch id, 0 on failure."""
        batch = self._submit(direction, target, lists, hint, what)
        if batch:
            self._batches[batch] = target
        return batch


def code_name(code: int) -> str:
    """The name of a code, for the log."""
    return (_lib.tw_code_name(code) or b"").decode("ascii", "replace")


def _options(notify: Optional[TransferNotify]) -> Any:
    """Options of a submission; none without a notification: the engine knows ``MC_TRANSFER_TIMEOUT`` itself."""
    if notify is None:
        return None
    if not isinstance(notify, TransferNotify):
        raise TypeError(f"notify must be a TransferNotify, not {type(notify).__name__}")
    name = to_string(notify.name, "notify.name").encode("utf-8", "surrogateescape")
    message = to_string(notify.msg, "notify.msg").encode("utf-8", "surrogateescape")
    return ctypes.byref(_native.SubmitOptions(ctypes.sizeof(_native.SubmitOptions), 0, name, message, len(message)))
