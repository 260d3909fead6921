# SPDX-License-Identifier: Apache-2.0
"""Memory of the client: what it lends to the pool at run time, what is registered, and where values come from."""

from __future__ import annotations

import ctypes
import mmap
import os
from typing import Any, Dict, Optional, Sequence

import tidewire
from tidewire._store_native import lib

from ._arguments import to_string, to_unsigned
from ._store_calls import to_sequence
from ._store_codes import BUFFER_OVERFLOW, INVALID_PARAMS, NOT_SUPPORTED, failed_call, not_supported, refused
from ._store_core import StoreCore

_PROTOCOLS = ("tcp", "rdma", "efa", "")


class Segments(StoreCore):
    """Segments, registration and memory for values. Segment ids are texts that mean something to this store only."""

    def mount_segment(
        self, path: str, size: int, offset: int = 0, protocol: str = "tcp", location: str = ""
    ) -> Dict[str, Any]:
        """Lends ``size`` bytes from ``offset`` of the file ``path`` (/dev/shm/..., a memory file) to the pool.

        {"ret": 0 or a negative code, "segment_ids": [...]}. The file must be that long; ``offset`` a multiple of the
        page size. ``location``: "", "*" or "cpu:N".
        """
        what, name = "mount_segment", to_string(path, "path")
        nbytes, start = to_unsigned(size, "size"), to_unsigned(offset, "offset")
        if to_string(protocol, "protocol") not in _PROTOCOLS:
            return _failure(refused(what, f"protocol {protocol!r} is not supported ({NOT_SUPPORTED})", NOT_SUPPORTED))
        to_string(location, "location")
        if self._live(what) is None:
            return _failure(INVALID_PARAMS)
        try:
            file = os.open(name, os.O_RDWR | os.O_CLOEXEC)
            try:
                if os.fstat(file).st_size < start + nbytes:
                    raise ValueError(f"the file has {os.fstat(file).st_size} bytes, fewer than {start} + {nbytes}")
                memory = mmap.mmap(file, nbytes, offset=start)
            finally:
                os.close(file)
        except (OSError, ValueError, OverflowError) as error:
            return _failure(refused(what, f"{name!r}: {error}"))
        return self._mount(what, tidewire.describe(memory).address, nbytes, location, memory)

    def unmount_segment(self, segment_ids: Sequence[str], grace_period_seconds: int = 0) -> int:
        """Takes memory back; its replicas are gone. 0 or the first negative code (-600 for an unknown id). A grace
        period other than 0 is not supported."""
        return self._unmount("unmount_segment", segment_ids, grace_period_seconds)

    def allocate_and_mount_segment(self, size: int, protocol: str = "tcp", location: str = "") -> Dict[str, Any]:
        """Allocates ``size`` bytes and lends them to the pool. As :meth:`mount_segment`, and {"allocated_size"}."""
        what, nbytes = "allocate_and_mount_segment", to_unsigned(size, "size")
        to_string(location, "location")
        if to_string(protocol, "protocol") not in _PROTOCOLS:
            result = _failure(refused(what, f"protocol {protocol!r} is not supported ({NOT_SUPPORTED})", NOT_SUPPORTED))
        elif self._live(what) is None:
            result = _failure(INVALID_PARAMS)
        else:
            result = self._mount(what, None, nbytes, location, None)
        return {**result, "allocated_size": nbytes if result["ret"] == 0 else 0}

    def unmount_and_free_segment(self, segment_ids: Sequence[str], grace_period_seconds: int = 0) -> int:
        """As :meth:`unmount_segment`, for memory of :meth:`allocate_and_mount_segment`."""
        return self._unmount("unmount_and_free_segment", segment_ids, grace_period_seconds)

    def alloc_from_mem_pool(self, size: int, /) -> int:
        """The address of ``size`` bytes of the client's registered pool, for values; 0 when there is no room."""
        nbytes = to_unsigned(size, "size")
        connection = self._live("alloc_from_mem_pool")
        return (lib.tw_store_allocate(connection.handle, nbytes) or 0) if connection is not None else 0

    def register_buffer(self, buffer_ptr: int, size: int) -> int:
        """Registers ``size`` bytes at ``buffer_ptr``, so that they move without a copy. 0 or a negative code."""
        address, nbytes = to_unsigned(buffer_ptr, "buffer_ptr"), to_unsigned(size, "size")
        connection = self._live("register_buffer")
        if connection is None:
            return INVALID_PARAMS
        return failed_call(lib.tw_store_register(connection.handle, address, nbytes), "register_buffer")

    def unregister_buffer(self, buffer_ptr: int) -> int:
        """Undoes one :meth:`register_buffer` of this address. 0 or a negative code."""
        address = to_unsigned(buffer_ptr, "buffer_ptr")
        connection = self._live("unregister_buffer")
        if connection is None:
            return INVALID_PARAMS
        return failed_call(lib.tw_store_unregister(connection.handle, address), "unregister_buffer")

    def _mount(self, what: str, address: Optional[int], nbytes: int, location: str, keep: Any) -> Dict[str, Any]:
        connection = self._live(what)
        if connection is None:
            return _failure(INVALID_PARAMS)
        ordinal = ctypes.c_uint32()
        place = location.encode("utf-8", "surrogateescape") or None
        code = lib.tw_store_mount(connection.handle, address, nbytes, place, ctypes.byref(ordinal))
        if code:
            return _failure(failed_call(code, what))
        connection.mounted[ordinal.value] = keep
        return {"ret": 0, "segment_ids": [str(ordinal.value)]}

    def _unmount(self, what: str, segment_ids: Sequence[str], grace_period_seconds: int) -> int:
        ids = [to_string(item, "segment_ids") for item in to_sequence(segment_ids, "segment_ids")]
        if to_unsigned(grace_period_seconds, "grace_period_seconds"):
            return not_supported(f"{what}(grace_period_seconds={grace_period_seconds})")
        connection = self._live(what)
        if connection is None:
            return INVALID_PARAMS
        result = 0
        for item in ids:
            ordinal = int(item) if item.isdecimal() else -1
            if ordinal not in connection.mounted:
                code = refused(what, f"{item!r} is no segment that this store has mounted")
            else:
                code = failed_call(lib.tw_store_unmount(connection.handle, ordinal), what)
                if code == 0:
                    # The mapping itself goes with its last reference.
                    connection.mounted.pop(ordinal, None)
            result = result or code
        return result


