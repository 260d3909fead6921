# SPDX-License-Identifier: Apache-2.0
"""``mooncake.engine`` in a process: imports, threads, fork, signals, exit, and Mooncake's own wheel beside it."""

from __future__ import annotations

import os
import signal
import threading

import pytest
from mooncake_sides import HOST, TARGET, Side, is_zero
from tidewire_testing import run_script, wait_until


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
