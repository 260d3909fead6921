# SPDX-License-Identifier: Apache-2.0
"""What the tensor methods share: tensors to keys and back, whole or in shards."""

from __future__ import annotations

from array import array
from typing import Any, List, Optional, Sequence, Tuple

from ._arguments import to_list, to_string, to_unsigned
from ._store_calls import Parts, pack_keys, single_parts, to_sequence
from ._store_codes import INVALID_PARAMS, refused
from ._store_core import first_error
from ._store_objects import Objects
from ._store_tensor_format import HEADER_BYTES, Shard, read_header
from ._store_torch import load_torch, pack_tensor, shard_ranges, tensor_at, tensor_of
from ._store_types import ReplicateConfig


def shard_key(key: str, rank: int) -> str:
    """The key of one rank's shard."""
    return f"{key}_tp_{rank}"


def names(values: Any, name: str) -> List[str]:
    """A list of keys as str."""
    return [to_string(value, name) for value in to_sequence(values, name)]


class TensorCore(Objects):
    """Tensors to keys and back."""

    def _put_tensors(
        self,
        what: str,
        keys: Sequence[str],
        tensors: Sequence[Any],
        config: Optional[ReplicateConfig] = None,
        upsert: bool = False,
        shards: Optional[Sequence[Shard]] = None,
    ) -> List[int]:
        """0 or a negative code for each; -600 for what is no tensor or can't be stored."""
        if len(keys) != len(tensors):
            return [refused(what, f"{len(keys)} keys but {len(tensors)} tensors")] * len(keys)
        results = [INVALID_PARAMS] * len(keys)
        packed: List[Tuple[int, bytes, Any, int]] = []
        for index, tensor in enumerate(tensors):
            try:
                packed.append((index, *pack_tensor(tensor, shards[index] if shards is not None else None)))
            except (ValueError, RuntimeError) as error:
                refused(what, f"{keys[index]}: {error}")
        if not packed:
            return results
        headers = [array("B", header) for _, header, _, _ in packed]
        addresses, lengths, counts = [], [], []
        for header, (_, _, plain, nbytes) in zip(headers, packed):
            addresses += [header.buffer_info()[0], plain.data_ptr()][: 1 + bool(nbytes)]
            lengths += [HEADER_BYTES, nbytes][: 1 + bool(nbytes)]
            counts.append(1 + bool(nbytes))
        parts = Parts(array("I", counts), to_list(addresses, "tensors"), to_list(lengths, "tensors"))
        chosen = pack_keys([keys[index] for index, _, _, _ in packed])
        for (index, _, _, _), result in zip(packed, self._put(what, chosen, parts, config, upsert)):
            results[index] = result
        return results

    def _put_shards(
        self,
        what: str,
        key: str,
        tensor: Any,
        size: Any,
        dimension: Any,
        config: Optional[ReplicateConfig] = None,
        upsert: bool = False,
    ) -> int:
        """Cuts a tensor along a dimension and puts every rank's shard. 0 or the first negative code."""
        count = to_unsigned(size, "tp_size")
        if count <= 1:
            return self._put_tensors(what, [key], [tensor], config, upsert)[0]
        try:
            torch = load_torch()
            if not isinstance(tensor, torch.Tensor):
                raise ValueError(f"a {type(tensor).__name__} is no torch.Tensor")
            cut = int(dimension) + (tensor.dim() if dimension < 0 else 0)
            if not 0 <= cut < tensor.dim():
                raise ValueError(f"split_dim={dimension} of a tensor of shape {tuple(tensor.shape)}")
            if tensor.shape[cut] < count:
                raise ValueError(f"{count} shards of dimension {cut} of a tensor of shape {tuple(tensor.shape)}")
        except ValueError as error:
            return refused(what, f"{key}: {error}")
        ranges = shard_ranges(tensor.shape[cut], count)
        whole = tuple(tensor.shape)
        pieces = [tensor.narrow(cut, start, length) for start, length in ranges]
        shards = [Shard(rank, count, cut, start, whole) for rank, (start, _) in enumerate(ranges)]
        keys = [shard_key(key, rank) for rank in range(count)]
        return first_error(self._put_tensors(what, keys, pieces, config, upsert, shards))

    def _get_tensors(self, what: str, keys: Sequence[str]) -> List[Any]:
        """A tensor of its own memory for each key, None for each that fails."""
        tensors: List[Any] = []
        for key, buffer in zip(keys, self._get_buffers(what, pack_keys(keys))):
            tensor = None
            if buffer is not None:
                try:
                    tensor = tensor_of(buffer, read_header(buffer, buffer.size()), True)
                except (ValueError, RuntimeError, MemoryError) as error:
                    refused(what, f"{key}: {error}")
            tensors.append(tensor)
        return tensors

    def _get_tensors_into(self, what: str, keys: Sequence[str], pointers: Any, sizes: Any) -> List[Any]:
        """Reads header and elements into each buffer; tensors over the buffers, None for each that fails."""
        parts = single_parts(pointers, sizes)
        places = list(to_sequence(pointers, "buffer_ptrs")) if parts.keys == len(keys) else []
        tensors: List[Any] = [None] * len(keys)
        for index, result in enumerate(self._get_into(what, pack_keys(keys), parts)):
            if result >= 0:
                try:
                    tensors[index] = tensor_at(to_unsigned(places[index], "buffer_ptrs"), result)
                except (ValueError, RuntimeError) as error:
                    refused(what, f"{keys[index]}: {error}")
        return tensors

    def _put_stored(
        self,
        what: str,
        keys: Sequence[str],
        pointers: Any,
        sizes: Any,
        config: Optional[ReplicateConfig] = None,
        upsert: bool = False,
    ) -> List[int]:
        """Puts buffers that hold header and elements, as ``get_tensor_into`` leaves them. 0 or a negative code each."""
        parts = single_parts(pointers, sizes)
        return self._put(what, pack_keys(keys), parts, config, upsert)


def rank_key(key: Any, rank: Any, size: Any, name: str = "key") -> str:
    """The key under which one rank finds its tensor: that of its shard where there are several ranks."""
    text = to_string(key, name)
    return shard_key(text, to_unsigned(rank, "tp_rank")) if to_unsigned(size, "tp_size") > 1 else text
