# SPDX-License-Identifier: Apache-2.0
"""Options that force one transport. A test that takes ``transport`` runs over each: no fall-back hides a fault."""

from __future__ import annotations

from typing import Any

import pytest

TRANSPORTS: dict[str, dict[str, Any]] = {
    "shm": {"protocol": "shm"},
    "tcp": {"protocol": "tcp", "settings": {"same_host": False}},
}

over_both = pytest.mark.parametrize("transport", TRANSPORTS)


def options(transport: str) -> str:
    """The options as source text, for a child's ``tidewire.Engine(...)``."""
    return ", ".join(f"{name}={value!r}" for name, value in TRANSPORTS[transport].items())
