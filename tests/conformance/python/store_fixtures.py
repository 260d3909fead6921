# SPDX-License-Identifier: Apache-2.0
"""The fixtures of the tests of ``mooncake.store``: ``pytest_plugins = ["store_fixtures"]``."""

from __future__ import annotations

import socket

import pytest
from store_cluster import HOST, LOCAL_BUFFER, SEGMENT, Master, setup_arguments


@pytest.fixture(scope="module")
def master():
    """A master that the tests of a module share; its objects are those of the test that runs."""
    made = Master()
    yield made
    made.stop()


@pytest.fixture(scope="module")
def hasty_master():
    """A master whose readers' leases end soon: what is removed under one can be written over soon after."""
    made = Master("--default_kv_lease_ttl", "100")
    yield made
    made.stop()


@pytest.fixture
def store_factory(master):
    """Makes stores that are set up; empties and closes them."""
    yield from stores_of(master)


@pytest.fixture
def hasty_store_factory(hasty_master):
    """The same, of the hasty master."""
    yield from stores_of(hasty_master)


def stores_of(master):
    from mooncake.store import MooncakeDistributedStore

    made = []

    def make(segment=SEGMENT, local_buffer=LOCAL_BUFFER, **options):
        store = MooncakeDistributedStore()
        assert store.setup(*setup_arguments(master, segment, local_buffer), **options) == 0
        made.append(store)
        return store

    yield make
    for store in reversed(made):
        store.remove_all(force=True)
        store.close()


@pytest.fixture
def store(store_factory):
    """A store that lends memory."""
    return store_factory()


@pytest.fixture
def free_port():
    """A port of this host that nobody listened on a moment ago."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return probe.getsockname()[1]
