# SPDX-License-Identifier: Apache-2.0
"""``mooncake.store`` served by Tidewire.

Names, argument order, defaults, results and error numbers are those of Mooncake 0.3.12. Addresses and sizes are plain
integers (bytes). Results are 0 or more for success (bytes where the method says so) and negative numbers for failure:
-200 no space for now, -600 bad arguments or no store, -704 no such key, -706 a reader has a lease, -800 a transfer
failed, -1012 not supported; methods for many keys give one result for each. Failures that are no everyday answers of a
cache are logged by the logger "mooncake", one line for each call. Wrong argument types raise TypeError; nothing else is
raised unless a method says so. Every method may be called from any thread and releases the interpreter lock while it
waits. Registered memory is moved without a copy; what a call was given may be changed or freed once it has returned.
"""

from __future__ import annotations

import ctypes
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from tidewire._store_native import lib

from ._store_codes import UNAVAILABLE_IN_CURRENT_STATUS, not_supported, refused
from ._store_extras import (
    EngramStore,
    EngramStoreConfig,
    MooncakeDistributedNoFRegister,
    _deserialize_tensor,
    _get_pyclient_from_wrapper,
    _serialize_tensor,
    _tensor_metadata_size,
    bind_to_numa_node,
    get_alloc_func_addr,
    get_free_func_addr,
)
from ._store_keys import KeyMethods
from ._store_life import BufferHandle, Connection
from ._store_parallel import ParallelTensors
from ._store_segments import MooncakeHostMemAllocator, Segments
from ._store_setup import MISSING, REQUIRED, from_dict, store_options
from ._store_tensors import Tensors
from ._store_types import (
    Descriptor,
    DiskDescriptor,
    MemoryDescriptor,
    ObjectDataType,
    ParallelAxis,
    QueryTaskResponse,
    ReadTarget,
    ReplicaDescriptor,
    ReplicaStatus,
    ReplicateConfig,
    SoftPinAction,
    TaskStatus,
    TaskType,
    TensorParallelism,
)
from .buffer_pool import BufferLease, BufferLeaseView, BufferPool

# Mooncake exports the values of these two enumerations beside them.
globals().update(ReplicaStatus.__members__)
globals().update(ObjectDataType.__members__)


