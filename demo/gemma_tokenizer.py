# SPDX-License-Identifier: Apache-2.0
"""Gemma's tokenizer: byte-pair merging by score, as SentencePiece does it, over the vocabulary in the GGUF file."""

from __future__ import annotations

import heapq
import re
from collections.abc import Sequence

SPACE = "\u2581"  # how the vocabulary writes a blank
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6


class GemmaTokenizer:
    """Immutable after construction."""

    def __init__(self, pieces: Sequence[str], scores: Sequence[float], types: Sequence[int], bos: int):
        self._pieces = pieces
        self._scores = scores
        self._types = types
        self._bos = bos
        self._ids = {piece: token for token, piece in enumerate(pieces) if types[token] in (NORMAL, USER_DEFINED)}
        self._bytes = {int(piece[1:-1], 16): token for token, piece in enumerate(pieces) if types[token] == BYTE}
        # Runs of line feeds and blanks, HTML tags and the like are whole tokens: they are cut out before any merging.
        defined = sorted((pieces[t] for t, kind in enumerate(types) if kind == USER_DEFINED), key=len, reverse=True)
        self._defined = re.compile("|".join(re.escape(piece) for piece in defined)) if defined else None

    def encode(self, text: str) -> list[int]:
        """Tokens of a text, the beginning-of-text token first."""
        tokens = [self._bos]
        position = 0
        for match in self._defined.finditer(text) if self._defined else ():
            tokens += self._merge(text[position : match.start()])
            tokens.append(self._ids[match.group()])
            position = match.end()
        return tokens + self._merge(text[position:])

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of tokens; control tokens have none."""
        out = bytearray()
        for token in tokens:
            kind = self._types[token]
            if kind == BYTE:
                out.append(int(self._pieces[token][1:-1], 16))
            elif kind != CONTROL:
                out += self._pieces[token].replace(SPACE, " ").encode()
        return out.decode(errors="replace")

    def _merge(self, text: str) -> list[int]:
        """Merges neighbours, the best-scored pair first and the leftmost among equals, until no pair is a piece."""
        symbols = list(text.replace(" ", SPACE))
        before = list(range(-1, len(symbols) - 1))
        after = list(range(1, len(symbols) + 1))
        queue: list[tuple[float, int, str]] = []

        def offer(left: int) -> None:
            right = after[left]
            if left >= 0 and right < len(symbols):
                pair = symbols[left] + symbols[right]
                token = self._ids.get(pair)
                if token is not None:
                    heapq.heappush(queue, (-self._scores[token], left, pair))

        for left in range(len(symbols)):
            offer(left)
        while queue:
            _, left, pair = heapq.heappop(queue)
            right = after[left] if symbols[left] else len(symbols)
            if right >= len(symbols) or symbols[left] + symbols[right] != pair:
                continue  # one of the two has been merged with another neighbour meanwhile
            symbols[left], symbols[right] = pair, ""
            after[left] = after[right]
            if after[left] < len(symbols):
                before[after[left]] = left
            if before[left] >= 0:
                offer(before[left])
            offer(left)
        tokens = []
        for symbol in filter(None, symbols):
            token = self._ids.get(symbol)
            tokens += [token] if token is not None else [self._bytes[byte] for byte in symbol.encode()]
        return tokens
