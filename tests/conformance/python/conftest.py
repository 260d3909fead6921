# SPDX-License-Identifier: Apache-2.0
"""The fixtures of tests/python, and those of the interfaces that frameworks use."""

from __future__ import annotations

import gc
import importlib.util
import sys
from pathlib import Path

import pytest

_PYTHON_TESTS = Path(__file__).resolve().parents[2] / "python"
sys.path.insert(0, str(_PYTHON_TESTS))

_spec = importlib.util.spec_from_file_location("tidewire_python_fixtures", _PYTHON_TESTS / "conftest.py")
_module = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_module)

pytest_collection_modifyitems = _module.pytest_collection_modifyitems
child_factory = _module.child_factory
engine_factory = _module.engine_factory
pair = _module.pair
stuck = _module.stuck


@pytest.fixture
def sides():
    """(initiator, target): two engines of this process, each with a registered array."""
    from mooncake_sides import Side

    made = Side(), Side()
    yield made
    del made
    gc.collect()


@pytest.fixture
def remote(child_factory):
    """A target process; (child, session id, base address, nbytes)."""
    from mooncake_sides import HOST, TARGET

    nbytes = 8 << 20
    child = child_factory(TARGET.format(nbytes=nbytes))
    port, base = child.eval("[engine.get_rpc_port(), memory.ctypes.data]")
    return child, f"{HOST}:{port}", base, nbytes
