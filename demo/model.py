# SPDX-License-Identifier: Apache-2.0
"""The models behind one small interface, and the tiny one: a decoder-only transformer in numpy.

The tiny model has every part of a modern one (grouped KV heads, rotary positions, RMSNorm, SwiGLU) and deterministic
random weights: its text means nothing, but its tokens depend on every byte of the KV cache, which is what the
demonstration needs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from demo.kv import KvGeometry, PagedKvCache
from demo.layers import attend, rms_norm, rotate, silu


class Model(Protocol):
    """What prefill and decode need of a model. Not thread-safe."""

    geometry: KvGeometry
    prefix: int  # how many tokens encode() puts before those of the text

    def encode(self, text: str) -> list[int]:
        """Tokens of a text, including what the model wants at its beginning."""

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of tokens."""

    def prefill(
        self,
        tokens: Sequence[int],
        cache: PagedKvCache,
        table: np.ndarray,
        on_layer: Callable[[int], None] = lambda layer: None,
    ) -> int:
        """Computes the KV of a prompt into the pages of `table` and returns the next token.

        on_layer(layer) is called as soon as that layer's keys and values are final in the cache, while the rest of
        that layer and all later ones are still to be computed.
        """

    def step(self, token: int, position: int, cache: PagedKvCache, table: np.ndarray) -> int:
        """Appends one token at `position` to the cache and returns the next."""


class TinyModel:
    """Eight layers, four heads over two KV heads, one token for each byte. 4 KiB of KV cache a token."""

    LAYERS, WIDTH, HEADS, KV_HEADS, HEAD_DIM, INNER, VOCABULARY = 8, 256, 4, 2, 64, 704, 256
    ROPE_BASE = 10_000.0
    prefix = 0

    def __init__(self, seed: int = 20_260):
        self.geometry = KvGeometry(self.LAYERS, self.KV_HEADS, self.HEAD_DIM)
        random = np.random.default_rng(seed)

        def weights(inputs: int, outputs: int, gain: float = 1.0) -> np.ndarray:
            return random.standard_normal((inputs, outputs), dtype=np.float32) * np.float32(gain / inputs**0.5)

        query, kv = self.HEADS * self.HEAD_DIM, self.KV_HEADS * self.HEAD_DIM
        self._embedding = random.standard_normal((self.VOCABULARY, self.WIDTH), dtype=np.float32)
        self._layers = [
            {
                # A gain above 1 makes attention pick a few tokens instead of averaging over all of them.
                "q": weights(self.WIDTH, query, 2.0),
                "k": weights(self.WIDTH, kv, 2.0),
                "v": weights(self.WIDTH, kv),
                "o": weights(query, self.WIDTH),
                "gate": weights(self.WIDTH, self.INNER),
                "up": weights(self.WIDTH, self.INNER),
                "down": weights(self.INNER, self.WIDTH),
            }
            for _ in range(self.LAYERS)
        ]
        self._ones = np.ones(self.WIDTH, dtype=np.float32)
        self._head = weights(self.WIDTH, self.VOCABULARY)

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, tokens: Sequence[int]) -> str:
        return bytes(tokens).decode(errors="replace")

    def prefill(self, tokens, cache, table, on_layer=lambda layer: None) -> int:
        return self._forward(np.asarray(tokens), 0, cache, table, on_layer)

    def step(self, token, position, cache, table) -> int:
        return self._forward(np.array([token]), position, cache, table, lambda layer: None)

    def _forward(self, tokens, start, cache, table, on_layer) -> int:
        stop = start + len(tokens)
        x = self._embedding[tokens]
        for layer, w in enumerate(self._layers):
            h = rms_norm(x, self._ones)
            queries = rotate((h @ w["q"]).reshape(-1, self.HEADS, self.HEAD_DIM), start, self.ROPE_BASE)
            keys = rotate((h @ w["k"]).reshape(-1, self.KV_HEADS, self.HEAD_DIM), start, self.ROPE_BASE)
            values = (h @ w["v"]).reshape(-1, self.KV_HEADS, self.HEAD_DIM)
            cache.write(layer, table, start, keys, values)
            on_layer(layer)
            keys, values = cache.gather(layer, table, 0, stop)
            x = x + attend(queries, keys, values, start, 0, self.HEAD_DIM**-0.5) @ w["o"]
            h = rms_norm(x, self._ones)
            x = x + (silu(h @ w["gate"]) * (h @ w["up"])) @ w["down"]
        return int(np.argmax(rms_norm(x[-1], self._ones) @ self._head))


def load_model(name: str) -> Model:
    """"tiny" or "gemma"."""
    if name == "tiny":
        return TinyModel()
    if name == "gemma":
        from demo.gemma import GemmaModel

        return GemmaModel()
    raise ValueError(f"there is no model {name!r}: use tiny or gemma")


def generate(model: Model, first: int, length: int, count: int, cache: PagedKvCache, table: np.ndarray) -> list[int]:
    """`count` tokens, greedily: `first`, then what follows from a cache that holds `length` tokens."""
    tokens = [first]
    while len(tokens) < count:
        tokens.append(model.step(tokens[-1], length + len(tokens) - 1, cache, table))
    return tokens
