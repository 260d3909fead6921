# SPDX-License-Identifier: Apache-2.0
"""``mooncake.engine`` served by Tidewire.

Names, argument order, defaults and results are those of Mooncake 0.3.12. Addresses and lengths are plain integers
(bytes). Results are plain ints: 0 for success and a negative number for failure, which is also logged by the logger
"mooncake", one line each. Wrong argument types raise TypeError; nothing else is raised, but by the
``*_on_cuda`` methods, which raise RuntimeError. Every method may be called from
any thread and releases the interpreter lock while it waits.
"""

from __future__ import annotations

import ctypes
import json
import logging
from array import array
from typing import Any, Optional, Sequence, Union

import tidewire
from tidewire import _native

from . import _protocol
from ._arguments import (
    TransferNotify,
    TransferOpcode,
    to_array,
    to_direction,
    to_list,
    to_lists,
    to_single,
    to_string,
    to_unsigned,
)
from ._core import INVALID_ARGUMENT
from ._stream_transfers import StreamTransfers

SUPPORT_EFA = False
SUPPORT_HIP = False
SUPPORT_MNNVL = False
SUPPORT_MUSA = False
SUPPORT_INTRA_NVLINK = False
SUPPORT_CUDA = False

_log = logging.getLogger("mooncake")
_lib = _native.lib
_READ_WRITE = 3
_MAX_TIMED_OUT = 65_536


Read = TransferOpcode.Read
Write = TransferOpcode.Write


class InnerTransferEngine:
    """Opaque: what ``TransferEngine.get_engine`` gives and ``mooncake.store``'s ``setup`` takes."""

    __slots__ = ("_engine",)

    def __init__(self, engine: Optional[tidewire.Engine]) -> None:
        self._engine = engine


