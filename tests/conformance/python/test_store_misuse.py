# SPDX-License-Identifier: Apache-2.0
"""Hostile arguments of ``mooncake.store``: they fail, change nothing and reach no other key."""

from __future__ import annotations

import numpy as np
import pytest
from mooncake.store import MooncakeDistributedStore, ReplicateConfig
from store_cluster import Pages, is_zero
from tidewire_testing import pattern

pytest_plugins = ["store_fixtures"]


def test_nothing_works_before_setup_and_nothing_raises(caplog):
    store = MooncakeDistributedStore()
    assert store.get("k") == b"" and store.get_batch(["k", "l"]) == [b""]
    assert store.get_buffer("k") is None and store.batch_get_buffer(["k"]) == [None]
    assert store.get_hostname() == "" and store.alloc_from_mem_pool(1) == 0
    assert store.get_replica_desc("k") == [] and store.batch_get_replica_desc(["k"]) == {"k": []}
    assert store.batch_replica_clear(["k"]) == [] and store.get_tensor("k") is None
    assert store.mount_segment("/dev/shm/x", 4096) == {"ret": -600, "segment_ids": []}
    for result in [
        store.put("k", b"v"),
        store.put_parts("k", b"v"),
        store.put_batch(["k"], [b"v"]),
        store.put_from("k", 4096, 1),
        store.upsert("k", b"v"),
        store.is_exist("k"),
        store.get_size("k"),
        store.get_into("k", 4096, 1),
        store.remove("k"),
        store.remove_all(),
        store.remove_by_regex("k"),
        store.register_buffer(4096, 4096),
        store.unregister_buffer(4096),
        store.batch_get_session_end(["k"]),
        store.unmount_segment(["1"]),
    ]:
        assert result == -600
    for results in [
        store.batch_is_exist(["k"]),
        store.batch_put_from(["k"], [4096], [1]),
        store.batch_get_into(["k"], [4096], [1]),
        store.batch_remove(["k"]),
        store.batch_put_session_start(["k"], [1]),
        store.batch_put_session_end(["k"]),
        store.batch_get_session_start(["k"]),
        store.batch_put_from_multi_buffers(["k"], [[4096]], [[1]]),
    ]:
        assert results == [-600]
    assert is_zero(store.close()) and "setup()" in caplog.text


@pytest.mark.parametrize(
    "call",
    [
        lambda s: s.put(5, b"v"),
        lambda s: s.put("k", "text"),
        lambda s: s.put("k", 5),
        lambda s: s.put("k", None),
        lambda s: s.put("k", b"v", "config"),
        lambda s: s.put("\ud800", b"v"),
        lambda s: s.put_batch("keys", [b"v"]),
        lambda s: s.put_batch(["k"], b"v"),
        lambda s: s.put_batch(["k"], ["text"]),
        lambda s: s.put_from("k", "address", 1),
        lambda s: s.put_from("k", -1, 1),
        lambda s: s.put_from("k", 1, 2**64),
        lambda s: s.put_from("k", 1.0, 1),
        lambda s: s.batch_put_from(["k"], 1, [1]),
        lambda s: s.batch_put_from(["k"], [1], [-1]),
        lambda s: s.batch_put_from([5], [1], [1]),
        lambda s: s.batch_put_from_multi_buffers(["k"], [1], [[1]]),
        lambda s: s.batch_put_from_multi_buffers(["k"], [["a"]], [[1]]),
        lambda s: s.batch_get_into({"k": 1}, [1], [1]),
        lambda s: s.get(5),
        lambda s: s.get_batch("keys"),
        lambda s: s.is_exist(None),
        lambda s: s.batch_is_exist(None),
        lambda s: s.get_into_ranges([1], [["k"]], [[0]], [[0]], [[1]]),
        lambda s: s.register_buffer("address", 1),
        lambda s: s.setup("host"),
        lambda s: s.setup("host", "P2PHANDSHAKE", "16MB", 0, "tcp", "", "127.0.0.1:1"),
        lambda s: s.setup("host", "P2PHANDSHAKE", 1, 1, "tcp", "", "127.0.0.1:1", "engine"),
        lambda s: s.setup({"local_hostname": "host"}, "P2PHANDSHAKE"),
        lambda s: s.setup(config=5),
    ],
)
def test_wrong_types_are_type_errors(store, call):
    with pytest.raises(TypeError):
        call(store)


