# SPDX-License-Identifier: Apache-2.0
"""Stands in for torchvision, whose builds must fit torch's to the letter. SGLang imports it for pictures only."""

from __future__ import annotations

import sys
from types import ModuleType

from transformers.utils import is_torchvision_available


class _Empty(ModuleType):
    """A module of which any name can be imported."""

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


def install() -> None:
    # The answer is kept: Transformers shall go on without torchvision, as it can.
    if not is_torchvision_available():
        for name in ("torchvision", "torchvision.transforms", "torchvision.transforms.functional"):
            sys.modules[name] = _Empty(name)
