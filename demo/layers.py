# SPDX-License-Identifier: Apache-2.0
"""The arithmetic that both models share: normalisation, rotary positions, causal attention. float32 throughout."""

from __future__ import annotations

import numpy as np

QUERY_BLOCK = 256  # queries that attention handles at once: bounds the score matrix for long prompts


def rms_norm(x: np.ndarray, weight: np.ndarray, epsilon: float = 1e-6) -> np.ndarray:
    """Root-mean-square normalisation over the last axis."""
    scale = np.sqrt(np.einsum("...i,...i->...", x, x) / np.float32(x.shape[-1]) + np.float32(epsilon))
    return x / scale[..., None] * weight


def silu(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-x))


def gelu_tanh(x: np.ndarray) -> np.ndarray:
    return np.float32(0.5) * x * (1 + np.tanh(np.float32(0.7978845608) * (x + np.float32(0.044715) * x * x * x)))


def rotate(x: np.ndarray, start: int, base: float) -> np.ndarray:
    """Rotary positions for x (tokens, heads, head dim), whose first token has position `start`."""
    half = x.shape[-1] // 2
    frequencies = base ** (-np.arange(half) / half)
    angles = np.arange(start, start + len(x))[:, None] * frequencies
    cos = np.cos(angles).astype(np.float32)[:, None, :]
    sin = np.sin(angles).astype(np.float32)[:, None, :]
    low, high = x[..., :half], x[..., half:]
    return np.concatenate((low * cos - high * sin, high * cos + low * sin), axis=-1)


def attend(
    queries: np.ndarray,
    keys: np.ndarray,
    values: np.ndarray,
    query_start: int,
    key_start: int,
    scale: float,
    window: int | None = None,
) -> np.ndarray:
    """Causal attention with grouped heads.

    queries (tokens, heads, head dim) start at position query_start; keys and values (tokens, KV heads, head dim) at
    position key_start. A query sees keys at its own position and before, at most `window` of them. Returns
    (tokens, heads * head dim).
    """
    count, heads, dim = queries.shape
    kv_heads = keys.shape[1]
    group = heads // kv_heads
    result = np.empty((count, heads, dim), dtype=np.float32)
    for begin in range(0, count, QUERY_BLOCK):
        end = min(begin + QUERY_BLOCK, count)
        positions = np.arange(begin, end) + query_start
        stop = positions[-1] + 1 - key_start
        first = 0 if window is None else max(0, positions[0] + 1 - window - key_start)
        key_positions = np.arange(first, stop) + key_start
        hidden = key_positions[None, :] > positions[:, None]
        if window is not None:
            hidden |= key_positions[None, :] <= positions[:, None] - window
        bias = np.where(hidden, np.float32(-np.inf), np.float32(0))[:, None, :] if hidden.any() else None
        for head in range(kv_heads):
            mine = slice(head * group, (head + 1) * group)
            block = queries[begin:end, mine].reshape(-1, dim) * np.float32(scale)
            scores = (block @ keys[first:stop, head].T).reshape(end - begin, group, -1)
            if bias is not None:
                scores += bias
            scores -= scores.max(axis=-1, keepdims=True)
            np.exp(scores, out=scores)
            total = scores.sum(axis=-1)
            mixed = scores.reshape(-1, stop - first) @ values[first:stop, head]
            result[begin:end, mine] = mixed.reshape(end - begin, group, dim) / total[..., None]
    return result.reshape(count, heads * dim)