def _failure(code: int) -> Dict[str, Any]:
    return {"ret": code, "segment_ids": []}


# What MooncakeHostMemAllocator gave, by address; it stays until it is freed, whatever becomes of the allocator.
_host_memory: Dict[int, mmap.mmap] = {}


class MooncakeHostMemAllocator:
    """Page-aligned, zeroed memory of this host, for buffers that are registered later."""

    def alloc(self, size: int, /) -> int:
        """The address of ``size`` bytes, which stay until :meth:`free`; 0 on failure."""
        nbytes = to_unsigned(size, "size")
        try:
            memory = mmap.mmap(-1, nbytes)
        except (OSError, ValueError, OverflowError) as error:
            refused("MooncakeHostMemAllocator.alloc", f"{nbytes} bytes: {error}", BUFFER_OVERFLOW)
            return 0
        address = tidewire.describe(memory).address
        _host_memory[address] = memory
        return address

    def free(self, ptr: int, /) -> int:
        """Frees what :meth:`alloc` gave. 0, or -600 for any other address."""
        address = to_unsigned(ptr, "ptr")
        memory = _host_memory.pop(address, None)
        if memory is None:
            return refused("MooncakeHostMemAllocator.free", f"{address:#x} is not from alloc")
        memory.close()
        return 0
