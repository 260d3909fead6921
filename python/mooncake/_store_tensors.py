# SPDX-License-Identifier: Apache-2.0
"""The tensor methods: whole tensors, and shards of them for tensor parallelism."""

from __future__ import annotations

from typing import Any, List, Optional, Sequence

from ._arguments import to_string
from ._store_calls import to_sequence
from ._store_tensor_core import TensorCore, names, rank_key
from ._store_types import DEFAULT, ReplicateConfig


class Tensors(TensorCore):
    """The tensor methods. Tensors are torch's, of any dtype that has a name in ``_store_tensor_format``; those of a
    device are copied to the host first. What is no tensor, or can't be stored, gives -600."""

    # -- whole tensors --

    def put_tensor(self, key: str, tensor: Any) -> int:
        """Puts a tensor. 0, also when the key exists, or a negative code."""
        return self._put_tensors("put_tensor", [to_string(key, "key")], [tensor])[0]

    def batch_put_tensor(self, keys: Sequence[str], tensors_list: Sequence[Any]) -> List[int]:
        """Puts a tensor under each key. 0 or a negative code for each."""
        return self._put_tensors("batch_put_tensor", names(keys, "keys"), to_sequence(tensors_list, "tensors_list"))

    def pub_tensor(self, key: str, tensor: Any, config: ReplicateConfig = DEFAULT) -> int:
        """As :meth:`put_tensor`, kept as ``config`` says."""
        return self._put_tensors("pub_tensor", [to_string(key, "key")], [tensor], config)[0]

    def batch_pub_tensor(
        self, keys: Sequence[str], tensors_list: Sequence[Any], config: ReplicateConfig = DEFAULT
    ) -> List[int]:
        """As :meth:`batch_put_tensor`, kept as ``config`` says."""
        tensors = to_sequence(tensors_list, "tensors_list")
        return self._put_tensors("batch_pub_tensor", names(keys, "keys"), tensors, config)

    def upsert_tensor(self, key: str, tensor: Any) -> int:
        """As :meth:`put_tensor`, but a key that exists gets the new tensor."""
        return self._put_tensors("upsert_tensor", [to_string(key, "key")], [tensor], None, True)[0]

    def batch_upsert_tensor(self, keys: Sequence[str], tensors_list: Sequence[Any]) -> List[int]:
        """As :meth:`batch_put_tensor`, but keys that exist get the new tensors."""
        tensors = to_sequence(tensors_list, "tensors_list")
        return self._put_tensors("batch_upsert_tensor", names(keys, "keys"), tensors, None, True)

    def upsert_pub_tensor(self, key: str, tensor: Any, config: ReplicateConfig = DEFAULT) -> int:
        """As :meth:`pub_tensor`, but a key that exists gets the new tensor."""
        return self._put_tensors("upsert_pub_tensor", [to_string(key, "key")], [tensor], config, True)[0]

    def batch_upsert_pub_tensor(
        self, keys: Sequence[str], tensors_list: Sequence[Any], config: ReplicateConfig = DEFAULT
    ) -> List[int]:
        """As :meth:`batch_pub_tensor`, but keys that exist get the new tensors."""
        tensors = to_sequence(tensors_list, "tensors_list")
        return self._put_tensors("batch_upsert_pub_tensor", names(keys, "keys"), tensors, config, True)

    def get_tensor(self, key: str) -> Any:
        """A tensor in ordinary memory of its own, or None."""
        return self._get_tensors("get_tensor", [to_string(key, "key")])[0]

    def batch_get_tensor(self, keys: Sequence[str]) -> List[Any]:
        """As :meth:`get_tensor` for each key."""
        return self._get_tensors("batch_get_tensor", names(keys, "keys"))

    # -- buffers that hold the header and the elements --

    def get_tensor_into(self, key: str, buffer_ptr: int, size: int) -> Any:
        """Reads header and elements into ``size`` bytes of host memory at ``buffer_ptr``. A tensor over that memory, or
        None. The caller keeps the memory while the tensor lives."""
        return self._get_tensors_into("get_tensor_into", [to_string(key, "key")], [buffer_ptr], [size])[0]

    def batch_get_tensor_into(self, keys: Sequence[str], buffer_ptrs: Sequence[int], sizes: Sequence[int]) -> List[Any]:
        """As :meth:`get_tensor_into` for each key."""
        return self._get_tensors_into("batch_get_tensor_into", names(keys, "keys"), buffer_ptrs, sizes)

    def put_tensor_from(self, key: str, buffer_ptr: int, size: int) -> int:
        """Puts a tensor from memory that holds its header and its elements. 0 or a negative code."""
        return self._put_stored("put_tensor_from", [to_string(key, "key")], [buffer_ptr], [size])[0]

    def batch_put_tensor_from(self, keys: Sequence[str], buffer_ptrs: Sequence[int], sizes: Sequence[int]) -> List[int]:
        """As :meth:`put_tensor_from` for each key."""
        return self._put_stored("batch_put_tensor_from", names(keys, "keys"), buffer_ptrs, sizes)

    def upsert_tensor_from(self, key: str, buffer_ptr: int, size: int) -> int:
        """As :meth:`put_tensor_from`, but a key that exists gets the new tensor."""
        return self._put_stored("upsert_tensor_from", [to_string(key, "key")], [buffer_ptr], [size], None, True)[0]

    def batch_upsert_tensor_from(
        self, keys: Sequence[str], buffer_ptrs: Sequence[int], sizes: Sequence[int]
    ) -> List[int]:
        """As :meth:`upsert_tensor_from` for each key."""
        return self._put_stored("batch_upsert_tensor_from", names(keys, "keys"), buffer_ptrs, sizes, None, True)

    # -- tensor parallelism --

    def put_tensor_with_tp(self, key: str, tensor: Any, tp_rank: int = 0, tp_size: int = 1, split_dim: int = 0) -> int:
        """Cuts a whole tensor along ``split_dim`` and puts the shard of every rank, whatever ``tp_rank`` is, under
        ``<key>_tp_<rank>``; for ``tp_size`` 1 the tensor itself under ``key``. 0 or the first negative code."""
        return self._put_shards("put_tensor_with_tp", to_string(key, "key"), tensor, tp_size, split_dim)

    def batch_put_tensor_with_tp(
        self,
        base_keys: Sequence[str],
        tensors_list: Sequence[Any],
        tp_rank: int = 0,
        tp_size: int = 1,
        split_dim: int = 0,
    ) -> List[int]:
        """As :meth:`put_tensor_with_tp` for each key."""
        return self._put_many_shards("batch_put_tensor_with_tp", base_keys, tensors_list, tp_size, split_dim, None)

    def pub_tensor_with_tp(
        self,
        key: str,
        tensor: Any,
        config: ReplicateConfig = DEFAULT,
        tp_rank: int = 0,
        tp_size: int = 1,
        split_dim: int = 0,
    ) -> int:
        """As :meth:`put_tensor_with_tp`, kept as ``config`` says."""
        return self._put_shards("pub_tensor_with_tp", to_string(key, "key"), tensor, tp_size, split_dim, config)

    def batch_pub_tensor_with_tp(
        self,
        base_keys: Sequence[str],
        tensors_list: Sequence[Any],
        config: ReplicateConfig = DEFAULT,
        tp_rank: int = 0,
        tp_size: int = 1,
        split_dim: int = 0,
    ) -> List[int]:
        """As :meth:`batch_put_tensor_with_tp`, kept as ``config`` says."""
        return self._put_many_shards("batch_pub_tensor_with_tp", base_keys, tensors_list, tp_size, split_dim, config)

    def get_tensor_with_tp(self, key: str, tp_rank: int = 0, tp_size: int = 1, split_dim: int = 0) -> Any:
        """The shard of ``tp_rank`` (for ``tp_size`` 1 the tensor itself), or None. ``split_dim`` says nothing: the
        shard is as it was put."""
        return self._get_tensors("get_tensor_with_tp", [rank_key(key, tp_rank, tp_size)])[0]

    def batch_get_tensor_with_tp(self, base_keys: Sequence[str], tp_rank: int = 0, tp_size: int = 1) -> List[Any]:
        """As :meth:`get_tensor_with_tp` for each key."""
        return self._get_tensors("batch_get_tensor_with_tp", _rank_keys(base_keys, tp_rank, tp_size))

    def get_tensor_with_tp_into(
        self, key: str, buffer_ptr: int, size: int, tp_rank: int = 0, tp_size: int = 1, split_dim: int = 0
    ) -> Any:
        """As :meth:`get_tensor_into`, of the shard of ``tp_rank``."""
        keys = [rank_key(key, tp_rank, tp_size)]
        return self._get_tensors_into("get_tensor_with_tp_into", keys, [buffer_ptr], [size])[0]

    def batch_get_tensor_with_tp_into(
        self,
        base_keys: Sequence[str],
        buffer_ptrs: Sequence[int],
        sizes: Sequence[int],
        tp_rank: int = 0,
        tp_size: int = 1,
    ) -> List[Any]:
        """As :meth:`get_tensor_with_tp_into` for each key."""
        keys = _rank_keys(base_keys, tp_rank, tp_size)
        return self._get_tensors_into("batch_get_tensor_with_tp_into", keys, buffer_ptrs, sizes)

    def put_tensor_with_tp_from(
        self, key: str, buffer_ptr: int, size: int, tp_rank: int = 0, tp_size: int = 1, split_dim: int = 0
    ) -> int:
        """As :meth:`put_tensor_from`: the memory holds the shard of ``tp_rank``."""
        keys = [rank_key(key, tp_rank, tp_size)]
        return self._put_stored("put_tensor_with_tp_from", keys, [buffer_ptr], [size])[0]

    def batch_put_tensor_with_tp_from(
        self,
        base_keys: Sequence[str],
        buffer_ptrs: Sequence[int],
        sizes: Sequence[int],
        tp_rank: int = 0,
        tp_size: int = 1,
        split_dim: int = 0,
    ) -> List[int]:
        """As :meth:`put_tensor_with_tp_from` for each key."""
        keys = _rank_keys(base_keys, tp_rank, tp_size)
        return self._put_stored("batch_put_tensor_with_tp_from", keys, buffer_ptrs, sizes)

    def _put_many_shards(
        self, what: str, base_keys: Any, tensors_list: Any, size: int, dimension: int, config: Optional[ReplicateConfig]
    ) -> List[int]:
        keys, tensors = names(base_keys, "base_keys"), to_sequence(tensors_list, "tensors_list")
        if len(keys) != len(tensors):
            return self._put_tensors(what, keys, tensors)  # refuses
        return [self._put_shards(what, key, item, size, dimension, config) for key, item in zip(keys, tensors)]


def _rank_keys(keys: Any, rank: int, size: int) -> List[str]:
    return [rank_key(key, rank, size, "base_keys") for key in to_sequence(keys, "base_keys")]
