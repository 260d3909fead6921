# SPDX-License-Identifier: Apache-2.0
"""SGLang's HiCache: each row of what it calls and needs."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import urllib.request

import numpy as np
import pytest
from mooncake.engine import TransferEngine
from mooncake.store import MooncakeDistributedStore, MooncakeHostMemAllocator, ReplicateConfig
from store_cluster import Master, Pages, all_zero, client_setup, is_zero, setup_arguments
from tidewire_testing import HARD_STOP, environment, pattern

pytest_plugins = ["store_fixtures"]


# -- setup --


def test_sglang_sets_up_by_position_with_its_keywords(master):
    store = MooncakeDistributedStore()
    result = store.setup(
        *setup_arguments(master),
        None,
        enable_client_http_server=False,
        client_http_port=9300,
        enable_ssd_offload=False,
        ssd_offload_path="",
        tenant_id="default",
    )
    assert is_zero(result)
    assert is_zero(store.put("at-once", b"a put succeeds when setup has returned"))
    assert is_zero(store.remove("at-once", force=True))
    assert is_zero(store.close())


def test_an_unknown_keyword_of_setup_is_named(master):
    with pytest.raises(TypeError, match="enable_time_travel"):
        MooncakeDistributedStore().setup(*setup_arguments(master), None, enable_time_travel=True)


@pytest.mark.parametrize(
    "option",
    [{"enable_ssd_offload": True}, {"enable_client_http_server": True}, {"tenant_id": "other"}],
    ids=lambda option: next(iter(option)),
)
def test_a_feature_that_is_not_there_is_refused_by_name(master, caplog, option):
    store = MooncakeDistributedStore()
    assert store.setup(*setup_arguments(master), None, **option) == -1012
    assert next(iter(option)) in caplog.text
    assert is_zero(store.setup(*setup_arguments(master)))
    store.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_the_host_name_may_carry_a_port(master, free_port, host):
    store = MooncakeDistributedStore()
    assert is_zero(store.setup(*setup_arguments(master, host=f"{host}:{free_port}")))
    assert store.get_hostname().rpartition(":")[2] == str(free_port)
    assert is_zero(store.close())


def test_a_store_over_the_engine_of_the_disaggregation(master):
    engine = TransferEngine()
    assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
    store = MooncakeDistributedStore()
    assert is_zero(store.setup(*setup_arguments(master), engine.get_engine()))
    assert store.get_hostname().rpartition(":")[2] == str(engine.get_rpc_port())
    # What the engine has registered is moved without a registration at the store.
    memory = pattern(1, 8192)
    assert engine.register_memory(memory.ctypes.data, memory.nbytes) == 0
    assert is_zero(store.put_from("shared", memory.ctypes.data, 4096))
    assert store.get_into("shared", memory.ctypes.data + 4096, 4096) == 4096
    assert (memory[:4096] == memory[4096:]).all()
    store.remove_all(force=True)
    assert is_zero(store.close())
    # The engine goes on.
    assert (
        engine.batch_transfer_sync_write(
            f"127.0.0.1:{engine.get_rpc_port()}", [memory.ctypes.data], [memory.ctypes.data + 4096], [1]
        )
        == 0
    )


def test_an_engine_that_does_not_run_is_refused(master, caplog):
    assert MooncakeDistributedStore().setup(*setup_arguments(master), TransferEngine().get_engine()) == -600
    assert "engine" in caplog.text


def test_a_master_that_does_not_answer_is_named(caplog):
    arguments = ("127.0.0.1", "P2PHANDSHAKE", 1 << 20, 1 << 20, "tcp", "", "127.0.0.1:1")
    assert MooncakeDistributedStore().setup(*arguments) < 0
    assert "127.0.0.1:1" in caplog.text


# -- objects --


def test_sglang_warm_up(store):
    key, value = "sglang_mooncake_store_warmup_key-1.2", bytes(pattern(2, 4096))
    assert is_zero(store.put(key, value))
    found = store.is_exist(key)
    assert type(found) is int and found == 1
    assert store.get(key) == value


def test_sglang_registers_its_host_cache(store):
    memory = np.zeros(8 << 20, np.uint8)
    assert is_zero(store.register_buffer(memory.ctypes.data, memory.nbytes))
    assert is_zero(store.unregister_buffer(memory.ctypes.data))


def test_sglang_writes_and_reads_pages(store):
    written, read = Pages(store, 64, 8192, seed=3), Pages(store, 64, 8192)
    assert store.batch_is_exist(written.keys) == [0] * 64
    assert all_zero(store.batch_put_from(written.keys, written.pointers, written.sizes), 64)
    found = store.batch_is_exist([*written.keys, "missing"])
    assert found == [1] * 64 + [0] and all(type(item) is int for item in found)
    assert store.batch_get_into(written.keys, read.pointers, read.sizes) == [8192] * 64
    assert (read.memory == written.memory).all()


def test_sglang_passes_a_configuration_with_groups(store):
    pages = Pages(store, 4, seed=4)
    config = ReplicateConfig()
    assert hasattr(config, "group_ids")
    config.group_ids = ["request-1"] * 4
    assert all_zero(store.batch_put_from(pages.keys, pages.pointers, pages.sizes, config), 4)
    assert store.batch_is_exist(pages.keys) == [1] * 4


def test_sglang_multi_buffers(store):
    # Keys and values of a layer lie apart: two buffers for each object.
    written, read = Pages(store, 32, 4096, seed=5), Pages(store, 32, 4096)
    keys = written.keys[:16]
    pointers, sizes = [[p, q] for p, q in zip(written.pointers[::2], written.pointers[1::2])], [[4096, 4096]] * 16
    assert all_zero(store.batch_put_from_multi_buffers(keys, pointers, sizes), 16)
    into = [[p, q] for p, q in zip(read.pointers[::2], read.pointers[1::2])]
    assert store.batch_get_into_multi_buffers(keys, into, sizes) == [8192] * 16
    assert (read.memory == written.memory).all()
    # The same objects in one piece.
    whole = np.zeros(8192, np.uint8)
    assert store.get_into(keys[3], whole.ctypes.data, 8192) == 8192
    assert bytes(whole) == written.memory[6:8].tobytes()


def test_keys_that_fail_leave_the_others_of_a_batch_alone(store):
    written, read = Pages(store, 3, seed=6), Pages(store, 4)
    store.batch_put_from(written.keys, written.pointers, written.sizes)
    keys = [written.keys[0], "missing", written.keys[1], written.keys[2]]
    sizes = [4096, 4096, 100, 4096]
    results = store.batch_get_into(keys, read.pointers, sizes)
    assert results == [4096, -704, -600, 4096]
    assert (read.memory[0] == written.memory[0]).all() and (read.memory[3] == written.memory[2]).all()
    assert not read.memory[1:3].any()


def test_objects_of_another_client_are_read(store, master, child_factory):
    child = child_factory(client_setup(master))
    value = bytes(pattern(7, 1 << 20))
    assert is_zero(store.put("from-here", value))
    assert child.eval(
        "store.get('from-here') == bytes(np.random.default_rng(7).integers(0, 256, 1 << 20, dtype=np.uint8))"
    )
    assert child.eval("store.put('from-there', b'there' * 1000)") == 0
    assert store.get("from-there") == b"there" * 1000
    assert child.finish() == 0


def test_zero_size_puts_are_refused(store):
    pages = Pages(store, 3, seed=8)
    assert store.put("empty", b"") == -600
    assert store.put_from("empty", pages.pointers[0], 0) == -600
    assert store.put_parts("empty", b"", b"") == -600
    assert store.put_parts("empty") == -600
    assert store.batch_put_from(pages.keys, pages.pointers, [4096, 0, 4096]) == [0, -600, 0]
    assert store.batch_put_from_multi_buffers(["e1", "e2"], [[], [pages.pointers[0]]], [[], [0]]) == [-600, -600]
    assert store.batch_is_exist(["empty", pages.keys[1], "e1", "e2"]) == [0] * 4


def test_keys_are_printable_texts_of_any_kind(store):
    keys = ["a", "llama-3.1-8B.tp0-k", "x" * 4096, "".join(map(chr, range(33, 127))), "schlüssel-键", "a b"]
    values = [key.encode() for key in keys]
    assert is_zero(store.put_batch(keys, values))
    assert store.get_batch(keys) == values
    assert [store.get_size(key) for key in keys] == [len(value) for value in values]


@pytest.mark.parametrize("key", ["", "x" * 4097])
def test_keys_without_text_or_too_long_are_refused(store, key):
    assert store.put(key, b"value") < 0
    assert store.get(key) == b""
    assert store.is_exist(key) != 1


def test_a_put_of_a_key_that_exists_is_a_success_and_keeps_the_bytes(store):
    pages = Pages(store, 2, seed=9)
    assert is_zero(store.put(pages.keys[0], b"first"))
    assert is_zero(store.put(pages.keys[0], b"second"))
    assert all_zero(store.batch_put_from(pages.keys, pages.pointers, pages.sizes), 2)
    assert store.get(pages.keys[0]) == b"first"


def test_sglang_clears_and_goes_without_close(master):
    store = MooncakeDistributedStore()
    assert is_zero(store.setup(*setup_arguments(master)))
    for index in range(5):
        assert is_zero(store.put(f"clear-{index}", b"value"))
    assert store.remove_all(force=True) == 5 and store.remove_all() == 0
    name = store.get_hostname()
    assert name.encode() in master.get("/get_all_segments")[1]
    del store  # the destructor unmounts
    assert name.encode() not in master.get("/get_all_segments")[1]


# -- optional --


def test_sglang_sessions_read_layers_of_an_object(store):
    layers, nbytes = 8, 2048
    whole, read = Pages(store, 4, layers * nbytes, seed=10), Pages(store, 4, layers * nbytes)
    store.batch_put_from(whole.keys, whole.pointers, whole.sizes)
    assert store.batch_get_session_start([*whole.keys, "missing"]) == [0] * 4 + [-704]
    for layer in range(layers):
        offset = layer * nbytes
        into = [[pointer + offset, pointer + offset + 1024] for pointer in read.pointers]
        results = store.batch_get_into_multi_buffer_ranges(
            whole.keys, into, [[1024, 1024]] * 4, [[offset, offset + 1024]] * 4
        )
        assert results == [nbytes] * 4
    assert is_zero(store.batch_get_session_end(whole.keys))
    assert (read.memory == whole.memory).all()


def test_sglang_sessions_write_layers_of_an_object(store):
    layers, nbytes = 4, 1024
    whole = Pages(store, 4, layers * nbytes, seed=11)
    assert all_zero(store.batch_put_session_start(whole.keys, whole.sizes), 4)
    assert store.batch_is_exist(whole.keys) == [0] * 4
    for layer in reversed(range(layers)):
        offset = layer * nbytes
        results = store.batch_put_from_multi_buffer_ranges(
            whole.keys, [[pointer + offset] for pointer in whole.pointers], [[nbytes]] * 4, [[offset]] * 4
        )
        assert results == [nbytes] * 4
    assert all_zero(store.batch_put_session_end(whole.keys[:3]), 3)
    assert all_zero(store.batch_put_session_revoke(whole.keys[3:]), 1)
    assert store.batch_is_exist(whole.keys) == [1, 1, 1, 0]
    assert store.get(whole.keys[2]) == whole.memory[2].tobytes()


def test_sglang_host_memory_allocator(store):
    allocator = MooncakeHostMemAllocator()
    address = allocator.alloc(1 << 20)
    assert address > 0 and address % 4096 == 0
    assert is_zero(store.register_buffer(address, 1 << 20))
    ctypes.memset(address, 7, 1000)
    assert is_zero(store.put_from("allocated", address, 1000))
    assert store.get("allocated") == b"\7" * 1000
    assert is_zero(store.unregister_buffer(address)) and is_zero(allocator.free(address))
    assert allocator.free(address) == -600 and allocator.alloc(0) == 0 == allocator.alloc(1 << 62)


def test_host_memory_outlives_its_allocator():
    address = MooncakeHostMemAllocator().alloc(8192)
    ctypes.memset(address, 1, 8192)
    assert MooncakeHostMemAllocator().free(address) == 0


def test_a_dummy_client_is_refused_by_name(caplog):
    assert MooncakeDistributedStore().setup_dummy(1 << 20, 1 << 20, "127.0.0.1:50052") == -1012
    assert "setup_dummy" in caplog.text


# -- programs --


def test_the_masters_http_lists_segments(store, master):
    status, body = master.get("/get_all_segments")
    assert status == 200 and store.get_hostname().encode() in body


def test_mooncake_master_passes_flags_on():
    code = "import sys; from mooncake._programs import master; sys.argv[1:] = ['--help']; master()"
    result = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, timeout=HARD_STOP
    )
    assert result.returncode == 0, result.stderr
    assert "--rpc_port" in result.stdout and "--eviction_high_watermark_ratio" in result.stdout


def test_a_master_works_on_while_nobody_reads_its_pipes():
    master = Master()
    try:
        with open(f"/proc/{master.process.pid}/fd/1", "wb", buffering=0) as its_stdout:
            # The pipe is full from here on.
            os.set_blocking(its_stdout.fileno(), False)
            while its_stdout.write(b"x" * 4096):
                pass
        for _ in range(3):
            store = MooncakeDistributedStore()
            assert store.setup(*setup_arguments(master)) == 0
            assert store.put("k", b"v") == 0 and store.remove_all(force=True) == 1
            assert store.close() == 0
        assert urllib.request.urlopen(f"http://{master.admin}/health", timeout=HARD_STOP).status == 200
    finally:
        master.kill()
