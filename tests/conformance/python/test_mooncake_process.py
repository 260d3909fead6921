# SPDX-License-Identifier: Apache-2.0
"""``mooncake.engine`` in a process: imports, threads, fork, signals, exit, and Mooncake's own wheel beside it."""

from __future__ import annotations

import os
import signal
import threading

import numpy as np
import pytest
from interpreter_lock import Counter
from mooncake_sides import HOST, TARGET, Side, is_zero
from tidewire_testing import HARD_STOP, pattern, run_script, wait_until


@pytest.mark.parametrize("first, second", [("mooncake.engine", "tidewire"), ("tidewire", "mooncake.engine")])
def test_both_import_orders_work_and_end(first, second):
    result = run_script(
        f"import {first}, {second}\n"
        "from mooncake.engine import TransferEngine\n"
        "a, b = TransferEngine(), TransferEngine()\n"
        "print([x.initialize('127.0.0.1', 'P2PHANDSHAKE', 'tcp', '') for x in (a, b)])\n"
    )
    assert (result.returncode, result.stdout) == (0, "[0, 0]\n"), result.stderr


def test_a_forked_child_fails_and_the_parent_goes_on(sides):
    a, b = sides
    pid = os.fork()
    if pid == 0:
        failed = (
            a.engine.transfer_sync_write(b.session, a.base, b.base, 1) == -1 and a.engine.register_memory(1, 1) == -1
        )
        os._exit(0 if failed else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert is_zero(a.engine.transfer_sync_write(b.session, a.base, b.base, 1))


def test_ctrl_c_ends_a_transfer_and_leaves_nothing(child_factory, monkeypatch):
    child = child_factory(TARGET.format(nbytes=64 << 20), TIDEWIRE_SAME_HOST="false")
    port, base = child.eval("[engine.get_rpc_port(), memory.ctypes.data]")
    monkeypatch.setenv("TIDEWIRE_SAME_HOST", "false")
    monkeypatch.setenv("TIDEWIRE_LANE_STALL_TIMEOUT", "60s")
    side = Side(64 << 20)
    assert is_zero(side.engine.transfer_sync_write(f"{HOST}:{port}", side.base, base, 10))
    os.kill(child.pid, signal.SIGSTOP)
    try:
        timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            side.engine.transfer_sync_write(f"{HOST}:{port}", side.base, base, 64 << 20)
        timer.join()
        inner = side.engine._engine
        wait_until(lambda: inner._reap() or not inner._orphans, "the cancelled batch is freed", 20)
    finally:
        os.kill(child.pid, signal.SIGCONT)


@pytest.mark.parametrize("other", ["mooncake_transfer_engine", "mooncake_transfer_engine_non_cuda"])
def test_beside_mooncakes_wheel_the_import_says_how_to_switch_and_to_go_back(tmp_path, other):
    (tmp_path / f"{other}-0.3.12.dist-info").mkdir()
    result = run_script(f"import sys; sys.path.append({str(tmp_path)!r}); import mooncake.engine")
    name = other.replace("_", "-")
    assert result.returncode == 1
    assert f"pip uninstall -y {name} &&" in result.stderr
    assert "pip uninstall -y tidewire-mooncake &&" in result.stderr


def test_tidewire_itself_does_not_mind_mooncakes_wheel(tmp_path):
    (tmp_path / "mooncake_transfer_engine-0.3.12.dist-info").mkdir()
    result = run_script(f"import sys; sys.path.append({str(tmp_path)!r}); import tidewire; tidewire.Engine().close()")
    assert result.returncode == 0, result.stderr


ENDINGS = {
    "nothing is closed": "",
    "the memory goes first": "del memory",
    "the target goes first": "del target",
    "an exit in the middle": "sys.exit(0)",
    "cycles": "initiator.me = initiator; target.other = [target, initiator]",
    "a batch is on its way": (
        "initiator.batch_transfer_async_write(peer, [base] * 100, [base + nbytes // 2] * 100, [1000] * 100)"
    ),
    "a managed buffer is alive": "kept = target.allocate_managed_buffer(1 << 20)",
    "the handle for a store is alive": "sys.modules['mooncake'].kept = target.get_engine()",
    "an atexit function transfers": "import atexit; atexit.register(lambda: print(write()))",
    "a thread transfers until the end": "threading.Thread(target=lambda: [write() for _ in range(100)]).start()",
    "a daemon thread asks for notifications": (
        "def ask():\n    while True: target.get_notifies()\nthreading.Thread(target=ask, daemon=True).start()"
    ),
}

OPENING = """
import sys, threading
import numpy as np
from mooncake.engine import TransferEngine
initiator, target = TransferEngine(), TransferEngine()
for engine in (initiator, target):
    assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
nbytes = 1 << 20
memory = np.ones(nbytes, np.uint8)
base, peer = memory.ctypes.data, f"127.0.0.1:{target.get_rpc_port()}"
assert initiator.register_memory(base, nbytes) == 0 == target.register_memory(base, nbytes)
def write():
    return initiator.batch_transfer_sync_write(peer, [base], [base + nbytes // 2], [1000])
assert write() == 0
"""


@pytest.mark.parametrize("ending", ENDINGS)
def test_the_interpreter_ends_cleanly(ending):
    result = run_script(OPENING + ENDINGS[ending])
    expected = "0\n" if "atexit" in ENDINGS[ending] else ""
    assert (result.returncode, result.stdout) == (0, expected), result.stderr
    lines = result.stderr.splitlines()
    if "async" in ENDINGS[ending]:  # whoever leaves a batch on its way may be told that it was cut
        lines = [line for line in lines if "transfer_failed" not in line]
    assert not lines


def test_threads_register_and_unregister_while_others_transfer(sides):
    a, b = sides
    a.memory[:] = pattern(9, a.memory.nbytes)
    size, rounds, wrong = 50_000, 60, []

    def transfer(index):
        for _ in range(rounds):
            if a.engine.transfer_sync_write(b.session, a.base + index * size, b.base + index * size, size) != 0:
                wrong.append("a transfer failed")

    def register():
        pages = np.zeros((4, 4096), np.uint8)
        pointers = [page.ctypes.data for page in pages]
        for _ in range(rounds):
            results = [
                b.engine.batch_register_memory(pointers, [4096] * 4),
                a.engine.transfer_sync_write(b.session, a.base, pointers[0], 4096),
                b.engine.batch_unregister_memory(pointers),
            ]
            if results != [0, 0, 0] or (pages[0] != a.memory[:4096]).any():
                wrong.append(results)

    threads = [threading.Thread(target=transfer, args=(index,)) for index in range(4)]
    threads += [threading.Thread(target=register) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HARD_STOP)
        assert not thread.is_alive()
    assert not wrong
    assert (b.memory[: 4 * size] == a.memory[: 4 * size]).all()


def test_the_interpreter_lock_is_free_while_a_transfer_waits(child_factory, monkeypatch):
    child = child_factory(TARGET.format(nbytes=64 << 20), TIDEWIRE_SAME_HOST="false")
    port, base = child.eval("[engine.get_rpc_port(), memory.ctypes.data]")
    monkeypatch.setenv("TIDEWIRE_SAME_HOST", "false")
    monkeypatch.setenv("TIDEWIRE_LANE_STALL_TIMEOUT", "60s")
    side, results = Side(64 << 20), []
    assert is_zero(side.engine.transfer_sync_write(f"{HOST}:{port}", side.base, base, 10))
    os.kill(child.pid, signal.SIGSTOP)

    def write():
        results.append(side.engine.batch_transfer_sync_write(f"{HOST}:{port}", [side.base], [base], [64 << 20]))

    waiters = [threading.Thread(target=write) for _ in range(4)]
    try:
        for waiter in waiters:
            waiter.start()
        # A lock held over the waits would stop the counter.
        assert Counter().rate(0.5) > 10_000 and not results
    finally:
        os.kill(child.pid, signal.SIGCONT)
    for waiter in waiters:
        waiter.join(HARD_STOP)
    assert results == [0] * 4
