# SPDX-License-Identifier: Apache-2.0
"""Closing and collection: bounded, idempotent, and without leaks."""

from __future__ import annotations

import gc
import os
import threading
import time
import weakref

import numpy as np
import pytest
import tidewire
from tidewire import Code, State
from tidewire_testing import HARD_STOP, descriptors, wait_until


def test_close_is_idempotent_and_everything_after_it_fails_by_name(pair):
    a, b = pair
    region, peer, buffer = a.register(bytearray(8)), a.open(b.address), a.allocate(8)
    batch = a.write(peer, region, 0x1000)
    for _ in range(3):
        a.close()
    assert a.closed
    for call in [
        lambda: a.write(peer, region, 0),
        lambda: a.open(b.address),
        lambda: a.allocate(8),
        a.notifications,
        a.status,
        buffer.view,
        peer.first_region,
        batch.wait,
    ]:
        with pytest.raises(tidewire.ClosedError):
            call()
    region.close(), buffer.close(), peer.close(), batch.close()


def test_close_cancels_what_runs_in_bounded_time(stuck):
    batches = [stuck.write() for _ in range(20)]
    outcome = []

    def wait():
        try:
            batches[0].wait()
        except tidewire.Error as error:
            outcome.append(error.code)

    thread = threading.Thread(target=wait)
    thread.start()
    started = time.monotonic()
    stuck.engine.close()
    thread.join(HARD_STOP)
    assert time.monotonic() - started < 10
    assert outcome and outcome[0] in (Code.CANCELED, Code.CLOSED)


def test_a_running_batch_can_be_cancelled_and_not_freed_early(stuck):
    batch = stuck.write()
    with pytest.raises(tidewire.WaitTimeoutError):
        batch.wait(timeout=0.05)
    assert not batch.status.state.terminal
    assert tidewire._native.lib.tw_batch_release(batch._handle) == Code.BUSY
    batch.cancel()
    with pytest.raises(tidewire.CanceledError):
        batch.wait(timeout=10)
    assert batch.status.state == State.CANCELED


def test_a_dropped_batch_runs_to_its_end_and_keeps_its_memory(stuck):
    class Memory(bytearray):
        pass

    memory = Memory(1 << 20)
    alive = weakref.ref(memory)
    region = stuck.engine.register(memory)
    batch = stuck.engine.write(stuck.peer, memory, stuck.base, deadline=60)
    stuck.engine._forget(region)  # only the batch holds the memory now
    del memory, region, batch
    gc.collect()
    assert alive() is not None and len(stuck.engine._orphans) == 1
    stuck.go_on()

    def freed():
        stuck.engine._reap()
        gc.collect()
        return alive() is None and not stuck.engine._orphans

    wait_until(freed, "the dropped batch is freed")


def test_a_program_that_drops_every_batch_leaks_nothing(pair):
    a, b = pair
    mine, theirs = a.register(bytearray(64)), b.register(bytearray(64))
    peer = a.open(b.address)

    def drop():
        for _ in range(500):
            a.write(peer, mine, theirs.address)
        a.write(peer, mine, theirs.address).wait()

        def reaped():
            a._reap()
            return not a._orphans

        wait_until(reaped, "the dropped batches are freed")

    drop()
    before = descriptors()
    drop()
    assert descriptors() <= before


def test_engines_come_and_go_without_leaving_anything():
    def cycle():
        with tidewire.Engine() as a, tidewire.Engine() as b:
            mine, theirs = a.register(bytearray(1000)), b.allocate(1000)
            a.write(b.address, mine, theirs.address).wait()

    cycle()
    gc.collect()
    before, threads = descriptors(), len(os.listdir("/proc/self/task"))
    for _ in range(10):
        cycle()
    gc.collect()
    wait_until(lambda: descriptors() <= before, "descriptors are closed", 10)
    wait_until(lambda: len(os.listdir("/proc/self/task")) <= threads, "threads ended", 10)


def test_an_engine_that_is_collected_is_closed():
    engine = tidewire.Engine()
    address = engine.address
    engine.register(bytearray(64))
    del engine
    gc.collect()
    with tidewire.Engine() as other, pytest.raises(tidewire.Error):
        other.open(address)


def test_memory_stays_while_a_view_of_it_lives(engine_factory, caplog):
    engine = engine_factory()
    buffer = engine.allocate(1 << 20)
    view = np.frombuffer(buffer.view(), np.uint8)
    buffer.close()
    buffer.close()
    view[:] = 7
    assert int(view.sum()) == 7 << 20
    with pytest.raises(tidewire.ClosedError):
        buffer.view()
    engine.close()
    assert "live views" in caplog.text
    view[:] = 8
    address = engine.address
    del view, buffer
    gc.collect()
    with tidewire.Engine() as other, pytest.raises(tidewire.Error):
        other.open(address)


def test_registered_objects_live_as_long_as_the_region(engine_factory):
    class Owned(np.ndarray):
        pass

    engine = engine_factory()
    data = np.zeros(100, np.uint8).view(Owned)
    alive = weakref.ref(data)
    region = engine.register(data)
    del data
    gc.collect()
    assert alive() is not None
    region.close()
    del region
    gc.collect()
    assert alive() is None
