# SPDX-License-Identifier: Apache-2.0
"""The fixtures of tests/python, for the tests of the interfaces that frameworks use."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

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
