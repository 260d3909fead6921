# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the Python tests. Every test has a hard stop; whatever a test starts is gone after it."""

from __future__ import annotations

import pytest
import tidewire_testing
from tidewire_testing import Child


def pytest_collection_modifyitems(items):
    for item in items:
        if not any(item.iter_markers("timeout")):
            item.add_marker(pytest.mark.timeout(180))


@pytest.fixture
def engine_factory():
    """Makes engines; closes them all."""
    import tidewire

    made = []

    def make(*arguments, **options):
        engine = tidewire.Engine(*arguments, **options)
        made.append(engine)
        return engine

    yield make
    for engine in reversed(made):
        engine.close()


@pytest.fixture
def pair(engine_factory):
    """(initiator, target): two engines of this process."""
    return engine_factory(), engine_factory()


@pytest.fixture
def child_factory():
    """Makes child processes; ends them all."""
    made = []

    def make(setup="", **options):
        child = Child(setup, **options)
        made.append(child)
        return child

    yield make
    for child in made:
        child.kill()


__all__ = ["tidewire_testing"]
