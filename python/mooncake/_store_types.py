# SPDX-License-Identifier: Apache-2.0
"""The types of ``mooncake.store``: enumerations, ``ReplicateConfig`` and what describes replicas and tasks."""

from __future__ import annotations

import enum
from typing import Any, Callable, List, Optional, Tuple

from ._arguments import to_string, to_unsigned


class _Named(enum.IntEnum):
    def __str__(self) -> str:
        return f"{type(self).__name__}.{self.name}"


class ObjectDataType(_Named):
    """What an object holds; kept with it."""

    UNKNOWN = 0
    KVCACHE = 1
    TENSOR = 2
    WEIGHT = 3
    SAMPLE = 4
    ACTIVATION = 5
    GRADIENT = 6
    OPTIMIZER_STATE = 7
    METADATA = 8
    GENERAL = 9


class SoftPinAction(_Named):
    """What a put does to an object's soft pin: leaves it, sets it, takes it away."""

    PRESERVE = 0
    ENABLE = 1
    DISABLE = 2


class ReplicaStatus(_Named):
    """How far a replica is. Readers only ever see COMPLETE."""

    UNDEFINED = 0
    INITIALIZED = 1
    PROCESSING = 2
    COMPLETE = 3
    REMOVED = 4
    FAILED = 5


class TaskType(_Named):
    """What a task of the master does."""

    REPLICA_COPY = 0
    REPLICA_MOVE = 1


class TaskStatus(_Named):
    """How far a task of the master is."""

    PENDING = 0
    PROCESSING = 1
    SUCCESS = 2
    FAILED = 3


def _flag(value: Any, name: str) -> bool:
    if not isinstance(value, bool) and type(value).__name__ not in ("bool", "bool_"):  # numpy's too
        raise TypeError(f"{name} must be a bool, not {type(value).__name__}")
    return bool(value)


def _texts(value: Any, name: str) -> List[str]:
    if isinstance(value, (str, bytes)) or not hasattr(value, "__iter__"):
        raise TypeError(f"{name} must be a list of str, not {type(value).__name__}")
    return [to_string(item, name) for item in value]


def _of(kind: Any) -> Callable[[Any, str], Any]:
    def convert(value: Any, name: str) -> Any:
        if not isinstance(value, kind):
            raise TypeError(f"{name} must be a {kind.__name__}, not {type(value).__name__}")
        return value

    return convert


def _or_none(convert: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
    return lambda value, name: None if value is None else convert(value, name)


class ReplicateConfig:
    """How an object is to be kept. Wrong types raise TypeError, unknown names AttributeError, when they are set.

    ``replica_num``: copies, on different hosts where there are. ``soft_pin_action`` and ``soft_pin_ttl_ms`` (None: the
    master's default): evicted only when nothing else is left. ``with_hard_pin``: never evicted. ``preferred_segments``:
    "host:port" of the clients to take memory of (``preferred_segment``: one of them, the older form).
    ``prefer_alloc_in_same_node``: on this host if there is room. ``data_type``: :class:`ObjectDataType`. ``group_ids``:
    None or one name for each key of the call ("" = none); the objects of a group are kept and evicted together.
    ``nof_replica_num``, ``dfs_replica_num``, ``preferred_nof_segments``: only their defaults are supported.
    """

    __slots__ = (
        "replica_num",
        "nof_replica_num",
        "dfs_replica_num",
        "soft_pin_action",
        "soft_pin_ttl_ms",
        "with_hard_pin",
        "preferred_segments",
        "preferred_nof_segments",
        "preferred_segment",
        "prefer_alloc_in_same_node",
        "data_type",
        "group_ids",
    )

    replica_num: int
    nof_replica_num: int
    dfs_replica_num: int
    soft_pin_action: SoftPinAction
    soft_pin_ttl_ms: Optional[int]
    with_hard_pin: bool
    preferred_segments: List[str]
    preferred_nof_segments: List[str]
    preferred_segment: str
    prefer_alloc_in_same_node: bool
    data_type: ObjectDataType
    group_ids: Optional[List[str]]

    def __init__(self) -> None:
        for name, value in _DEFAULTS.items():
            object.__setattr__(self, name, list(value) if isinstance(value, list) else value)

    def __setattr__(self, name: str, value: Any) -> None:
        convert = _CONVERSIONS.get(name)
        if convert is None:
            raise AttributeError(f"ReplicateConfig has no {name!r}")
        object.__setattr__(self, name, convert(value, name))

    def __str__(self) -> str:
        return "ReplicateConfig: { " + ", ".join(f"{name}: {getattr(self, name)}" for name in self.__slots__) + " }"

    def __repr__(self) -> str:
        changed = {name: getattr(self, name) for name in self.__slots__ if getattr(self, name) != _DEFAULTS[name]}
        return "<ReplicateConfig" + "".join(f" {name}={value!r}" for name, value in changed.items()) + ">"


_DEFAULTS: dict[str, Any] = {
    "replica_num": 1,
    "nof_replica_num": 0,
    "dfs_replica_num": 0,
    "soft_pin_action": SoftPinAction.PRESERVE,
    "soft_pin_ttl_ms": None,
    "with_hard_pin": False,
    "preferred_segments": [],
    "preferred_nof_segments": [],
    "preferred_segment": "",
    "prefer_alloc_in_same_node": False,
    "data_type": ObjectDataType.UNKNOWN,
    "group_ids": None,
}

_CONVERSIONS: dict[str, Callable[[Any, str], Any]] = {
    "replica_num": to_unsigned,
    "nof_replica_num": to_unsigned,
    "dfs_replica_num": to_unsigned,
    "soft_pin_action": _of(SoftPinAction),
    "soft_pin_ttl_ms": _or_none(to_unsigned),
    "with_hard_pin": _flag,
    "preferred_segments": _texts,
    "preferred_nof_segments": _texts,
    "preferred_segment": to_string,
    "prefer_alloc_in_same_node": _flag,
    "data_type": _of(ObjectDataType),
    "group_ids": _or_none(_texts),
}


# What every method takes that is given none.
DEFAULT = ReplicateConfig()


class _Record:
    """Named values that print themselves."""

    __slots__: Tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} " + " ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__) + ">"


