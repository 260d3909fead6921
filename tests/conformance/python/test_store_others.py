# SPDX-License-Identifier: Apache-2.0
"""LMCache and vLLM-Ascend: each row of what they call; and the methods that no framework of the tables calls."""

from __future__ import annotations

import asyncio
import ctypes

import numpy as np
import pytest
from mooncake.async_store import MooncakeDistributedStoreAsync
from mooncake.mooncake_config import MooncakeConfig
from mooncake.store import BufferHandle, MooncakeDistributedStore, ReplicateConfig
from store_cluster import HOST, Pages, all_zero, is_zero, setup_arguments
from tidewire_testing import pattern

pytest_plugins = ["store_fixtures"]


# -- LMCache --


def test_lmcache_names_the_client(store):
    host, _, port = store.get_hostname().rpartition(":")
    assert host == HOST and 0 < int(port) < 65536


def test_lmcache_puts_metadata_and_data_as_parts(store):
    metadata, data = b"\1\2\3\4" * 7, pattern(1, 100_000)
    assert is_zero(store.put_parts("parts", metadata, bytes(data)))
    assert store.get("parts") == metadata + bytes(data)
    kinds = [b"a", bytearray(b"bc"), memoryview(b"def"), np.frombuffer(b"ghij", np.uint8)]
    assert is_zero(store.put_parts("kinds", *kinds, config=ReplicateConfig()))
    assert store.get("kinds") == b"abcdefghij"


@pytest.mark.parametrize("part", ["text", 5, None, np.zeros((2, 2), np.uint8), memoryview(b"abcdef")[::2], ["a"]])
def test_a_part_that_is_no_row_of_bytes_is_a_runtime_error(store, part):
    with pytest.raises(RuntimeError, match="part 1"):
        store.put_parts("parts", b"good", part)
    assert store.is_exist("parts") == 0


def test_lmcache_puts_from_memory_with_a_configuration(store):
    pages = Pages(store, 1, 10_000, seed=2)
    assert is_zero(store.put_from(pages.keys[0], pages.pointers[0], 10_000, ReplicateConfig()))
    assert store.get(pages.keys[0]) == pages.memory.tobytes()
    assert is_zero(store.unregister_buffer(pages.pointers[0]))
    assert store.unregister_buffer(pages.pointers[0]) < 0


def test_lmcache_reads_buffers(store):
    values = [bytes(pattern(seed, 5000 + seed)) for seed in range(3)]
    keys = [f"buffer-{index}" for index in range(3)]
    assert is_zero(store.put_batch(keys, values))
    found = store.batch_get_buffer([keys[0], "missing", keys[1], keys[2]])
    assert found[1] is None
    for buffer, value in zip([found[0], *found[2:]], values):
        assert isinstance(buffer, BufferHandle)
        assert len(buffer) == buffer.size() == len(value)
        assert bytes(buffer) == value == bytes(memoryview(buffer))
        array = np.frombuffer(buffer, np.uint8)
        assert array.ctypes.data == buffer.ptr() and array.tobytes() == value
    assert store.get_buffer("missing") is None
    assert bytes(store.get_buffer(keys[0])) == values[0]


def test_a_buffer_stays_while_anything_looks_at_it(store):
    value = bytes(pattern(3, 100_000))
    assert is_zero(store.put("kept", value))
    view = memoryview(np.frombuffer(store.get_buffer("kept"), np.uint8))
    assert store.remove("kept", force=True) == 0
    for index in range(20):  # what might reuse the memory
        store.put(f"other-{index}", bytes(100_000))
    assert bytes(view) == value


def test_a_buffer_outlives_its_store(master):
    store = MooncakeDistributedStore()
    assert store.setup(*setup_arguments(master)) == 0
    value = bytes(pattern(4, 50_000))
    assert store.put("outlived", value) == 0
    buffer = store.get_buffer("outlived")
    name = store.get_hostname().encode()
    assert store.close() == 0
    assert store.get("outlived") == b"" and bytes(buffer) == value
    del buffer  # the last one lets the store go
    assert name not in master.get("/get_all_segments")[1]


def test_lmcache_uses_is_exist_as_a_truth_value(store):
    assert not store.is_exist("missing")
    assert is_zero(store.put("there", b"value"))
    assert store.is_exist("there")


# -- vLLM-Ascend --