class MooncakeDistributedStore(Tensors, ParallelTensors, KeyMethods, Segments):
    """A client of a store: puts and gets objects, and lends memory to their pool.

    ``setup`` comes first. ``close`` unmounts the memory that it lent, as do the object's collection and the end of the
    interpreter. A forked child's calls fail; it may make a store of its own.
    """

    def setup(
        self,
        local_hostname: Union[str, Mapping[str, Any]] = MISSING,
        metadata_server: str = MISSING,
        global_segment_size: int = MISSING,
        local_buffer_size: int = MISSING,
        protocol: str = MISSING,
        rdma_devices: str = MISSING,
        master_server_addr: str = MISSING,
        engine: Any = None,
        enable_ssd_offload: bool = False,
        ssd_offload_path: str = "",
        tenant_id: str = "default",
        enable_client_http_server: bool = False,
        client_http_port: int = 9300,
        *,
        config: Mapping[str, Any] = MISSING,
    ) -> int:
        """Connects, lends memory, and returns once a put can succeed. 0, or a negative code and it may be called again.

        Two forms::

            setup(local_hostname: str, metadata_server: str, global_segment_size: int, local_buffer_size: int,
                  protocol: str, rdma_devices: str, master_server_addr: str, engine=None,
                  enable_ssd_offload: bool = False, ssd_offload_path: str = "", tenant_id: str = "default",
                  enable_client_http_server: bool = False, client_http_port: int = 9300) -> int
            setup(config: dict) -> int

        ``local_hostname``: "host" or "host:port" that other clients reach. ``metadata_server``: "P2PHANDSHAKE" or
        "http://host:port/path". ``global_segment_size``: bytes to lend to the pool, 0 for none. ``local_buffer_size``:
        bytes for staging what is not registered. ``protocol``: "tcp", "rdma", "efa". ``rdma_devices``: comma list.
        ``master_server_addr``: "host:port". ``engine``: None, or what ``mooncake.engine``'s ``get_engine`` gave, which
        is then used and kept. The rest (SSD, tenants, HTTP) is refused by name unless it is off: -1012.

        The dict has the same names as keys, all but ``engine``, and needs the first two; sizes may be "16MB" and are
        that unless given, as ``protocol`` is "tcp" and ``master_server_addr`` "127.0.0.1:50051". Values are taken as
        text. An unknown key gives -600, an unknown keyword raises TypeError.
        """
        arguments: Dict[str, Any] = {
            "local_hostname": local_hostname,
            "metadata_server": metadata_server,
            "global_segment_size": global_segment_size,
            "local_buffer_size": local_buffer_size,
            "protocol": protocol,
            "rdma_devices": rdma_devices,
            "master_server_addr": master_server_addr,
            "engine": engine,
            "enable_ssd_offload": enable_ssd_offload,
            "ssd_offload_path": ssd_offload_path,
            "tenant_id": tenant_id,
            "enable_client_http_server": enable_client_http_server,
            "client_http_port": client_http_port,
        }
        if config is MISSING and isinstance(local_hostname, Mapping):
            config, arguments["local_hostname"] = local_hostname, MISSING
        if config is not MISSING:
            given = [name for name in REQUIRED if arguments[name] is not MISSING]
            if given or not isinstance(config, Mapping):
                raise TypeError(f"setup() takes a dict alone, not {type(config).__name__} with {given}")
            try:
                arguments.update(from_dict(config))
            except ValueError as error:
                return refused("setup", str(error))
        missing = [name for name in REQUIRED if arguments[name] is MISSING]
        if missing:
            raise TypeError(f"setup() lacks {', '.join(missing)}")
        code, options, borrowed = store_options(arguments)
        if code or options is None:
            return code
        old = self._connection
        if old is not None and not old.refusal():
            return refused("setup", "this store is already set up: close() it first", UNAVAILABLE_IN_CURRENT_STATUS)
        code, self._connection = Connection.open(options, borrowed)
        return code

    def close(self, /) -> int:
        """Unmounts the memory that this client lent (its replicas are gone) and frees everything. 0 or a negative code;
        0 too when there is nothing to close. Buffers of :meth:`get_buffer` stay valid."""
        return self._connection.close() if self._connection is not None else 0

    def health_check(self) -> int:
        """0 in contact with the master, 1 not (work goes on as far as it can), 2 closed or not set up."""
        connection = self._connection
        if connection is None or connection.refusal():
            return 2
        return lib.tw_store_health(connection.handle)

    def get_hostname(self, /) -> str:
        """ "host:port" of this client, which others name in ``preferred_segments``; "" before ``setup``."""
        connection = self._live("get_hostname")
        out = ctypes.create_string_buffer(512)
        if connection is None or lib.tw_store_name(connection.handle, out, len(out)):
            return ""
        return out.value.decode("utf-8", "replace")

    # -- not here: each names itself in the log and answers -1012 --

    def setup_dummy(self, mem_pool_size: int, local_buffer_size: int, server_address: str) -> int:
        """Not supported: -1012."""
        return not_supported("setup_dummy")

    def init_all(self, protocol: str, device_name: str, mount_segment_size: int, /) -> int:
        """Not supported: -1012. Use ``setup``."""
        return not_supported("init_all")

    def unmount_local_disk_segment(self, grace_period_seconds: int = 0) -> int:
        """Not supported: -1012."""
        return not_supported("unmount_local_disk_segment")

    def get_offload_rpc_read_count(self) -> int:
        """Not supported: -1012."""
        return not_supported("get_offload_rpc_read_count")

    def create_copy_task(self, key: str, targets: Sequence[str]) -> Tuple[Tuple[int, int], int]:
        """Not supported: ((0, 0), -1012)."""
        return (0, 0), not_supported("create_copy_task")

    def create_move_task(self, key: str, source: str, target: str) -> Tuple[Tuple[int, int], int]:
        """Not supported: ((0, 0), -1012)."""
        return (0, 0), not_supported("create_move_task")

    def query_task(self, task_id: Tuple[int, int]) -> Tuple[Optional[QueryTaskResponse], int]:
        """Not supported: (None, -1012)."""
        return None, not_supported("query_task")

    def save_tensor_to_safetensor(self, key: str, file_name: Optional[str] = None) -> int:
        """Not supported: -1012."""
        return not_supported("save_tensor_to_safetensor")

    def load_tensor_from_safetensor(self, key: Optional[str] = None, file_name: Optional[str] = None) -> int:
        """Not supported: -1012."""
        return not_supported("load_tensor_from_safetensor")

    def get_tensor_into_cuda(self, key: str, tensor: Any) -> int:
        """Not supported: -1012."""
        return not_supported("get_tensor_into_cuda")

    def batch_get_tensor_into_cuda(self, keys: Sequence[str], tensors_list: Sequence[Any]) -> List[int]:
        """Not supported: -1012 for each."""
        return [not_supported("batch_get_tensor_into_cuda")] * len(keys)

    def _get_pyclient_capsule(self) -> Any:
        not_supported("_get_pyclient_capsule")
        return None

    def __repr__(self) -> str:
        connection = self._connection
        state = "not set up" if connection is None else (connection.refusal() or self.get_hostname())
        return f"<MooncakeDistributedStore {state}>"


__all__ = [
    "BufferHandle",
    "BufferLease",
    "BufferLeaseView",
    "BufferPool",
    "Descriptor",
    "DiskDescriptor",
    "EngramStore",
    "EngramStoreConfig",
    "MemoryDescriptor",
    "MooncakeDistributedNoFRegister",
    "MooncakeDistributedStore",
    "MooncakeHostMemAllocator",
    "ObjectDataType",
    "ParallelAxis",
    "QueryTaskResponse",
    "ReadTarget",
    "ReplicaDescriptor",
    "ReplicaStatus",
    "ReplicateConfig",
    "SoftPinAction",
    "TaskStatus",
    "TaskType",
    "TensorParallelism",
    "bind_to_numa_node",
    "get_alloc_func_addr",
    "get_free_func_addr",
    "_deserialize_tensor",
    "_get_pyclient_from_wrapper",
    "_serialize_tensor",
    "_tensor_metadata_size",
    *ReplicaStatus.__members__,
    *ObjectDataType.__members__,
]
