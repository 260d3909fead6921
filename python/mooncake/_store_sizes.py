# SPDX-License-Identifier: Apache-2.0
"""Sizes and flags as texts. Needs no library, so that programs can read a configuration without one."""

from __future__ import annotations

import re
from typing import Any

_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(?:I?B)?\s*", re.IGNORECASE | re.ASCII)


def parse_size(text: Any, name: str = "size") -> int:
    """Bytes of "16MB", "16 MB", "1.5GiB" or a plain number; units are powers of 1,024. ValueError for anything else."""
    match = _SIZE.fullmatch(str(text))
    if match is None:
        raise ValueError(f"{name}: {text!r} is no size such as 16777216, 16MB or 4GB")
    number = float(match[1]) if "." in match[1] else int(match[1])
    nbytes = int(number * _UNITS[match[2].upper()])
    if nbytes >= 2**64:
        raise ValueError(f"{name}: {text!r} is more than 64 bits hold")
    return nbytes


def parse_flag(value: Any, name: str) -> bool:
    """True of True, "true", "1", "yes", "on"; False of their opposites and "". ValueError for anything else."""
    lowered = str(value).strip().lower()
    if lowered in ("true", "1", "yes", "on"):
        return True
    if lowered in ("false", "0", "no", "off", ""):
        return False
    raise ValueError(f"{name}: {value!r} is neither true nor false")