def test_vllm_ascend_sets_up_by_keyword(master):
    names = MooncakeDistributedStore.setup.__doc__
    values = dict(
        zip(
            "local_hostname metadata_server global_segment_size local_buffer_size protocol rdma_devices "
            "master_server_addr".split(),
            setup_arguments(master),
        ),
        engine=None,
        enable_ssd_offload=False,
        ssd_offload_path="",
    )
    assert all(name in names for name in values)
    store = MooncakeDistributedStore()
    assert is_zero(store.setup(**values))
    assert is_zero(store.close())


# -- set-up of other kinds --


@pytest.mark.parametrize("by_keyword", [False, True])
def test_setup_with_a_dict(master, by_keyword):
    config = {
        "local_hostname": HOST,
        "metadata_server": "P2PHANDSHAKE",
        "global_segment_size": "16 MB",
        "local_buffer_size": 16 << 20,
        "master_server_addr": master.address,
        "enable_ssd_offload": False,
    }
    store = MooncakeDistributedStore()
    assert is_zero(store.setup(config=config) if by_keyword else store.setup(config))
    assert is_zero(store.put("k", b"v")) and store.remove_all(force=True) == 1
    assert is_zero(store.close())


@pytest.mark.parametrize(
    "changes, word",
    [
        ({"local_hostname": None}, "local_hostname"),
        ({"metadata_server": None}, "metadata_server"),
        ({"global_segment_size": "50%"}, "50%"),
        ({"global_segment_size": "-1"}, "global_segment_size"),
        ({"local_buffer_size": "much"}, "much"),
        ({"colour": "blue"}, "colour"),
        ({"enable_ssd_offload": "maybe"}, "maybe"),
        ({"ipc_socket_path": "/tmp/socket"}, "ipc_socket_path"),
    ],
)
def test_a_dict_that_is_wrong_is_refused_by_name(master, caplog, changes, word):
    config = {
        "local_hostname": HOST,
        "metadata_server": "P2PHANDSHAKE",
        "master_server_addr": master.address,
        **changes,
    }
    config = {key: value for key, value in config.items() if value is not None}
    assert MooncakeDistributedStore().setup(config) in (-600, -1012)
    assert word in caplog.text


def test_a_store_is_set_up_once_and_again_after_close(master, caplog):
    store = MooncakeDistributedStore()
    assert store.health_check() == 2
    assert is_zero(store.setup(*setup_arguments(master))) and store.health_check() == 0
    assert store.setup(*setup_arguments(master)) < 0 and "close()" in caplog.text
    assert is_zero(store.close()) and store.health_check() == 2 and is_zero(store.close())
    assert is_zero(store.setup(*setup_arguments(master))) and is_zero(store.put("again", b"v"))
    store.remove_all(force=True)
    assert is_zero(store.close())


def test_a_configuration_of_the_environment(master, monkeypatch):
    monkeypatch.delenv("MOONCAKE_CONFIG_PATH", raising=False)
    monkeypatch.setenv("MOONCAKE_MASTER", master.address)
    monkeypatch.setenv("MOONCAKE_LOCAL_HOSTNAME", HOST)
    monkeypatch.setenv("MOONCAKE_GLOBAL_SEGMENT_SIZE", "16MB")
    monkeypatch.setenv("MOONCAKE_LOCAL_BUFFER_SIZE", "16777216")
    config = MooncakeConfig.load_from_env()
    assert (config.metadata_server, config.protocol, config.global_segment_size) == ("P2PHANDSHAKE", "tcp", 16 << 20)
    store = MooncakeDistributedStore()
    assert is_zero(store.setup(**config.setup_arguments())) and is_zero(store.close())


# -- the methods beside --


def test_upserts_replace(store):
    pages = Pages(store, 2, seed=5)
    assert is_zero(store.put("u", b"old")) and is_zero(store.upsert("u", b"new bytes"))
    assert store.get("u") == b"new bytes" and store.get_size("u") == 9
    assert is_zero(store.upsert_parts("u", b"1", b"2")) and store.get("u") == b"12"
    assert is_zero(store.upsert_batch(["u", "v"], [b"a", b"b"])) and store.get_batch(["u", "v"]) == [b"a", b"b"]
    assert is_zero(store.upsert_from("u", pages.pointers[0], 10)) and store.get("u") == bytes(pages.memory[0, :10])
    assert all_zero(store.batch_upsert_from(["u", "v"], pages.pointers, [4096] * 2), 2)
    assert store.get_batch(["u", "v"]) == [bytes(row) for row in pages.memory]