class TransferEngine(StreamTransfers):
    """Moves bytes between registered memory of this process and of peers. Several in a process are fine.

    A peer is named by its session id "host:port" (IPv6: "[addr]:port", brackets optional), where the port is its
    ``get_rpc_port()``. Transfers return 0 once the bytes are in the peer's memory and visible there. Every wait ends:
    after ``MC_TRANSFER_TIMEOUT`` seconds (default 30, at least 5) and 1 ns for each byte.
    """

    # -- set-up --

    def initialize(self, local_hostname: str, metadata_server: str, protocol: str, device_name: str, /) -> int:
        """Starts the engine. 0, or -1 (and it may be called again).

        ``local_hostname``: "host", "host:port" or an IPv6 literal, the address that peers use. ``metadata_server``:
        "P2PHANDSHAKE" or "http://host:port/path". ``protocol``: "tcp", "rdma", "efa". ``device_name``: comma list.
        """
        return self.initialize_ext(local_hostname, metadata_server, protocol, device_name, "")

    def initialize_ext(
        self, local_hostname: str, metadata_server: str, protocol: str, device_name: str, metadata_type: str, /
    ) -> int:
        """As :meth:`initialize`; ``metadata_type`` ("http", "etcd", "redis") is used for an address without scheme."""
        name = _protocol.local_name(to_string(local_hostname, "local_hostname"))
        metadata = to_string(metadata_server, "metadata_server")
        metadata = _protocol.metadata_address(metadata, to_string(metadata_type, "metadata_type"))
        # The engine itself knows what "rdma" means where there is no such device, and what MC_FORCE_TCP does.
        wanted, devices = to_string(protocol, "protocol"), to_string(device_name, "device_name")
        if self._engine is not None:
            _log.error("initialize(%s): this engine already runs as %s", name, self._engine.address)
            return -1
        if not wanted:
            _log.error("initialize(%s): no protocol is named: use tcp, rdma or efa", name)
            return -1
        try:
            self._engine = tidewire.Engine(name, metadata=metadata, protocol=wanted, devices=devices)
        except tidewire.Error as error:
            _log.error("initialize(%s, %s): %s: %s", name, wanted, error.code.name, error)
            return -1
        self._p2p = metadata == _protocol.P2P
        return 0

    def get_rpc_port(self) -> int:
        """The port of this engine's session id; 0 before ``initialize``."""
        return self._engine.port if self._engine is not None else 0

    def get_engine(self) -> InnerTransferEngine:
        """An opaque object for ``mooncake.store``."""
        return InnerTransferEngine(self._engine)

    def get_engine_ptr(self) -> int:
        """A number that stands for this engine; 0 before ``initialize``."""
        return self._engine._handle if self._engine is not None else 0

    def get_local_topology(self, device_name: Optional[str] = None) -> str:
        """JSON: for each location the near and the far NICs, ``{"cpu:0": [[near], [far]]}``.

        ``device_name``: comma list that narrows the NICs; ``None`` means all.
        """
        names = None if device_name is None else to_string(device_name, "device_name")
        try:
            return json.dumps(_topology_matrix(tidewire.topology(), names))
        except tidewire.Error as error:
            _log.error("get_local_topology: %s", error)
            return "{}"

    # -- memory --

    def allocate_managed_buffer(self, length: int) -> int:
        """The address of ``length`` bytes of registered, zeroed memory; 0 on failure."""
        nbytes = to_unsigned(length, "length")
        handle = self._handle("allocate_managed_buffer")
        out = ctypes.c_void_p()
        if not handle or self._failed(
            _lib.tw_allocate(handle, nbytes, b"*", ctypes.byref(out)), "allocate_managed_buffer"
        ):
            return 0
        return out.value or 0

    def free_managed_buffer(self, buffer_addr: int, length: int) -> int:
        """Frees what ``allocate_managed_buffer`` gave. 0, or negative for any other address."""
        address = to_unsigned(buffer_addr, "buffer_addr")
        to_unsigned(length, "length")
        handle = self._handle("free_managed_buffer")
        return self._failed(_lib.tw_free(handle, address), "free_managed_buffer") if handle else -1

    def register_memory(self, buffer_addr: int, capacity: int, location: str = "*") -> int:
        """Registers ``capacity`` bytes at ``buffer_addr`` for peers to read and write. 0 or negative."""
        address, nbytes = to_unsigned(buffer_addr, "buffer_addr"), to_unsigned(capacity, "capacity")
        place = to_string(location, "location").encode()
        handle = self._handle("register_memory")
        if not handle:
            return -1
        return self._failed(_lib.tw_register(handle, address, nbytes, place, _READ_WRITE), "register_memory")

    def unregister_memory(self, buffer_addr: int) -> int:
        """Undoes one ``register_memory`` of this address. 0 or negative."""
        address = to_unsigned(buffer_addr, "buffer_addr")
        handle = self._handle("unregister_memory")
        return self._failed(_lib.tw_unregister(handle, address), "unregister_memory") if handle else -1

    def batch_register_memory(
        self, buffer_addresses: Sequence[int], capacities: Sequence[int], location: str = "*"
    ) -> int:
        """Registers all ranges or none. 0 or negative; lists of different lengths are refused."""
        addresses, lengths = to_list(buffer_addresses, "buffer_addresses"), to_list(capacities, "capacities")
        place = to_string(location, "location").encode()
        handle = self._handle("batch_register_memory")
        if not handle:
            return -1
        count = addresses.count
        if count != lengths.count:
            _log.error("batch_register_memory: %d addresses but %d capacities", count, lengths.count)
            return INVALID_ARGUMENT
        if count == 0:
            return 0
        pairs = array("Q", bytes(16 * count))
        pairs[0::2] = to_array(addresses)
        pairs[1::2] = to_array(lengths)
        ranges = ctypes.cast(pairs.buffer_info()[0], ctypes.POINTER(_native.Range))
        return self._failed(_lib.tw_register_many(handle, ranges, count, place, _READ_WRITE), "batch_register_memory")

    def batch_unregister_memory(self, buffer_addresses: Sequence[int]) -> int:
        """Undoes the registration of these addresses. 0 or negative."""
        addresses = to_list(buffer_addresses, "buffer_addresses")
        handle = self._handle("batch_unregister_memory")
        if not handle:
            return -1
        if addresses.count == 0:
            return 0
        code = _lib.tw_unregister_many(handle, addresses.pointer, addresses.count)
        return self._failed(code, "batch_unregister_memory")

    def write_bytes_to_buffer(self, dest_address: int, src: Union[bytes, str], length: int) -> int:
        """Copies the first ``length`` bytes of ``src`` to registered or managed memory. 0 or negative."""
        address, nbytes = to_unsigned(dest_address, "dest_address"), to_unsigned(length, "length")
        if isinstance(src, str):
            src = src.encode("utf-8", "surrogateescape")
        if not isinstance(src, bytes):
            raise TypeError(f"src must be bytes or str, not {type(src).__name__}")
        handle = self._handle("write_bytes_to_buffer")
        if not handle:
            return -1
        if nbytes > len(src):
            _log.error("write_bytes_to_buffer: %d bytes of a src that has %d", nbytes, len(src))
            return INVALID_ARGUMENT
        return self._failed(_lib.tw_copy_in(handle, address, src, nbytes), "write_bytes_to_buffer")

    def read_bytes_from_buffer(self, source_address: int, length: int) -> bytes:
        """The ``length`` bytes at ``source_address`` (registered or managed memory); b"" on failure."""
        address, nbytes = to_unsigned(source_address, "source_address"), to_unsigned(length, "length")
        handle = self._handle("read_bytes_from_buffer")
        if not handle:
            return b""
        try:
            out = bytearray(nbytes)
        except (MemoryError, OverflowError):
            _log.error("read_bytes_from_buffer: no memory for %d bytes", nbytes)
            return b""
        if self._failed(
            _lib.tw_copy_out(handle, tidewire.describe(out).address, address, nbytes), "read_bytes_from_buffer"
        ):
            return b""
        return bytes(out)

    # -- transfers that wait --

    def transfer_sync_write(
        self, target_hostname: str, buffer: int, peer_buffer_address: int, length: int, transport_hint: str = ""
    ) -> int:
        """Writes ``length`` bytes at ``buffer`` to ``peer_buffer_address`` of the peer. 0 or -1."""
        return self._transfer(
            1, target_hostname, to_single(buffer, peer_buffer_address, length), transport_hint, "transfer_sync_write"
        )

    def transfer_sync_read(
        self, target_hostname: str, buffer: int, peer_buffer_address: int, length: int, transport_hint: str = ""
    ) -> int:
        """Reads ``length`` bytes at ``peer_buffer_address`` of the peer into ``buffer``. 0 or -1."""
        return self._transfer(
            0, target_hostname, to_single(buffer, peer_buffer_address, length), transport_hint, "transfer_sync_read"
        )

    def transfer_sync(
        self,
        target_hostname: str,
        buffer: int,
        peer_buffer_address: int,
        length: int,
        opcode: TransferOpcode,
        notify: Optional[TransferNotify] = None,
        transport_hint: str = "",
    ) -> int:
        """One transfer in the direction ``opcode``; ``notify`` reaches the peer after the bytes. 0 or -1."""
        return self._transfer(
            to_direction(opcode),
            target_hostname,
            to_single(buffer, peer_buffer_address, length),
            transport_hint,
            "transfer_sync",
            notify,
        )

    def batch_transfer_sync_write(
        self,
        target_hostname: str,
        buffers: Sequence[int],
        peer_buffer_addresses: Sequence[int],
        lengths: Sequence[int],
        transport_hint: str = "",
    ) -> int:
        """Writes ``lengths[i]`` bytes at ``buffers[i]`` to ``peer_buffer_addresses[i]``. 0 if all are there, or -1."""
        return self._transfer(
            1,
            target_hostname,
            to_lists(buffers, peer_buffer_addresses, lengths),
            transport_hint,
            "batch_transfer_sync_write",
        )

    def batch_transfer_sync_read(
        self,
        target_hostname: str,
        buffers: Sequence[int],
        peer_buffer_addresses: Sequence[int],
        lengths: Sequence[int],
        transport_hint: str = "",
    ) -> int:
        """Reads ``lengths[i]`` bytes at ``peer_buffer_addresses[i]`` to ``buffers[i]``. 0 when all are here, or -1."""
        return self._transfer(
            0,
            target_hostname,
            to_lists(buffers, peer_buffer_addresses, lengths),
            transport_hint,
            "batch_transfer_sync_read",
        )

    def batch_transfer_sync(
        self,
        target_hostname: str,
        buffers: Sequence[int],
        peer_buffer_addresses: Sequence[int],
        lengths: Sequence[int],
        opcode: TransferOpcode,
        notify: Optional[TransferNotify] = None,
        transport_hint: str = "",
    ) -> int:
        """Lists in the direction ``opcode``; ``notify`` reaches the peer after all the bytes. 0 or -1."""
        return self._transfer(
            to_direction(opcode),
            target_hostname,
            to_lists(buffers, peer_buffer_addresses, lengths),
            transport_hint,
            "batch_transfer_sync",
            notify,
        )

    # -- transfers that don't --

    def transfer_submit_write(
        self, target_hostname: str, buffer: int, peer_buffer_address: int, length: int, transport_hint: str = ""
    ) -> int:
        """Starts a write. A batch id for ``transfer_check_status``, 0 on failure."""
        lists = to_single(buffer, peer_buffer_address, length)
        return self._start(1, target_hostname, lists, transport_hint, "transfer_submit_write")

    def batch_transfer_async_write(
        self,
        target_hostname: str,
        buffers: Sequence[int],
        peer_buffer_addresses: Sequence[int],
        lengths: Sequence[int],
        transport_hint: str = "",
    ) -> int:
        """Starts writes. A batch id for ``get_batch_transfer_status``, 0 on failure."""
        lists = to_lists(buffers, peer_buffer_addresses, lengths)
        return self._start(1, target_hostname, lists, transport_hint, "batch_transfer_async_write")

    def batch_transfer_async_read(
        self,
        target_hostname: str,
        buffers: Sequence[int],
        peer_buffer_addresses: Sequence[int],
        lengths: Sequence[int],
        transport_hint: str = "",
    ) -> int:
        """Starts reads. A batch id for ``get_batch_transfer_status``, 0 on failure."""
        lists = to_lists(buffers, peer_buffer_addresses, lengths)
        return self._start(0, target_hostname, lists, transport_hint, "batch_transfer_async_read")

    def batch_transfer_async(
        self,
        target_hostname: str,
        buffers: Sequence[int],
        peer_buffer_addresses: Sequence[int],
        lengths: Sequence[int],
        opcode: TransferOpcode,
        transport_hint: str = "",
    ) -> int:
        """Starts transfers in the direction ``opcode``. A batch id, 0 on failure."""
        direction = to_direction(opcode)
        lists = to_lists(buffers, peer_buffer_addresses, lengths)
        return self._start(direction, target_hostname, lists, transport_hint, "batch_transfer_async")

    def get_batch_transfer_status(self, batch_ids: Sequence[int]) -> int:
        """Waits for all of these batches and frees them. 0 when all completed, -1 otherwise or for an unknown id."""
        result = 0
        for batch in to_array(to_list(batch_ids, "batch_ids")):
            target = self._batches.pop(batch, None)
            if target is None:
                if batch in self._timed_out:
                    self._timed_out.pop(batch, None)
                else:
                    _log.error("get_batch_transfer_status: batch id %#x is unknown", batch)
                result = -1
            elif self._finish(batch, target, "get_batch_transfer_status"):
                result = -1
        return result

    def transfer_check_status(self, batch_id: int) -> int:
        """1 completed (and freed), 0 running, -1 failed (and freed) or unknown, -2 timed out (the id stays known)."""
        batch = to_unsigned(batch_id, "batch_id")
        target = self._batches.get(batch)
        if target is None:
            if batch in self._timed_out:
                return -2
            _log.error("transfer_check_status: batch id %#x is unknown", batch)
            return -1
        status = _native.BatchStatus(state=-1)
        if not self._handle("transfer_check_status"):
            return -1
        _lib.tw_batch_poll(batch, ctypes.byref(status))
        if tidewire.State.WAITING <= status.state < tidewire.State.INVALID:
            return 0
        if self._batches.pop(batch, None) is None:  # another thread was faster
            return -1
        completed = self._finish(batch, target, "transfer_check_status") == 0
        if completed:
            return 1
        if status.state == tidewire.State.TIMEOUT:
            while len(self._timed_out) >= _MAX_TIMED_OUT:
                self._timed_out.pop(next(iter(self._timed_out)), None)
            self._timed_out[batch] = None
            return -2
        return -1

    # -- peers --

    def get_first_buffer_address(self, segment_name: str) -> int:
        """The address of the peer's first registered range; 0 when it has none or can't be reached."""
        name = to_string(segment_name, "segment_name")
        handle = self._handle("get_first_buffer_address")
        peer = self._peer(handle, name, "get_first_buffer_address") if handle else 0
        if not peer:
            return 0
        address, length = ctypes.c_uint64(), ctypes.c_uint64()
        code = _lib.tw_peer_first_region(handle, peer, ctypes.byref(address), ctypes.byref(length))
        return 0 if self._failed(code, f"get_first_buffer_address({name})") else address.value

    def send_probe(self, peer_server_name: str) -> int:
        """0 when the peer answers within the connect timeout, which also ends its back-off; -1 otherwise."""
        name = self._session(to_string(peer_server_name, "peer_server_name"))
        handle = self._handle("send_probe")
        if not handle:
            return -1
        if _lib.tw_peer_probe(handle, name, 0):
            _log.info("send_probe(%s): %s", peer_server_name, _native.last_error())
            return -1
        return 0

    def warmup_efa_segment(self, segment_name: str) -> int:
        """Prepares EFA's way to a peer; 0 where there is nothing to prepare, -1 before ``initialize``."""
        to_string(segment_name, "segment_name")
        return 0 if self._handle("warmup_efa_segment") else -1

    def get_notifies(self) -> list[TransferNotify]:
        """Takes all received notifications, oldest first."""
        if not self._handle("get_notifies"):
            return []
        assert self._engine is not None
        try:
            received = self._engine.notifications()
        except tidewire.Error as error:
            self._refused("get_notifies", error)
            return []
        return [TransferNotify(item.name, item.message.decode("utf-8", "surrogateescape")) for item in received]


# Mooncake exports the enumeration and its values here too.
TransferEngine.TransferOpcode = TransferOpcode  # type: ignore[attr-defined]
TransferEngine.Read = TransferOpcode.Read  # type: ignore[attr-defined]
TransferEngine.Write = TransferOpcode.Write  # type: ignore[attr-defined]


def _topology_matrix(topology: Any, wanted: Optional[str]) -> dict[str, list[list[str]]]:
    """Mooncake's matrix: for each NUMA node the devices on it and the others.

    InfiniBand-class devices where there are some, else the network interfaces that are up.
    """
    names = None if not wanted else {name.strip() for name in wanted.split(",")}
    devices = topology.get("fabric_devices") or [
        nic for nic in topology.get("nics", []) if nic.get("up") and nic.get("kind") != "loopback"
    ]
    devices = [device for device in devices if names is None or device["name"] in names]
    nodes = sorted({int(node["id"]) for node in topology.get("numa_nodes", [])} or {0})
    matrix = {}
    for node in nodes:
        near = [device["name"] for device in devices if device.get("numa_node") == node]
        matrix[f"cpu:{node}"] = [near, [device["name"] for device in devices if device["name"] not in near]]
    return matrix
