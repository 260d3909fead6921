# SPDX-License-Identifier: Apache-2.0
"""A rank's KV pages and metadata rows in CPU memory, laid out as SGLang has them, with bytes known to both sides."""

from __future__ import annotations

import ctypes
import random
from typing import Optional

import numpy as np
import torch

LAYERS = 4
HEADS = 4  # of all ranks together
HEAD_BYTES = 256  # 128 numbers of 16 bits
PAGE_TOKENS = 16
PAGES = 256
SLOTS = 16
ENTRIES = 2 * LAYERS  # keys of all layers, then values of all layers
FREE = 0xEE  # what free pages and rows hold, so that a write to one is noticed

PAGE_BYTES = ENTRIES * PAGE_TOKENS * HEADS * HEAD_BYTES  # of all ranks together


def _content(room: int, entry: int, shape: tuple[int, ...]) -> np.ndarray:
    """Random bytes that depend on the request and on the place."""
    generator = np.random.Generator(np.random.SFC64([room, entry]))
    return np.frombuffer(generator.bytes(int(np.prod(shape))), dtype=np.uint8).reshape(shape)


class Pool:
    """The pages of one rank. ``stray`` counts bytes that were written to free ones."""

    def __init__(self, rank: int, ranks: int, metadata: list[tuple[int, int, int]]):
        """``metadata``: address, length and length of a row for each of SGLang's metadata buffers."""
        heads = HEADS // ranks
        self._heads = slice(rank * heads, (rank + 1) * heads)
        shape = (PAGES, PAGE_TOKENS, heads, HEAD_BYTES)
        self.tensors = [torch.full(shape, FREE, dtype=torch.uint8) for _ in range(ENTRIES)]
        self._kv = [tensor.numpy() for tensor in self.tensors]
        self._rows = []
        for address, length, row in metadata:
            array = np.ctypeslib.as_array((ctypes.c_uint8 * length).from_address(address)).reshape(-1, row)
            array[:] = FREE
            self._rows.append(array)
        self._free = list(range(PAGES))
        self._slots = list(range(SLOTS))
        self._random = random.Random(rank * 2 + ranks)
        self.stray = 0

    def allocate(self, count: int) -> tuple[np.ndarray, int]:
        """Pages, partly neighbours and partly not, and a row of metadata."""
        if self._random.random() < 0.5:
            self._random.shuffle(self._free)
        else:
            self._free.sort()
        pages, self._free = self._free[:count], self._free[count:]
        slot = self._slots.pop(self._random.randrange(len(self._slots)))
        taken = np.array(pages, dtype=np.int32)
        self.stray += sum(np.count_nonzero(kv[taken] != FREE) for kv in self._kv)
        self.stray += sum(np.count_nonzero(rows[slot] != FREE) for rows in self._rows)
        return taken, slot

    def release(self, pages: np.ndarray, slot: int) -> None:
        for kv in self._kv:
            kv[pages] = FREE
        for rows in self._rows:
            rows[slot] = FREE
        self._free.extend(pages.tolist())
        self._slots.append(slot)

    def fill(self, room: int, pages: np.ndarray, slot: int, spoiled: Optional[int] = None) -> None:
        """What a forward pass would have written. ``spoiled``: this many bytes of the first page are made wrong."""
        for entry, kv in enumerate(self._kv):
            kv[pages] = self._expected(room, entry, len(pages))
        for number, rows in enumerate(self._rows):
            rows[slot] = _content(room, ENTRIES + number, rows[slot].shape)
        if spoiled:
            self._kv[0][pages[0]].reshape(-1)[:spoiled] ^= 1

    def wrong(self, room: int, pages: np.ndarray, slot: int) -> int:
        """How many bytes of a request are not what they must be."""
        count = sum(
            np.count_nonzero(kv[pages] != self._expected(room, entry, len(pages))) for entry, kv in enumerate(self._kv)
        )
        for number, rows in enumerate(self._rows):
            count += np.count_nonzero(rows[slot] != _content(room, ENTRIES + number, rows[slot].shape))
        return int(count)

    def touched(self, pages: np.ndarray) -> bool:
        """Whether anything has been written to these pages since they were free."""
        return any(bool((kv[pages] != FREE).any()) for kv in self._kv)

    def check_free(self) -> int:
        """Bytes written to free pages and rows, in all."""
        self.stray += sum(np.count_nonzero(kv[self._free] != FREE) for kv in self._kv)
        self.stray += sum(np.count_nonzero(rows[self._slots] != FREE) for rows in self._rows)
        return int(self.stray)

    def _expected(self, room: int, entry: int, pages: int) -> np.ndarray:
        return _content(room, entry, (pages, PAGE_TOKENS, HEADS, HEAD_BYTES))[:, :, self._heads]