def test_get_of_what_is_not_there_is_empty(store):
    assert is_zero(store.put("there", b"value"))
    assert store.get("missing") == b"" and store.get_batch(["missing", "there"]) == [b"", b"value"]
    assert store.get_batch([]) == [b""] and store.get_size("missing") == -704


def test_a_buffer_that_is_too_small_gets_nothing(store):
    assert is_zero(store.put("k", b"0123456789"))
    memory = np.zeros(32, np.uint8)
    assert store.get_into("k", memory.ctypes.data, 9) == -600 and not memory.any()
    assert store.get_into("k", memory.ctypes.data, 32) == 10
    assert bytes(memory) == b"0123456789" + bytes(22)


def test_metadata_comes_before_the_data(store):
    pages = Pages(store, 2, seed=6)
    assert is_zero(store.put_from_with_metadata("k", pages.pointers[0], pages.pointers[1], 4096, 16))
    assert store.get("k") == bytes(pages.memory[1, :16]) + bytes(pages.memory[0])


def test_ranges_of_objects_go_to_offsets_of_buffers(store):
    values = [bytes(pattern(seed, 1000)) for seed in range(3)]
    assert is_zero(store.put_batch(["a", "b", "c"], values))
    buffers = [np.zeros(1000, np.uint8) for _ in range(2)]
    results = store.get_into_ranges(
        [buffer.ctypes.data for buffer in buffers],
        [["a", "b"], ["c", "missing"]],
        [[[0, 100], [200]], [[0, 10, 20], [30]]],
        [[[500, 0], [999]], [[0, 995, 3], [0]]],
        [[[100, 50], [1]], [[10, 10, 5], [1]]],
    )
    assert results == [[[100, 50], [1]], [[10, -600, 5], [-704]]]
    first, second = map(bytes, buffers)
    assert first[:100] == values[0][500:600] and first[100:150] == values[0][:50] and first[200:201] == values[1][999:]
    assert second[:10] == values[2][:10] and second[20:25] == values[2][3:8] and not any(second[25:])


def test_removal(store):
    keys = [f"{group}-{index}" for group in ("keep", "drop") for index in range(3)]
    assert is_zero(store.put_batch(keys, [b"value"] * 6))
    assert store.remove("missing") == -704
    assert store.remove_by_regex("^drop-[01]$", force=True) == 2
    assert store.remove_by_regex("(", force=True) < 0
    assert store.batch_remove(["drop-2", "missing"], force=True) == [0, -704]
    assert store.batch_is_exist(keys) == [1, 1, 1, 0, 0, 0]
    assert store.remove_all(True) == 3


def test_a_reader_holds_an_object_for_a_while(store):
    assert is_zero(store.put("leased", b"value"))
    memory = np.zeros(8, np.uint8)
    assert store.get_into("leased", memory.ctypes.data, 8) == 5
    assert store.remove("leased") == -706
    assert is_zero(store.remove("leased", force=True))


def test_cleared_keys_are_named(store):
    assert is_zero(store.put_batch(["a", "b"], [b"1", b"2"]))
    assert store.batch_replica_clear(["a", "missing"]) == ["a"]
    assert store.batch_is_exist(["a", "b"]) == [0, 1]
    assert store.batch_replica_clear(["b"], "some:1") == []


def test_memory_is_lent_and_taken_back(store_factory, tmp_path):
    store = store_factory(segment=0)
    pages = Pages(store, 4, 1 << 20, seed=7)
    assert store.put_from(pages.keys[0], pages.pointers[0], 1 << 20) == -200
    file = tmp_path / "segment"
    file.write_bytes(bytes(16 << 20))
    mounted = store.mount_segment(str(file), 16 << 20)
    assert mounted["ret"] == 0 and len(mounted["segment_ids"]) == 1
    assert store.put_from(pages.keys[0], pages.pointers[0], 1 << 20) == 0
    allocated = store.allocate_and_mount_segment(size=16 << 20)
    assert allocated["ret"] == 0 and allocated["allocated_size"] == 16 << 20
    assert is_zero(store.unmount_segment(mounted["segment_ids"]))
    assert is_zero(store.unmount_and_free_segment(allocated["segment_ids"]))
    assert store.batch_is_exist(pages.keys) == [0] * 4
    assert store.unmount_segment(mounted["segment_ids"]) == -600
    assert store.unmount_segment(["no number"]) == -600
    assert store.mount_segment(str(tmp_path / "missing"), 4096)["ret"] == -600
    assert store.mount_segment(str(file), 17 << 20)["ret"] == -600
    assert store.unmount_segment([], grace_period_seconds=5) == -1012


