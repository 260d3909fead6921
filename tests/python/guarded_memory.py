# SPDX-License-Identifier: Apache-2.0
"""Memory between canaries, to show writes beside it."""

from __future__ import annotations

import numpy as np

CANARY = 64


def guarded(nbytes: int) -> tuple[np.ndarray, np.ndarray]:
    """(whole, inner): ``inner`` of ``nbytes`` zeros between canaries of 0xA5."""
    whole = np.full(nbytes + 2 * CANARY, 0xA5, np.uint8)
    inner = whole[CANARY : CANARY + nbytes]
    inner[:] = 0
    return whole, inner


def canaries_hold(whole: np.ndarray) -> bool:
    return bool((whole[:CANARY] == 0xA5).all() and (whole[-CANARY:] == 0xA5).all())
