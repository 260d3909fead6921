# SPDX-License-Identifier: Apache-2.0
"""The transfers of ``TransferEngine`` that wait for their turn on a CUDA stream."""

from __future__ import annotations

from typing import Sequence

from tidewire import _native

from ._arguments import Lists, to_lists, to_single, to_string, to_unsigned
from ._core import Core, code_name

_READ, _WRITE = 0, 1
_lib = _native.lib


class StreamTransfers(Core):
    """Those methods."""

    def transfer_write_on_cuda(
        self,
        target_hostname: str,
        buffer: int,
        peer_buffer_address: int,
        length: int,
        stream_ptr: int = 0,
        transport_hint: str = "",
    ) -> None:
        """Queues a write on a CUDA stream: after what is on it, before what follows. RuntimeError on failure.

        A transfer that fails once the stream has come to it is logged, and the next call for the stream raises.
        """
        lists = to_single(buffer, peer_buffer_address, length)
        stream = to_unsigned(stream_ptr, "stream_ptr")
        self._in_stream(_WRITE, target_hostname, lists, stream, transport_hint, "transfer_write_on_cuda")

    def transfer_read_on_cuda(
        self,
        target_hostname: str,
        buffer: int,
        peer_buffer_address: int,
        length: int,
        stream_ptr: int = 0,
        transport_hint: str = "",
    ) -> None:
        """Queues a read on a CUDA stream; otherwise as :meth:`transfer_write_on_cuda`."""
        lists = to_single(buffer, peer_buffer_address, length)
        stream = to_unsigned(stream_ptr, "stream_ptr")
        self._in_stream(_READ, target_hostname, lists, stream, transport_hint, "transfer_read_on_cuda")

    def batch_transfer_write_on_cuda(
        self,
        target_hostname: str,
        buffers: Sequence[int],
        peer_buffer_addresses: Sequence[int],
        lengths: Sequence[int],
        stream_ptr: int = 0,
        transport_hint: str = "",
    ) -> None:
        """Queues a batch of writes on a CUDA stream; otherwise as :meth:`transfer_write_on_cuda`."""
        lists = to_lists(buffers, peer_buffer_addresses, lengths)
        stream = to_unsigned(stream_ptr, "stream_ptr")
        self._in_stream(_WRITE, target_hostname, lists, stream, transport_hint, "batch_transfer_write_on_cuda")

    def batch_transfer_read_on_cuda(
        self,
        target_hostname: str,
        buffers: Sequence[int],
        peer_buffer_addresses: Sequence[int],
        lengths: Sequence[int],
        stream_ptr: int = 0,
        transport_hint: str = "",
    ) -> None:
        """Queues a batch of reads on a CUDA stream; otherwise as :meth:`transfer_write_on_cuda`."""
        lists = to_lists(buffers, peer_buffer_addresses, lengths)
        stream = to_unsigned(stream_ptr, "stream_ptr")
        self._in_stream(_READ, target_hostname, lists, stream, transport_hint, "batch_transfer_read_on_cuda")

    def _in_stream(self, direction: int, target: str, lists: Lists, stream: int, hint: str, what: str) -> None:
        """Queues a transfer on a CUDA stream; RuntimeError when it, or an earlier one on the stream, failed."""
        name = to_string(target, "target_hostname")
        to_string(hint, "transport_hint")
        local, remote, lengths = lists
        handle = self._handle(what)
        if not handle:
            raise RuntimeError(f"{what}: there is no engine; initialize() must succeed first")
        if not local.count == remote.count == lengths.count:
            raise RuntimeError(
                f"{what} to {name}: {local.count} buffers, {remote.count} peer addresses, {lengths.count} lengths"
            )
        peer = self._peer(handle, name, what)
        if not peer:
            raise RuntimeError(f"{what} to {name}: {_native.last_error()}")
        code = _lib.tw_transfer_in_stream(
            handle, peer, direction, local.pointer, remote.pointer, lengths.pointer, local.count, stream
        )
        if self._failed(code, f"{what} to {name}"):
            raise RuntimeError(f"{what} to {name}: {code_name(code)}: {_native.last_error()}")
