# SPDX-License-Identifier: Apache-2.0
"""What ``mooncake.store`` has beside the store: tensors as bytes, NUMA binding, and names that are not served."""

from __future__ import annotations

import os
from typing import Any, List, Sequence

from ._arguments import to_unsigned
from ._store_codes import INVALID_PARAMS, NOT_SUPPORTED, not_supported, refused
from ._store_tensor_format import HEADER_BYTES
from ._store_torch import deserialize, serialize


class MooncakeDistributedNoFRegister:
    """SSDs behind a fabric. Not supported: both methods answer -1012."""

    def real_register(
        self, nqn: str, nsid: int, traddr: str, trsvcid: str, base: int, size: int, master: str, /
    ) -> int:
        """Not supported: -1012."""
        return not_supported("MooncakeDistributedNoFRegister.real_register")

    def real_unregister_by_endpoint(self, nqn: str, nsid: int, traddr: str, trsvcid: str, master: str, /) -> int:
        """Not supported: -1012."""
        return not_supported("MooncakeDistributedNoFRegister.real_unregister_by_endpoint")


class EngramStoreConfig:
    """Sizes of embedding tables: rows of each, and the dimension of a row."""

    def __init__(self, table_vocab_sizes: Sequence[int], embedding_dim: int) -> None:
        self.table_vocab_sizes: List[int] = [to_unsigned(rows, "table_vocab_sizes") for rows in table_vocab_sizes]
        self.embedding_dim = to_unsigned(embedding_dim, "embedding_dim")


class EngramStore:
    """Embedding tables in a store. Not supported: making one raises RuntimeError."""

    def __init__(self, layer_id: int, config: EngramStoreConfig, store: Any = None) -> None:
        not_supported("EngramStore")
        raise RuntimeError(f"EngramStore is not supported here ({NOT_SUPPORTED})")


def bind_to_numa_node(node: int) -> int:
    """Lets the calling thread run on the processors of a NUMA node only. 0, or -600 for a node that there is not."""
    number = to_unsigned(node, "node")
    try:
        with open(f"/sys/devices/system/node/node{number}/cpulist") as file:
            text = file.read().strip()
        processors: set[int] = set()
        for part in filter(None, text.split(",")):
            first, _, last = part.partition("-")
            processors.update(range(int(first), int(last or first) + 1))
        os.sched_setaffinity(0, processors)
    except (OSError, ValueError) as error:
        return refused("bind_to_numa_node", f"node {number}: {error}", INVALID_PARAMS)
    return 0


def get_alloc_func_addr() -> int:
    """Not supported: 0."""
    not_supported("get_alloc_func_addr")
    return 0


def get_free_func_addr() -> int:
    """Not supported: 0."""
    not_supported("get_free_func_addr")
    return 0


def _get_pyclient_from_wrapper(store: Any) -> Any:
    """Not supported: None."""
    not_supported("_get_pyclient_from_wrapper")
    return None


def _serialize_tensor(tensor: Any) -> bytes:
    """The bytes under which ``put_tensor`` stores a tensor: a header of 304 bytes and its elements.

    ValueError for what can't be stored.
    """
    return serialize(tensor)


def _tensor_metadata_size() -> int:
    """Bytes of a tensor's header: 304."""
    return HEADER_BYTES


def _deserialize_tensor(data: Any) -> Any:
    """The tensor of bytes from ``_serialize_tensor``. ValueError for other bytes, TypeError for what has no buffer."""
    return deserialize(memoryview(data))