def test_lists_of_different_lengths_are_refused_as_a_whole(store):
    pages = Pages(store, 3, seed=1)
    keys, pointers, sizes = pages.keys, pages.pointers, pages.sizes
    assert store.batch_put_from(keys, pointers[:2], sizes) == [-600] * 3
    assert store.batch_put_from(keys, pointers, sizes[:2]) == [-600] * 3
    assert store.put_batch(keys, [b"v"] * 2) == -600
    assert store.batch_put_from_multi_buffers(keys, [[p] for p in pointers], [[4096]] * 2 + [[1, 2]]) == [-600] * 3
    assert store.batch_put_from_multi_buffers(keys, [[p] for p in pointers[:2]], [[4096]] * 2) == [-600] * 3
    config = ReplicateConfig()
    config.group_ids = ["one"]
    assert store.batch_put_from(keys, pointers, sizes, config) == [-600] * 3
    assert store.batch_put_session_start(keys, sizes[:2]) == [-600] * 3
    assert store.batch_is_exist(keys) == [0] * 3
    assert store.get_into_ranges(pointers[:1], [keys[:2]], [[[0]]], [[[0]]], [[[1]]]) == [[[-600]]]


def test_empty_lists_do_nothing(store):
    assert store.batch_put_from([], [], []) == [] == store.batch_get_into([], [], [])
    assert store.batch_is_exist([]) == [] == store.batch_remove([]) == store.batch_get_buffer([])
    assert store.put_batch([], []) == 0 and store.batch_get_replica_desc([]) == {}
    assert store.batch_put_from_multi_buffers([], [], []) == [] and store.batch_get_session_end([]) == 0
    assert store.get_into_ranges([], [], [], [], []) == []


def test_ranges_outside_of_an_object_fail_and_write_nothing(store):
    assert is_zero(store.put("k", b"0123456789"))
    memory = np.zeros(64, np.uint8)
    for offset, size in [(0, 11), (10, 1), (5, 6), (2**63, 1), (2**64 - 1, 2), (1, 2**64 - 1)]:
        results = store.batch_get_into_multi_buffer_ranges(["k"], [[memory.ctypes.data]], [[size]], [[offset]])
        assert results[0] < 0, (offset, size)
    assert not memory.any()


def test_ranges_outside_of_a_put_session_fail(store):
    memory = pattern(2, 100)
    assert store.batch_put_session_start(["s", "empty"], [100, 0]) == [0, -600]
    for offset, size in [(0, 101), (100, 1), (2**64 - 1, 2)]:
        assert store.batch_put_from_multi_buffer_ranges(["s"], [[memory.ctypes.data]], [[size]], [[offset]])[0] < 0
    assert store.batch_put_from_multi_buffer_ranges(["never"], [[memory.ctypes.data]], [[1]], [[0]])[0] < 0
    assert store.batch_put_session_end(["never"])[0] < 0
    assert store.batch_put_session_revoke(["s"]) == [0]
    assert store.is_exist("s") == 0


def test_a_key_twice_in_a_batch(store):
    pages = Pages(store, 3, seed=3)
    keys = ["twin", "twin", "other"]
    assert store.batch_put_from(keys, pages.pointers, pages.sizes) == [0] * 3
    assert store.get("twin") in (bytes(pages.memory[0]), bytes(pages.memory[1]))
    assert store.batch_is_exist(keys) == [1] * 3


def test_keys_with_a_nul_are_keys_of_their_own(store):
    assert store.put("a", b"one") == 0
    first = store.put("a\0b", b"two")
    assert store.get("a") == b"one"
    assert store.get("a\0b") == (b"two" if first == 0 else b"")


def test_values_of_every_kind_with_a_buffer(store):
    numbers = np.arange(6, dtype=np.float32)
    values = [b"bytes", bytearray(b"array"), memoryview(b"view"), numbers, numbers.reshape(2, 3)]
    keys = [f"kind-{index}" for index in range(len(values))]
    assert is_zero(store.put_batch(keys, values))
    assert store.get_batch(keys) == [bytes(value) for value in values]
    assert store.put("strided", numbers[::2]) == -600


def test_a_value_may_change_once_the_put_has_returned(store):
    value = bytearray(b"before" * 1000)
    assert is_zero(store.put("k", value))
    value[:] = b"after!" * 1000
    assert store.get("k") == b"before" * 1000


def test_a_pattern_without_text_removes_nothing(store):
    assert is_zero(store.put("k", b"v"))
    assert store.remove_by_regex("", force=True) == -600
    assert store.is_exist("k") == 1


def test_device_memory_is_refused_by_name(store, caplog):
    import ctypes

    import tidewire
    from tidewire import _native

    region = ctypes.c_void_p()
    tidewire.check(_native.lib.tw_test_device_allocate(4096, ctypes.byref(region)))
    try:
        assert store.put_from("device", region.value, 4096) == -1012
        assert is_zero(store.put("host", b"x" * 4096))
        assert store.get_into("host", region.value, 4096) == -1012
        assert store.get("host") == b"x" * 4096 and store.is_exist("device") == 0
    finally:
        tidewire.check(_native.lib.tw_test_device_free(region))
