# SPDX-License-Identifier: Apache-2.0
"""The tensor methods with a description of parallelism. Only "none" is supported: the tensor as it is."""

from __future__ import annotations

from typing import Any, List, Optional, Sequence

from ._arguments import to_string
from ._store_calls import to_sequence
from ._store_codes import NOT_SUPPORTED, not_supported
from ._store_tensor_core import TensorCore, names
from ._store_types import DEFAULT, ReadTarget, ReplicateConfig, TensorParallelism


class ParallelTensors(TensorCore):
    """Each method with ``parallelism``, ``target`` and ``writer_partition`` left out does what its name says without
    "with_parallelism"; anything else is refused by name: -1012, or None where a tensor is asked for."""

    def put_tensor_with_parallelism(
        self,
        key: str,
        tensor: Any,
        parallelism: Optional[TensorParallelism] = None,
        config: ReplicateConfig = DEFAULT,
        writer_partition: Any = None,
    ) -> int:
        """As :meth:`put_tensor`, kept as ``config`` says."""
        if _refused("put_tensor_with_parallelism", parallelism=parallelism, writer_partition=writer_partition):
            return NOT_SUPPORTED
        return self._put_tensors("put_tensor_with_parallelism", [to_string(key, "key")], [tensor], config)[0]

    def batch_put_tensor_with_parallelism(
        self,
        keys: Sequence[str],
        tensors_list: Sequence[Any],
        parallelisms: Optional[Sequence[Optional[TensorParallelism]]] = None,
        config: ReplicateConfig = DEFAULT,
        writer_partitions: Optional[Sequence[Any]] = None,
    ) -> List[int]:
        """As :meth:`batch_put_tensor`, kept as ``config`` says."""
        if _refused(
            "batch_put_tensor_with_parallelism", parallelisms=parallelisms, writer_partitions=writer_partitions
        ):
            return [NOT_SUPPORTED] * len(to_sequence(keys, "keys"))
        return self._put_tensors(
            "batch_put_tensor_with_parallelism", names(keys, "keys"), to_sequence(tensors_list, "tensors_list"), config
        )

    def put_tensor_with_parallelism_from(
        self,
        key: str,
        buffer_ptr: int,
        size: int,
        parallelism: Optional[TensorParallelism] = None,
        config: ReplicateConfig = DEFAULT,
        writer_partition: Any = None,
    ) -> int:
        """As :meth:`put_tensor_from`, kept as ``config`` says."""
        if _refused("put_tensor_with_parallelism_from", parallelism=parallelism, writer_partition=writer_partition):
            return NOT_SUPPORTED
        return self._put_stored(
            "put_tensor_with_parallelism_from", [to_string(key, "key")], [buffer_ptr], [size], config
        )[0]

    def batch_put_tensor_with_parallelism_from(
        self,
        keys: Sequence[str],
        buffer_ptrs: Sequence[int],
        sizes: Sequence[int],
        parallelisms: Optional[Sequence[Optional[TensorParallelism]]] = None,
        config: ReplicateConfig = DEFAULT,
        writer_partitions: Optional[Sequence[Any]] = None,
    ) -> List[int]:
        """As :meth:`batch_put_tensor_from`, kept as ``config`` says."""
        if _refused(
            "batch_put_tensor_with_parallelism_from", parallelisms=parallelisms, writer_partitions=writer_partitions
        ):
            return [NOT_SUPPORTED] * len(to_sequence(keys, "keys"))
        return self._put_stored(
            "batch_put_tensor_with_parallelism_from", names(keys, "keys"), buffer_ptrs, sizes, config
        )

    def upsert_tensor_with_parallelism(
        self,
        key: str,
        tensor: Any,
        parallelism: Optional[TensorParallelism] = None,
        config: ReplicateConfig = DEFAULT,
        writer_partition: Any = None,
    ) -> int:
        """As :meth:`upsert_tensor`, kept as ``config`` says."""
        if _refused("upsert_tensor_with_parallelism", parallelism=parallelism, writer_partition=writer_partition):
            return NOT_SUPPORTED
        return self._put_tensors("upsert_tensor_with_parallelism", [to_string(key, "key")], [tensor], config, True)[0]

    def upsert_tensor_with_parallelism_from(
        self,
        key: str,
        buffer_ptr: int,
        size: int,
        parallelism: Optional[TensorParallelism] = None,
        config: ReplicateConfig = DEFAULT,
        writer_partition: Any = None,
    ) -> int:
        """As :meth:`upsert_tensor_from`, kept as ``config`` says."""
        if _refused("upsert_tensor_with_parallelism_from", parallelism=parallelism, writer_partition=writer_partition):
            return NOT_SUPPORTED
        return self._put_stored(
            "upsert_tensor_with_parallelism_from", [to_string(key, "key")], [buffer_ptr], [size], config, True
        )[0]

    def batch_upsert_tensor_with_parallelism_from(
        self,
        keys: Sequence[str],
        buffer_ptrs: Sequence[int],
        sizes: Sequence[int],
        parallelisms: Optional[Sequence[Optional[TensorParallelism]]] = None,
        config: ReplicateConfig = DEFAULT,
        writer_partitions: Optional[Sequence[Any]] = None,
    ) -> List[int]:
        """As :meth:`batch_upsert_tensor_from`, kept as ``config`` says."""
        if _refused(
            "batch_upsert_tensor_with_parallelism_from", parallelisms=parallelisms, writer_partitions=writer_partitions
        ):
            return [NOT_SUPPORTED] * len(to_sequence(keys, "keys"))
        return self._put_stored(
            "batch_upsert_tensor_with_parallelism_from", names(keys, "keys"), buffer_ptrs, sizes, config, True
        )

    def batch_upsert_tensor_with_parallelism(
        self,
        keys: Sequence[str],
        tensors_list: Sequence[Any],
        parallelisms: Optional[Sequence[Optional[TensorParallelism]]] = None,
        config: ReplicateConfig = DEFAULT,
        writer_partitions: Optional[Sequence[Any]] = None,
    ) -> List[int]:
        """As :meth:`batch_upsert_tensor`, kept as ``config`` says."""
        if _refused(
            "batch_upsert_tensor_with_parallelism", parallelisms=parallelisms, writer_partitions=writer_partitions
        ):
            return [NOT_SUPPORTED] * len(to_sequence(keys, "keys"))
        return self._put_tensors(
            "batch_upsert_tensor_with_parallelism",
            names(keys, "keys"),
            to_sequence(tensors_list, "tensors_list"),
            config,
            True,
        )

    def get_tensor_with_parallelism(self, key: str, target: Optional[ReadTarget] = None) -> Any:
        """As :meth:`get_tensor`."""
        if _refused("get_tensor_with_parallelism", target=target):
            return None
        return self._get_tensors("get_tensor_with_parallelism", [to_string(key, "key")])[0]

    def batch_get_tensor_with_parallelism(
        self, keys: Sequence[str], targets: Optional[Sequence[Optional[ReadTarget]]] = None
    ) -> List[Any]:
        """As :meth:`batch_get_tensor`."""
        if _refused("batch_get_tensor_with_parallelism", targets=targets):
            return [None] * len(to_sequence(keys, "keys"))
        return self._get_tensors("batch_get_tensor_with_parallelism", names(keys, "keys"))

    def get_tensor_with_parallelism_into(
        self, key: str, buffer_ptr: int, size: int, target: Optional[ReadTarget] = None
    ) -> Any:
        """As :meth:`get_tensor_into`."""
        what = "get_tensor_with_parallelism_into"
        if _refused(what, target=target):
            return None
        return self._get_tensors_into(what, [to_string(key, "key")], [buffer_ptr], [size])[0]

    def batch_get_tensor_with_parallelism_into(
        self,
        keys: Sequence[str],
        buffer_ptrs: Sequence[int],
        sizes: Sequence[int],
        targets: Optional[Sequence[Optional[ReadTarget]]] = None,
    ) -> List[Any]:
        """As :meth:`batch_get_tensor_into`."""
        what = "batch_get_tensor_with_parallelism_into"
        if _refused(what, targets=targets):
            return [None] * len(to_sequence(keys, "keys"))
        return self._get_tensors_into(what, names(keys, "keys"), buffer_ptrs, sizes)


def _says_nothing(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(_says_nothing(item) for item in value)
    if isinstance(value, ReadTarget):
        return value.mode == "as_stored" and _says_nothing(value.parallelism)
    return value is None or (isinstance(value, TensorParallelism) and not value.axes)


def _refused(what: str, **given: Any) -> bool:
    """Whether something is asked for that is not supported; then it is named in the log."""
    named = [f"{name}={value!r}" for name, value in given.items() if not _says_nothing(value)]
    if named:
        not_supported(f"{what} with {', '.join(named)}")
    return bool(named)
