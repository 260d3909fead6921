# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the fault tests: those of the Python tests, and hosts."""

from __future__ import annotations

import itertools
import os
import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from fault_hosts import Host  # noqa: E402
from tidewire_testing import Child  # noqa: E402


def pytest_collection_modifyitems(items):
    for item in items:
        if not any(item.iter_markers("timeout")):
            item.add_marker(pytest.mark.timeout(180))


_numbers = itertools.count()


@pytest.fixture
def hosts(tmp_path):
    """Makes hosts; removes them all."""
    if os.geteuid() != 0 or not shutil.which("ip"):
        pytest.skip("network namespaces need root and iproute2")
    made = []

    def make() -> Host:
        host = Host(f"tw{os.getpid()}n{next(_numbers)}", tmp_path)
        made.append(host)
        return host

    yield make
    for host in made:
        host.remove()


@pytest.fixture
def engine_factory():
    """Makes engines; closes them all."""
    import tidewire

    made = []

    def make(*arguments, **options):
        made.append(tidewire.Engine(*arguments, **options))
        return made[-1]

    yield make
    for engine in reversed(made):
        engine.close()


@pytest.fixture
def child_factory():
    """Makes child processes; ends them all."""
    made = []

    def make(setup="", python=sys.executable, **env):
        made.append(Child(setup, python, **env))
        return made[-1]

    yield make
    for child in made:
        child.kill()


@pytest.fixture
def inside(child_factory):
    """inside(host, setup): a child process of the tests in a namespace."""

    def make(host: Host, setup: str = "", **env: str) -> Child:
        return child_factory(setup, python=host.python, **env)

    return make
