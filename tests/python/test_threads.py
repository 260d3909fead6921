# SPDX-License-Identifier: Apache-2.0
"""Threads on one engine, the interpreter lock, and what waiting costs."""

from __future__ import annotations

import threading
import time

import numpy as np
import tidewire
from interpreter_lock import Counter
from tidewire_testing import HARD_STOP, pattern


def test_many_threads_share_one_engine(pair):
    a, b = pair
    threads_count, rounds, size = 8, 50, 10_000
    theirs = b.allocate(threads_count * size)
    peer = a.open(b.address)
    failures = []

    def work(index):
        try:
            for turn in range(rounds):
                data = pattern(index * 1000 + turn, size)
                with a.register(data) as region:
                    a.write(peer, region, theirs.address + index * size).wait()
                    back = np.zeros(size, np.uint8)
                    with a.register(back) as sink:
                        a.read(peer, sink, theirs.address + index * size).wait()
                assert (back == data).all()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(threads_count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not failures, failures[0]


def test_the_interpreter_lock_is_free_while_transfers_wait(stuck):
    batch = stuck.write()
    waiters = []

    def start_waiters():
        for wait in [batch.wait] * 4 + [lambda: stuck.engine.notifications(timeout=100)]:
            waiters.append(threading.Thread(target=_quietly, args=(wait,)))
            waiters[-1].start()

    counter = Counter()
    start_waiters()
    # Each wait sleeps in the library; a lock held over it would stop the counter.
    assert counter.rate(0.5) > 10_000
    assert not batch.done
    stuck.go_on()
    waiters[0].join(HARD_STOP)
    stuck.engine.close()
    for waiter in waiters:
        waiter.join(HARD_STOP)
        assert not waiter.is_alive()


def _quietly(call):
    try:
        call()
    except tidewire.Error:
        pass


def test_the_interpreter_lock_is_free_while_engines_start_and_memory_is_made_ready():
    def start_and_allocate():
        for _ in range(3):
            with tidewire.Engine() as engine, engine.allocate(256 << 20) as buffer:
                engine.copy_in(buffer, bytes(64 << 20))

    # With the lock held over these calls the counter would get the gaps between them alone.
    assert Counter().rate(0.2, start_and_allocate) > 10_000


def test_waiting_takes_no_processor_time(stuck):
    batch = stuck.write()
    waiters = [threading.Thread(target=_quietly, args=(batch.wait,)) for _ in range(32)]
    for waiter in waiters:
        waiter.start()
    time.sleep(0.3)
    before, started = time.process_time(), time.monotonic()
    time.sleep(2)
    used = (time.process_time() - before) / (time.monotonic() - started)
    batch.cancel()
    for waiter in waiters:
        waiter.join(HARD_STOP)
    assert used < 0.3
