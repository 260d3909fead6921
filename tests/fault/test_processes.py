# SPDX-License-Identifier: Apache-2.0
"""Killed, restarted and stopped processes, on every path between them."""

from __future__ import annotations

import os
import random
import signal
import time

import pytest
from test_links import initiator
from tidewire_testing import target, wait_until

ROUNDS = int(os.environ.get("TIDEWIRE_FAULT_ROUNDS", "5"))  # 100 in scripts/soak.sh

PATHS = {"shm": "", "tcp": "settings={'same_host': False}"}

# A target whose buffer lies between canaries, at an address that differs from run to run.
GUARDED = """
import os, numpy as np, tidewire
engine = tidewire.Engine({name!r}{options})
pad = np.zeros(int.from_bytes(os.urandom(2), "little") * 4096 + 1, np.uint8)
block = np.full(3 << 20, 0xEE, np.uint8)
region = engine.register(block[1 << 20 : 2 << 20])
def canaries():
    return bool((block[: 1 << 20] == 0xEE).all() and (block[2 << 20 :] == 0xEE).all())
def seen():
    return int(block[1 << 20])
"""


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.timeout(600)
def test_a_peer_that_dies_comes_back_on_the_same_address(child_factory, path):
    """B03: requests in the outage fail in time; the first success follows the return; bytes land in the new process's buffer only."""
    dice = random.Random(3)
    options = f", {PATHS[path]}" if PATHS[path] else ""
    passive = child_factory(GUARDED.format(name="127.0.0.1", options=options))
    address, base = passive.eval("[engine.address, region.address]")
    active = child_factory(initiator(1 << 20, PATHS[path]))
    active.run(f"""
source[:] = 1
where, outcomes, stop = [{address!r}, {base}], [], False
def loop():
    while not stop:
        name, base = where
        begin = time.monotonic()
        try:
            write(name, base, deadline=5.0)
            outcomes.append(["ok", base, time.monotonic() - begin])
        except tidewire.Error as error:
            outcomes.append([type(error).__name__, base, time.monotonic() - begin])
            time.sleep(0.01)
thread = threading.Thread(target=loop); thread.start()
""")
    try:
        for round_number in range(ROUNDS):
            wait_until(lambda: active.eval("bool(outcomes) and outcomes[-1][0] == 'ok'"), "a transfer to the running target")
            passive.kill()
            wait_until(lambda: active.eval("outcomes[-1][0] != 'ok'"), "the failure of a transfer to the dead target")
            time.sleep(dice.uniform(0, 1.0))  # the outage itself, not a wait for an event
            passive = child_factory(GUARDED.format(name=address, options=options))
            base = passive.eval("region.address")
            active.run(f"outcomes.clear(); where[:] = [{address!r}, {base}]")
            ready = time.monotonic()
            wait_until(lambda: active.eval(f"any(one[0] == 'ok' and one[1] == {base} for one in outcomes)"), "the first success")
            assert time.monotonic() - ready < 5 * 2.0
            assert passive.eval("canaries()")
            assert passive.eval("seen()") == 1
            assert active.eval("max(one[2] for one in outcomes)") < 5.0 + 5 * 0.4
    finally:
        active.run("stop = True; thread.join(60)")


@pytest.mark.parametrize("path", PATHS)
def test_a_killed_user_of_shared_memory_leaves_nothing_behind(child_factory, path):
    """B22: killed at random points and started again under the same name; /dev/shm and the target's descriptors stay level."""
    dice = random.Random(22)
    passive = child_factory(target(8 << 20, PATHS[path]))
    address, base = passive.eval("[engine.address, region.address]")
    passive.run("import os")
    before = set(os.listdir("/dev/shm"))
    level = None
    for _ in range(6):
        active = child_factory(initiator(8 << 20, PATHS[path]))
        active.run(f"write({address!r}, {base})")
        active.start(f"[write({address!r}, {base}) for _ in range(10**6)]")
        time.sleep(dice.uniform(0, 0.2))  # a random point of its life
        active.kill()
        fds = lambda: passive.eval("len(os.listdir('/proc/self/fd'))")
        if level is None:
            time.sleep(0.5)
            level = fds()
        wait_until(lambda: fds() <= level, "the target to let go of the killed process")
    assert set(os.listdir("/dev/shm")) == before
    last = child_factory(initiator(8 << 20, PATHS[path]))
    wanted = last.eval("fill(5)")
    last.run(f"write({address!r}, {base})")
    assert passive.eval("digest()") == wanted


def test_a_stopped_target_times_out_and_serves_again(child_factory):
    passive = child_factory(target(32 << 20, PATHS["tcp"]))
    address, base = passive.eval("[engine.address, region.address]")
    active = child_factory(initiator(32 << 20, PATHS["tcp"]))
    active.run(f"write({address!r}, {base})")
    os.kill(passive.pid, signal.SIGSTOP)
    begin = time.monotonic()
    with pytest.raises(RuntimeError, match="(?i)timeout|passed its deadline|unreachable"):
        active.run(f"write({address!r}, {base}, deadline=2.0)")
    assert time.monotonic() - begin < 5 * (2.0 + 0.4)
    os.kill(passive.pid, signal.SIGCONT)
    wanted = active.eval("fill(9)")

    def works() -> bool:
        try:
            active.run(f"write({address!r}, {base})")
            return True
        except RuntimeError:
            return False

    wait_until(works, "the target to serve again")
    assert passive.eval("digest()") == wanted


def test_secrets_must_agree_on_every_connection(child_factory, tmp_path):
    """With a cluster secret nobody without it gets in, in either direction; those who have it do."""
    files = {}
    for name in ("one", "two"):
        files[name] = tmp_path / name
        files[name].write_text(f"the secret of cluster {name}, long enough")
        files[name].chmod(0o600)
    for path, option in PATHS.items():
        passive = child_factory(target(1 << 20, option), TIDEWIRE_SECRET_FILE=str(files["one"]))
        address, base = passive.eval("[engine.address, region.address]")
        friend = child_factory(initiator(1 << 20, option), TIDEWIRE_SECRET_FILE=str(files["one"]))
        wanted = friend.eval("fill(3)")
        friend.run(f"write({address!r}, {base})")
        assert passive.eval("digest()") == wanted, path
        for env in ({"TIDEWIRE_SECRET_FILE": str(files["two"])}, {}):
            stranger = child_factory(initiator(1 << 20, option), **env)
            stranger.run("fill(4)")
            with pytest.raises(RuntimeError, match="Unauthenticated"):
                stranger.run(f"write({address!r}, {base})")
        open_target = child_factory(target(1 << 20, option))
        with pytest.raises(RuntimeError, match="Unauthenticated"):
            friend.run(f"write({open_target.eval('engine.address')!r}, {open_target.eval('region.address')})")
        assert passive.eval("digest()") == wanted, path
