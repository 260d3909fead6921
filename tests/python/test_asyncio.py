# SPDX-License-Identifier: Apache-2.0
"""``await batch``: the event loop sleeps on the batch's descriptor, and no thread waits."""

from __future__ import annotations

import asyncio
import gc
import threading
import time

import pytest
import tidewire
from tidewire import Code, State
from tidewire_testing import descriptors, pattern, wait_until


@pytest.fixture
def moving(pair):
    """A function that starts a small write and returns its batch."""
    a, b = pair
    data = pattern(1, 10_000)
    mine, theirs = a.register(data), b.register(bytearray(10_000))
    peer = a.open(b.address)
    return lambda: a.write(peer, mine, theirs.address)


def test_await_gives_the_status(moving):
    async def main():
        return await moving()

    assert asyncio.run(main()) == (State.COMPLETED, Code.OK, 1, 1, 0, 10_000)


def test_many_batches_and_many_waiters_leave_no_descriptor(moving):
    async def one(batch):
        return await batch

    async def main():
        batches = [moving() for _ in range(50)]
        results = await asyncio.gather(*(one(batch) for batch in batches for _ in range(3)))
        assert [result.completed for result in results] == [1] * 150

    asyncio.run(main())
    before = descriptors()
    for _ in range(5):
        asyncio.run(main())
    gc.collect()
    assert descriptors() <= before


def test_a_failed_batch_raises_in_the_task(pair):
    a, b = pair
    mine = a.register(pattern(1, 100))

    async def main():
        with pytest.raises(tidewire.NotRegisteredError) as failure:
            await a.write(b.address, mine, 0x1000)
        return failure.value.status

    assert asyncio.run(main()).failed == 1


def test_the_loop_runs_while_a_batch_waits(stuck):
    async def main():
        batch = stuck.write()
        ticks = 0

        async def tick():
            nonlocal ticks
            while True:
                await asyncio.sleep(0.005)
                ticks += 1

        ticker = asyncio.create_task(tick())
        waiter = asyncio.ensure_future(_await(batch))
        await asyncio.sleep(0.5)
        assert not waiter.done()
        assert ticks >= 20
        stuck.go_on()
        assert (await waiter).state == State.COMPLETED
        ticker.cancel()

    asyncio.run(asyncio.wait_for(main(), 60))


async def _await(batch):
    return await batch


def test_a_cancelled_task_stops_waiting_and_the_batch_goes_on(stuck):
    async def main():
        batch = stuck.write()
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(_await(batch), 0.1)
        assert not batch.done
        stuck.go_on()
        assert (await batch).completed == 1

    before = descriptors()
    asyncio.run(main())
    assert descriptors() <= before + 1  # the batch's own, until it is freed


def test_cancelling_the_batch_ends_the_wait(stuck):
    async def main():
        batch = stuck.write()
        asyncio.get_running_loop().call_later(0.05, batch.cancel)
        with pytest.raises(tidewire.CanceledError):
            await batch

    asyncio.run(asyncio.wait_for(main(), 30))


def test_the_deadline_ends_the_wait(stuck):
    async def main():
        started = time.monotonic()
        with pytest.raises(tidewire.Error) as failure:
            await stuck.write(deadline=0.5)
        assert failure.value.code in (Code.TIMEOUT, Code.UNREACHABLE, Code.PEER_GONE)
        return time.monotonic() - started

    assert asyncio.run(asyncio.wait_for(main(), 30)) < 10


def test_the_close_of_the_engine_ends_the_wait(stuck):
    async def main():
        batch = stuck.write()
        closing = threading.Timer(0.2, stuck.engine.close)
        closing.start()
        with pytest.raises(tidewire.Error) as failure:
            await batch
        closing.join()
        assert failure.value.code in (Code.CLOSED, Code.CANCELED)

    asyncio.run(asyncio.wait_for(main(), 30))


def test_loops_of_several_threads_wait_for_one_batch(stuck):
    batch = stuck.write()
    results = []
    threads = [threading.Thread(target=lambda: results.append(asyncio.run(_await(batch)))) for _ in range(4)]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(stuck.engine._loop_waiters) == 4, "four loops wait")
    stuck.go_on()
    for thread in threads:
        thread.join(60)
    assert [result.state for result in results] == [State.COMPLETED] * 4
    assert not stuck.engine._loop_waiters
