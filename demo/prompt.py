# SPDX-License-Identifier: Apache-2.0
"""Prompts of a wanted length, cut from the texts in demo/prompts."""

from __future__ import annotations

from pathlib import Path

from demo.model import Model

FOLDER = Path(__file__).resolve().parent / "prompts"


def prompt_tokens(model: Model, length: int, ending: int = 0) -> list[int]:
    """`length` tokens that end where one of the texts ends, so that there is something to continue.

    ending chooses that text (modulo their number); the others stand before it, as often as needed.
    """
    if length <= model.prefix:
        raise ValueError(f"a prompt needs at least {model.prefix + 1} tokens, not {length}")
    texts = [path.read_text().strip() for path in sorted(FOLDER.glob("*.txt"))]
    last = ending % len(texts)
    texts = texts[last + 1 :] + texts[: last + 1]
    tokens = model.encode("\n\n".join(texts))
    start, body = tokens[: model.prefix], tokens[model.prefix :]
    while len(body) < length:
        body = body + model.encode("\n\n")[model.prefix :] + body
    return start + body[len(body) - (length - model.prefix) :]
