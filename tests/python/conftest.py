# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the Python tests. Every test has a hard stop; whatever a test starts is gone after it."""

from __future__ import annotations

import os
import signal

import pytest
import tidewire_testing
from tidewire_testing import Child

# A run in the background of a shell ignores Ctrl-C, and so would every program that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


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


class Stuck:
    """Transfers to a stopped process: they run until their deadline, or until ``go_on`` lets that process run."""

    def __init__(self, engine, child, nbytes):
        self.engine, self.child, self.nbytes = engine, child, nbytes
        self.address, self.base = child.eval("[engine.address, region.address]")
        self.peer = engine.open(self.address)
        self.memory = bytearray(nbytes)
        self.region = engine.register(self.memory)
        engine.write(self.peer, self.region, self.base).wait()
        os.kill(child.pid, signal.SIGSTOP)

    def write(self, deadline=60.0):
        return self.engine.write(self.peer, self.region, self.base, deadline=deadline)

    def go_on(self):
        os.kill(self.child.pid, signal.SIGCONT)


@pytest.fixture
def stuck(engine_factory, child_factory):
    nbytes = 32 << 20
    settings = {"same_host": False, "lane.stall_timeout": "60s"}
    child = child_factory(tidewire_testing.target(nbytes, "settings={'same_host': False}"))
    engine = engine_factory(settings=settings)
    made = Stuck(engine, child, nbytes)
    yield made
    made.go_on()
