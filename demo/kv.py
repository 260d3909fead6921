# SPDX-License-Identifier: Apache-2.0
"""The paged KV cache: one flat buffer, cut into pages that need not be neighbours.

Layout, outermost first: [layer][K, V][page][slot][KV head][head dim]. The page table of a sequence lists the pages
that hold its tokens, in order; token t lies in slot t % page_size of page table[t // page_size]. This is how serving
frameworks lay out their caches, and it is why a prompt becomes many pieces on the wire.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

KEYS, VALUES = 0, 1


@dataclass(frozen=True)
class KvGeometry:
    """The shape of a model's KV cache. Sizes are bytes."""

    layers: int
    kv_heads: int
    head_dim: int
    page_size: int = 16  # tokens in a page
    dtype: str = "float16"

    @property
    def slot_bytes(self) -> int:
        """Keys (or values) of one token in one layer."""
        return self.kv_heads * self.head_dim * np.dtype(self.dtype).itemsize

    @property
    def page_bytes(self) -> int:
        return self.page_size * self.slot_bytes

    @property
    def token_bytes(self) -> int:
        """Everything that one token leaves behind, over all layers."""
        return 2 * self.layers * self.slot_bytes

    def pages_for(self, tokens: int) -> int:
        return -(-tokens // self.page_size)

    def pool_bytes(self, pages: int) -> int:
        return 2 * self.layers * pages * self.page_bytes


class PageAllocator:
    """Hands out pages of a pool the way a busy server does: in short runs from all over the pool.

    Deterministic for a seed. Not thread-safe.
    """

    RUN = 4  # neighbouring pages that tend to stay together

    def __init__(self, pages: int, seed: int | None = None):
        """seed None: pages in order, as in an empty pool."""
        order = np.arange(pages)
        if seed is not None:
            runs = [order[start : start + self.RUN] for start in range(0, pages, self.RUN)]
            shuffled = np.random.default_rng(seed).permutation(len(runs))
            order = np.concatenate([runs[index] for index in shuffled])
        self._free = list(order[::-1])

    def take(self, count: int) -> np.ndarray:
        if count > len(self._free):
            raise MemoryError(f"the KV pool has {len(self._free)} free pages, {count} are needed: raise --pool-tokens")
        return np.array([self._free.pop() for _ in range(count)], dtype=np.int64)

    def give_back(self, table: np.ndarray) -> None:
        self._free.extend(int(page) for page in table[::-1])


class PagedKvCache:
    """A view of a flat buffer as a paged cache. The buffer stays the caller's and must outlive the cache."""

    def __init__(self, geometry: KvGeometry, pages: int, memory):
        """memory: a writable buffer of at least geometry.pool_bytes(pages) bytes."""
        self.geometry = geometry
        self.pages = pages
        shape = (geometry.layers, 2, pages, geometry.page_size, geometry.kv_heads, geometry.head_dim)
        dtype = np.dtype(geometry.dtype)
        self.array = np.frombuffer(memory, dtype=dtype, count=int(np.prod(shape))).reshape(shape)

    @property
    def address(self) -> int:
        return self.array.ctypes.data

    def write(self, layer: int, table: np.ndarray, start: int, keys: np.ndarray, values: np.ndarray) -> None:
        """Puts keys and values (tokens, KV heads, head dim) of the tokens from position `start` on into their slots."""
        positions = np.arange(start, start + len(keys))
        pages = table[positions // self.geometry.page_size]
        slots = positions % self.geometry.page_size
        self.array[layer, KEYS, pages, slots] = keys
        self.array[layer, VALUES, pages, slots] = values

    def gather(self, layer: int, table: np.ndarray, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """Keys and values (float32) of the positions start <= t < stop, as arrays (tokens, KV heads, head dim)."""
        size = self.geometry.page_size
        first = start // size
        pages = table[first : self.geometry.pages_for(stop)]
        flat = (-1, self.geometry.kv_heads, self.geometry.head_dim)
        cut = slice(start - first * size, stop - first * size)
        keys = self.array[layer, KEYS, pages].reshape(flat)[cut].astype(np.float32)
        values = self.array[layer, VALUES, pages].reshape(flat)[cut].astype(np.float32)
        return keys, values

    def poison(self, table: np.ndarray) -> None:
        """Fills pages with NaN, so that a byte which does not arrive can't go unnoticed."""
        self.array[:, :, table] = np.nan

    def digest(self, table: np.ndarray, tokens: int) -> str:
        """A checksum of the first `tokens` tokens in logical order: the same wherever the pages lie."""
        flat = (-1, self.geometry.kv_heads, self.geometry.head_dim)
        pages = table[: self.geometry.pages_for(tokens)]
        state = hashlib.blake2b(digest_size=16)
        for layer in range(self.geometry.layers):
            for kind in (KEYS, VALUES):
                state.update(np.ascontiguousarray(self.array[layer, kind, pages].reshape(flat)[:tokens]))
        return state.hexdigest()


def pieces(
    geometry: KvGeometry,
    layers: range,
    tokens: int,
    local: tuple[int, int, np.ndarray],
    remote: tuple[int, int, np.ndarray],
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The transfer list for the first `tokens` tokens of `layers`.

    local, remote: (pool address, pages in the pool, page table). Returns local addresses, remote addresses and lengths
    as uint64 arrays, one entry for each run of pages that are neighbours on both sides; the last page is cut to the
    slots in use.
    """
    count = geometry.pages_for(tokens)
    here, there = local[2][:count], remote[2][:count]
    breaks = (np.diff(here) != 1) | (np.diff(there) != 1)
    starts = np.concatenate(([0], np.nonzero(breaks)[0] + 1))
    ends = np.concatenate((starts[1:], [count]))
    lengths = (ends - starts) * geometry.page_bytes
    lengths[-1] -= (count * geometry.page_size - tokens) * geometry.slot_bytes

    planes = np.arange(2 * layers.start, 2 * layers.stop)[:, None]  # plane = 2 * layer + (0 for K, 1 for V)

    def addresses(pool: tuple[int, int, np.ndarray], table: np.ndarray) -> np.ndarray:
        offsets = planes * (pool[1] * geometry.page_bytes) + table[starts][None, :] * geometry.page_bytes
        return (offsets.astype(np.uint64) + np.uint64(pool[0])).ravel()

    return addresses(local, here), addresses(remote, there), np.tile(lengths.astype(np.uint64), len(planes))