class Descriptor(_Record):
    """Where bytes lie: ``size`` bytes at ``buffer_address`` of the engine ``transport_endpoint`` ("host:port")."""

    __slots__ = ("size", "buffer_address", "transport_endpoint")

    def __init__(self, size: int, buffer_address: int, transport_endpoint: str) -> None:
        self.size = size
        self.buffer_address = buffer_address
        self.transport_endpoint = transport_endpoint


class MemoryDescriptor(_Record):
    """A replica in memory: ``buffer_descriptor`` is its :class:`Descriptor`."""

    __slots__ = ("buffer_descriptor",)

    def __init__(self, buffer_descriptor: Descriptor) -> None:
        self.buffer_descriptor = buffer_descriptor


class DiskDescriptor(_Record):
    """A replica in a file: ``object_size`` bytes in ``file_path``."""

    __slots__ = ("file_path", "object_size")

    def __init__(self, file_path: str, object_size: int) -> None:
        self.file_path = file_path
        self.object_size = object_size


class ReplicaDescriptor(_Record):
    """One replica of an object: its ``status`` and where it lies."""

    __slots__ = ("status", "_place")

    def __init__(self, status: ReplicaStatus, place: Any) -> None:
        self.status = status
        self._place = place

    def is_memory_replica(self) -> bool:
        """Whether it lies in some client's memory."""
        return isinstance(self._place, MemoryDescriptor)

    def is_disk_replica(self) -> bool:
        """Whether it lies in a file of a file system that all share."""
        return isinstance(self._place, DiskDescriptor)

    def is_local_disk_replica(self) -> bool:
        """Whether it lies on some client's own disk."""
        return False

    def get_memory_descriptor(self) -> MemoryDescriptor:
        """Where it lies; RuntimeError for a replica that is not in memory."""
        if not self.is_memory_replica():
            raise RuntimeError("this replica is not in memory")
        return self._place

    def get_disk_descriptor(self) -> DiskDescriptor:
        """Where it lies; RuntimeError for a replica that is not on a disk."""
        if not self.is_disk_replica():
            raise RuntimeError("this replica is not on a disk")
        return self._place


class QueryTaskResponse(_Record):
    """How a task of the master stands. ``id``: (high, low) halves of its UUID. Times: ms since 1970."""

    __slots__ = (
        "id",
        "type",
        "status",
        "created_at_ms_epoch",
        "last_updated_at_ms_epoch",
        "assigned_client",
        "message",
    )

    def __init__(
        self,
        id: tuple[int, int] = (0, 0),
        type: TaskType = TaskType.REPLICA_COPY,
        status: TaskStatus = TaskStatus.PENDING,
        created_at_ms_epoch: int = 0,
        last_updated_at_ms_epoch: int = 0,
        assigned_client: tuple[int, int] = (0, 0),
        message: str = "",
    ) -> None:
        self.id = id
        self.type = type
        self.status = status
        self.created_at_ms_epoch = created_at_ms_epoch
        self.last_updated_at_ms_epoch = last_updated_at_ms_epoch
        self.assigned_client = assigned_client
        self.message = message


class ParallelAxis(_Record):
    """One way in which a tensor is cut. ``kind``: "tp", "ep", "pp", "dp", ...; ``rank`` of ``size`` along dimension
    ``split_dim``; ``expert_id`` and ``stage_id`` are None where they say nothing."""

    __slots__ = ("kind", "rank", "size", "split_dim", "expert_id", "stage_id")

    def __init__(
        self,
        kind: str = "tp",
        rank: int = 0,
        size: int = 1,
        split_dim: Optional[int] = None,
        expert_id: Optional[int] = None,
        stage_id: Optional[int] = None,
    ) -> None:
        self.kind = kind
        self.rank = rank
        self.size = size
        self.split_dim = split_dim
        self.expert_id = expert_id
        self.stage_id = stage_id


class TensorParallelism(_Record):
    """All the ways in which a tensor is cut: a list of :class:`ParallelAxis`."""

    __slots__ = ("axes",)

    def __init__(self, axes: List[ParallelAxis] = []) -> None:
        self.axes = list(axes)


class ReadTarget(_Record):
    """What a reader wants of a tensor. ``mode``: "as_stored", "shard" (that of ``parallelism``) or "full"."""

    __slots__ = ("mode", "parallelism")

    def __init__(self, mode: str = "as_stored", parallelism: Optional[TensorParallelism] = None) -> None:
        self.mode = mode
        self.parallelism = parallelism
