# SPDX-License-Identifier: Apache-2.0
"""Gemma 3 270M in numpy, with its real weights, on the demonstration's own paged KV cache.

Five layers of six see only the last 512 tokens; every sixth sees all of them, with a longer rotary base. Queries and
keys are normalised per head, and each block is normalised before and after.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from demo import gemma_weights
from demo.gemma_tokenizer import GemmaTokenizer
from demo.kv import KvGeometry
from demo.layers import attend, gelu_tanh, rms_norm, rotate

GLOBAL_EVERY = 6  # layers 5, 11, 17 attend to everything
LOCAL_ROPE_BASE = 10_000.0


class GemmaModel:
    """18 layers, four heads over one KV head of 256. 18 KiB of KV cache a token. The text model, not the chat model:
    it continues what it reads."""

    prefix = 1  # the beginning-of-text token

    def __init__(self):
        index, self._tensors = gemma_weights.load()
        self._heads, self._kv_heads, self._head_dim = index["heads"], index["kv_heads"], index["head_dim"]
        self._width, self._window, self._epsilon = index["width"], index["window"], index["epsilon"]
        self._rope_base = index["rope_base"]
        self.geometry = KvGeometry(index["layers"], self._kv_heads, self._head_dim)
        self._tokenizer = GemmaTokenizer(index["pieces"], index["scores"], index["types"], index["bos"])

    def encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text)

    def decode(self, tokens: Sequence[int]) -> str:
        return self._tokenizer.decode(tokens)

    def prefill(self, tokens, cache, table, on_layer=lambda layer: None) -> int:
        return self._forward(np.asarray(tokens), 0, cache, table, on_layer)

    def step(self, token, position, cache, table) -> int:
        return self._forward(np.array([token]), position, cache, table, lambda layer: None)

    def _forward(self, tokens, start, cache, table, on_layer) -> int:
        stop = start + len(tokens)
        embedding = self._tensors["token_embd.weight"]
        x = embedding[tokens] * np.float32(self._width**0.5)
        for layer in range(self.geometry.layers):

            def weight(name: str, layer: int = layer) -> np.ndarray:
                return self._tensors[f"blk.{layer}.{name}.weight"]

            def norm(value: np.ndarray, name: str) -> np.ndarray:
                return rms_norm(value, weight(name), self._epsilon)

            everything = layer % GLOBAL_EVERY == GLOBAL_EVERY - 1
            base = self._rope_base if everything else LOCAL_ROPE_BASE
            window = None if everything else self._window

            h = norm(x, "attn_norm")
            queries = (h @ weight("attn_q").T).reshape(-1, self._heads, self._head_dim)
            keys = (h @ weight("attn_k").T).reshape(-1, self._kv_heads, self._head_dim)
            values = (h @ weight("attn_v").T).reshape(-1, self._kv_heads, self._head_dim)
            queries = rotate(norm(queries, "attn_q_norm"), start, base)
            keys = rotate(norm(keys, "attn_k_norm"), start, base)
            cache.write(layer, table, start, keys, values)
            on_layer(layer)

            first = 0 if everything else max(0, start + 1 - self._window)
            keys, values = cache.gather(layer, table, first, stop)
            mixed = attend(queries, keys, values, start, first, self._head_dim**-0.5, window)
            x = x + norm(mixed @ weight("attn_output").T, "post_attention_norm")
            h = norm(x, "ffn_norm")
            inner = gelu_tanh(h @ weight("ffn_gate").T) * (h @ weight("ffn_up").T)
            x = x + norm(inner @ weight("ffn_down").T, "post_ffw_norm")
        last = rms_norm(x[-1], self._tensors["output_norm.weight"], self._epsilon)
        return int(np.argmax(embedding @ last))
