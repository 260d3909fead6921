# SPDX-License-Identifier: Apache-2.0
"""``mooncake.store`` in a process: imports, threads, fork, exit, and a library that has no store."""

from __future__ import annotations

import ctypes
import gc
import os
import threading

import numpy as np
import pytest
from interpreter_lock import Counter
from mooncake.engine import TransferEngine
from mooncake.store import MooncakeDistributedStore
from store_cluster import Pages, client_setup, setup_arguments
from tidewire_testing import HARD_STOP, Child, run_script, wait_until

pytest_plugins = ["store_fixtures"]

SET_UP = """
import gc, sys, threading
import numpy as np
from mooncake.store import MooncakeDistributedStore
store, second = MooncakeDistributedStore(), MooncakeDistributedStore()
for each in (store, second):
    assert each.setup(*{arguments!r}) == 0
assert store.put("key", b"value" * 1000) == 0
"""

ENDINGS = {
    "nothing is closed": "",
    "one is closed": "store.close()",
    "an exit in the middle": "sys.exit(0)",
    "cycles": "store.me = store; second.other = [store, second]",
    "a buffer is alive": "kept = store.get_buffer('key')",
    "an array over a buffer is alive": "kept = np.frombuffer(store.get_buffer('key'), np.uint8)",
    "registered memory goes first": (
        "memory = np.zeros(4096, np.uint8); store.register_buffer(memory.ctypes.data, 4096); del memory"
    ),
    "an atexit function asks": "import atexit; atexit.register(lambda: print(store.is_exist('key')))",
    "a thread puts until the end": (
        "threading.Thread(target=lambda: [store.put(f'{i}', b'v') for i in range(200)]).start()"
    ),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_the_interpreter_ends_cleanly_and_unmounts(master, ending):
    source = SET_UP.format(arguments=setup_arguments(master)) + ENDINGS[ending]
    result = run_script(source)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == ("1\n" if "atexit" in ending else "")
    assert b"127.0.0.1" not in master.get("/get_all_segments")[1]


def test_a_daemon_thread_that_reads_on_does_not_hinder_the_end(master):
    source = SET_UP.format(arguments=setup_arguments(master)) + (
        "kept = np.frombuffer(store.get_buffer('key'), np.uint8)\n"
        "def read():\n    while True: kept.sum(); store.get('key')\n"
        "threading.Thread(target=read, daemon=True).start()"
    )
    assert run_script(source).returncode == 0


@pytest.mark.parametrize(
    "first, second", [("mooncake.engine", "mooncake.store"), ("mooncake.store", "mooncake.engine")]
)
def test_both_import_orders_work_with_a_shared_engine(master, first, second):
    result = run_script(
        f"import {first}, {second}\n"
        "from mooncake.engine import TransferEngine\n"
        "from mooncake.store import MooncakeDistributedStore\n"
        "engine, store = TransferEngine(), MooncakeDistributedStore()\n"
        "print(engine.initialize('127.0.0.1', 'P2PHANDSHAKE', 'tcp', ''))\n"
        f"print(store.setup(*{setup_arguments(master)!r}, engine.get_engine()))\n"
        "print(store.put('k', b'v'), store.get('k'), store.remove('k', True))\n"
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "0\n0\n0 b'v' 0\n", "")


@pytest.mark.parametrize("order", ["store, engine", "engine, store"])
def test_a_store_and_its_engine_go_in_either_order(master, order):
    engine, store = TransferEngine(), MooncakeDistributedStore()
    assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
    assert store.setup(*setup_arguments(master), engine.get_engine()) == 0
    assert store.put("k", b"v") == 0
    name = store.get_hostname().encode()
    things = {"store": store, "engine": engine}
    del store, engine
    for thing in order.split(", "):
        del things[thing]
    assert name not in master.get("/get_all_segments")[1]


def test_a_store_and_its_engine_go_in_one_collection(master):
    engine, store = TransferEngine(), MooncakeDistributedStore()
    assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
    assert store.setup(*setup_arguments(master), engine.get_engine()) == 0
    name = store.get_hostname().encode()
    engine.store, store.engine = store, engine
    del store, engine
    gc.collect()
    assert name not in master.get("/get_all_segments")[1]


def test_a_forked_child_fails_and_the_parent_goes_on(store):
    assert store.put("k", b"v") == 0
    buffer = store.get_buffer("k")
    pid = os.fork()
    if pid == 0:
        failed = store.put("child", b"v") == -600 and store.get("k") == b"" and store.close() == 0
        os._exit(0 if failed else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert store.get("k") == b"v" and store.is_exist("child") == 0 and bytes(buffer) == b"v"


def test_a_forked_child_sets_up_a_store_of_its_own(store, master):
    assert store.put("k", b"value") == 0
    pid = os.fork()
    if pid == 0:
        own = MooncakeDistributedStore()
        works = own.setup(*setup_arguments(master)) == 0 and own.get("k") == b"value" and own.close() == 0
        os._exit(0 if works else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert store.get("k") == b"value"


def test_the_interpreter_lock_is_free_while_the_store_works(hasty_store_factory):
    store = hasty_store_factory()
    pages = Pages(store, 1, 32 << 20, seed=1)
    stop, done, wrong = threading.Event(), [], []

    def work():
        while not stop.is_set():
            results = [
                store.put_from(pages.keys[0], pages.pointers[0], 32 << 20),
                len(store.get(pages.keys[0])),
                store.remove(pages.keys[0], force=True),
            ]
            done.append(1)
            if results != [0, 32 << 20, 0]:
                wrong.append(results)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        wait_until(lambda: done, "the first round")
        # With the lock held over the copies a few counts a switch would be left.
        assert Counter().rate(0.5) > 10_000
    finally:
        stop.set()
        worker.join(HARD_STOP)
    assert not worker.is_alive() and not wrong


def test_closing_while_threads_work_ends_their_calls(store_factory):
    store, wrong = store_factory(), []
    started = threading.Barrier(5)

    def work(index):
        started.wait(HARD_STOP)
        for round in range(10_000):
            result = store.put(f"{index}-{round}", b"value" * 100)
            if result < 0:
                if result == -200:
                    continue
                return
        wrong.append("the close went unnoticed")

    threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    started.wait(HARD_STOP)
    assert store.close() == 0
    for thread in threads:
        thread.join(HARD_STOP)
        assert not thread.is_alive()
    assert not wrong


def test_a_library_without_the_store_is_named(tmp_path):
    source = (
        "import tidewire._native as native\n"
        "class Without:\n"
        "    def __getattr__(self, name):\n"
        "        if name.startswith('tw_store'): raise AttributeError(name)\n"
        "        return getattr(native_lib, name)\n"
        "native_lib, native.lib = native.lib, Without()\n"
        "import mooncake.engine\n"
        "try:\n"
        "    import mooncake.store\n"
        "except ImportError as error:\n"
        "    print(error)\n"
    )
    result = run_script(source)
    assert result.returncode == 0, result.stderr
    assert "lacks tw_store_" in result.stdout and "without the store" in result.stdout


CHECKSUM_MISMATCH = -801
READ_BACK = """
target = np.zeros({nbytes}, np.uint8)
assert store.register_buffer(target.ctypes.data, {nbytes}) == 0
def read(key):
    target[:] = 0
    return store.get_into(key, target.ctypes.data, {nbytes}), int(target.sum(dtype=np.uint64))
"""


# Below a stretch of a read, one stretch that is not full, several, and several with a short last one.
@pytest.mark.parametrize("nbytes", [4096, (1 << 20) + 7, 2 << 20, (5 << 20) + 13])
def test_bytes_that_changed_at_their_owner_are_not_handed_out_after_a_way_over_tcp(store, master, nbytes):
    value = np.random.default_rng(nbytes).integers(0, 256, nbytes, dtype=np.uint8)
    assert store.put("object", value.tobytes()) == 0
    (replica,) = store.get_replica_desc("object")
    at_owner = replica.get_memory_descriptor().buffer_descriptor.buffer_address
    stored = (ctypes.c_uint8 * nbytes).from_address(at_owner)  # the owner is this process
    good = [nbytes, int(value.sum(dtype=np.uint64))]
    reader = Child(client_setup(master, segment=0) + READ_BACK.format(nbytes=nbytes), TIDEWIRE_SAME_HOST="false")
    try:
        assert reader.eval("read('object')") == good
        for position in {0, nbytes // 2, nbytes - 1}:
            stored[position] ^= 1
            assert reader.eval("read('object')")[0] == CHECKSUM_MISMATCH, position
            stored[position] ^= 1
        assert reader.eval("read('object')") == good
    finally:
        reader.kill()