def test_values_in_memory_of_the_pool(store):
    address = store.alloc_from_mem_pool(4096)
    assert address > 0 and store.alloc_from_mem_pool(1 << 60) == 0
    ctypes.memset(address, 3, 4096)
    assert is_zero(store.put_from("pool", address, 4096)) and store.get("pool") == b"\3" * 4096


@pytest.mark.parametrize(
    "call, answer",
    [
        (lambda s: s.init_all("tcp", "", 1 << 20), -1012),
        (lambda s: s.unmount_local_disk_segment(), -1012),
        (lambda s: s.get_offload_rpc_read_count(), -1012),
        (lambda s: s.create_copy_task("k", ["a:1"]), ((0, 0), -1012)),
        (lambda s: s.create_move_task("k", "a:1", "b:1"), ((0, 0), -1012)),
        (lambda s: s.query_task((0, 0)), (None, -1012)),
        (lambda s: s.save_tensor_to_safetensor("k"), -1012),
        (lambda s: s.load_tensor_from_safetensor("k", "file"), -1012),
        (lambda s: s.get_tensor_into_cuda("k", None), -1012),
        (lambda s: s.batch_get_tensor_into_cuda(["k"], [None]), [-1012]),
    ],
)
def test_what_is_not_there_says_so_by_name(store, caplog, call, answer):
    caplog.clear()
    assert call(store) == answer
    assert any(record.getMessage().partition(" ")[0] in dir(store) for record in caplog.records)


@pytest.mark.parametrize(
    "name, value", [("nof_replica_num", 1), ("dfs_replica_num", 1), ("preferred_nof_segments", ["a:1"])]
)
def test_a_field_of_the_configuration_that_is_not_supported_is_refused_by_name(store, caplog, name, value):
    config = ReplicateConfig()
    setattr(config, name, value)
    assert store.put("k", b"v", config) == -1012 and name in caplog.text
    assert store.batch_put_from(["k", "l"], [1, 2], [3, 4], config) == [-1012] * 2
    assert store.is_exist("k") == 0


def test_the_store_of_event_loops(master):
    async def work():
        store = MooncakeDistributedStoreAsync()
        assert await store.async_setup(*setup_arguments(master)) == 0
        keys = [f"async-{index}" for index in range(20)]
        assert await asyncio.gather(*(store.async_put(key, key.encode()) for key in keys)) == [0] * 20
        assert await store.async_get_batch(keys) == [key.encode() for key in keys]
        assert await store.async_put_parts("parts", b"a", b"b", config=ReplicateConfig()) == 0
        assert await store.async_remove_all(force=True) == 21
        return await store.async_close()

    assert asyncio.run(work()) == 0


@pytest.mark.timeout(600)
def test_sizes_past_four_gibibytes(store_factory):
    with open("/proc/meminfo") as file:
        available = int(next(line for line in file if line.startswith("MemAvailable")).split()[1]) << 10
    nbytes = (4 << 30) + 4096
    if available < 3 * nbytes:
        pytest.skip(f"needs {3 * nbytes} bytes of memory, {available} are available")
    store = store_factory(segment=nbytes + (64 << 20))
    memory = np.zeros(nbytes, np.uint8)
    marks = [0, (2 << 30) - 1, 2 << 30, (4 << 30) - 1, 4 << 30, nbytes - 1]
    memory[marks] = range(1, 7)
    assert is_zero(store.register_buffer(memory.ctypes.data, nbytes))
    assert is_zero(store.put_from("large", memory.ctypes.data, nbytes)) and store.get_size("large") == nbytes
    memory[marks] = 0
    assert store.get_into("large", memory.ctypes.data, nbytes) == nbytes
    assert memory[marks].tolist() == [1, 2, 3, 4, 5, 6]
    buffer = store.get_buffer("large")
    assert buffer.size() == nbytes and np.frombuffer(buffer, np.uint8)[marks].tolist() == [1, 2, 3, 4, 5, 6]
