# SPDX-License-Identifier: Apache-2.0
"""vLLM's MooncakeStoreConnector: each row of what it calls and needs."""

from __future__ import annotations

import threading

import pytest
from mooncake.store import MooncakeDistributedStore, ReplicaStatus, ReplicateConfig
from store_cluster import Pages, all_zero, client_setup, is_zero, setup_arguments
from tidewire_testing import HARD_STOP

pytest_plugins = ["store_fixtures"]


def test_vllm_sets_up_with_seven_arguments_and_closes(master):
    store = MooncakeDistributedStore()
    assert is_zero(store.setup(*setup_arguments(master)))
    name = store.get_hostname().encode()
    assert name in master.get("/get_all_segments")[1]
    assert is_zero(store.close())
    assert name not in master.get("/get_all_segments")[1]


def test_vllm_puts_and_gets_blocks_of_many_layers(store):
    layers, blocks, nbytes = 10, 8, 1024
    written, read = (Pages(store, layers * blocks, nbytes, seed=seed) for seed in (1, None))
    keys = [f"model@tp0@{block:064x}" for block in range(blocks)]
    pointers = [written.pointers[block::blocks] for block in range(blocks)]
    into = [read.pointers[block::blocks] for block in range(blocks)]
    sizes = [[nbytes] * layers] * blocks
    assert store.batch_is_exist(keys) == [0] * blocks
    assert all_zero(store.batch_put_from_multi_buffers(keys, pointers, sizes, ReplicateConfig()), blocks)
    assert store.batch_is_exist(keys) == [1] * blocks
    assert store.batch_get_into_multi_buffers(keys, into, sizes) == [layers * nbytes] * blocks
    assert (read.memory == written.memory).all()


def test_a_full_store_is_back_pressure(hasty_store_factory):
    store = hasty_store_factory(segment=16 << 20)
    pages = Pages(store, 8, 4 << 20, seed=2)
    config = ReplicateConfig()
    config.with_hard_pin = True  # nothing may be evicted for the others
    results = [
        store.batch_put_from_multi_buffers([key], [[pointer]], [[4 << 20]], config)
        for key, pointer in zip(pages.keys, pages.pointers)
    ]
    assert results[0] == [0] and results[-1] == [-200]
    stored = [result == [0] for result in results]
    assert store.batch_is_exist(pages.keys) == [int(is_there) for is_there in stored]
    # What is given back can be had again.
    assert store.remove(pages.keys[0], force=True) == 0
    assert store.put_from(pages.keys[-1], pages.pointers[-1], 1 << 20, config) == 0


def test_a_cache_that_is_full_makes_room(store_factory):
    store = store_factory(segment=32 << 20)
    pages = Pages(store, 64, 2 << 20, seed=3)
    for key, pointer in zip(pages.keys, pages.pointers):
        assert store.put_from(key, pointer, 2 << 20) == 0
    found = store.batch_is_exist(pages.keys)
    assert found[-1] == 1 and 0 < sum(found) < 64


def test_a_get_that_fails_is_negative(store):
    pages = Pages(store, 2, seed=4)
    assert store.batch_put_from(pages.keys[:1], pages.pointers[:1], pages.sizes[:1]) == [0]
    results = store.batch_get_into_multi_buffers(pages.keys, [[p] for p in pages.pointers], [[4096]] * 2)
    assert results == [4096, -704]


def test_replicas_are_described(store):
    pages = Pages(store, 2, seed=5)
    store.batch_put_from(pages.keys, pages.pointers, pages.sizes)
    found = store.batch_get_replica_desc([*pages.keys, "missing"])
    assert list(found) == [*pages.keys, "missing"] and found["missing"] == []
    for key in pages.keys:
        (replica,) = found[key]
        assert replica.is_memory_replica() is True
        assert replica.is_disk_replica() is False and replica.is_local_disk_replica() is False
        assert replica.status is ReplicaStatus.COMPLETE
        place = replica.get_memory_descriptor().buffer_descriptor
        assert place.size == 4096 and place.buffer_address > 0
        assert place.transport_endpoint == store.get_hostname()
        with pytest.raises(RuntimeError):
            replica.get_disk_descriptor()
    assert [replica.is_memory_replica() for replica in store.get_replica_desc(pages.keys[0])] == [True]
    assert store.get_replica_desc("missing") == []


def test_remove_all_by_force_removes_what_is_being_read(store):
    assert store.put("leased", b"value") == 0
    buffer = store.get_buffer("leased")
    assert store.remove_all(force=True) == 1
    assert store.is_exist("leased") == 0 and bytes(buffer) == b"value"


def test_a_preferred_segment_gets_the_object(store, master, child_factory):
    child = child_factory(client_setup(master))
    elsewhere = child.eval("store.get_hostname()")
    for name in (elsewhere, store.get_hostname()):
        config = ReplicateConfig()
        config.preferred_segment = name
        assert store.put(f"on-{name}", b"value" * 100, config) == 0
        (replica,) = store.get_replica_desc(f"on-{name}")
        assert replica.get_memory_descriptor().buffer_descriptor.transport_endpoint == name
        assert store.get(f"on-{name}") == b"value" * 100
    config.preferred_segment, config.preferred_segments = "", [elsewhere]
    assert store.put("in-list", b"value", config) == 0
    (replica,) = store.get_replica_desc("in-list")
    assert replica.get_memory_descriptor().buffer_descriptor.transport_endpoint == elsewhere
    assert child.finish() == 0


def test_replicas_lie_on_different_segments(store, master, child_factory):
    child = child_factory(client_setup(master))
    config = ReplicateConfig()
    config.replica_num = 2
    assert store.put("twice", b"value" * 1000, config) == 0
    replicas = store.get_replica_desc("twice")
    names = {replica.get_memory_descriptor().buffer_descriptor.transport_endpoint for replica in replicas}
    assert names == {store.get_hostname(), child.eval("store.get_hostname()")}
    child.kill()  # one of the two is gone, the bytes are not
    assert store.get("twice") == b"value" * 1000


def test_threads_share_a_store(store):
    threads_count, rounds, wrong = 8, 20, []

    def work(index):
        written = Pages(store, 8, 4096, seed=100 + index, prefix=f"thread-{index}")
        read = Pages(store, 8, 4096)
        for _ in range(rounds):
            done = [
                store.batch_put_from(written.keys, written.pointers, written.sizes),
                store.batch_get_into(written.keys, read.pointers, read.sizes),
                store.batch_remove(written.keys, force=True),
            ]
            if done != [[0] * 8, [4096] * 8, [0] * 8] or (read.memory != written.memory).any():
                wrong.append((index, done))
            read.memory[:] = 0

    threads = [threading.Thread(target=work, args=(index,)) for index in range(threads_count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HARD_STOP)
        assert not thread.is_alive()
    assert not wrong
