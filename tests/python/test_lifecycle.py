# SPDX-License-Identifier: Apache-2.0
"""Beginnings and ends: fork, interpreter exit in every order, signals, collection, threads and the interpreter lock."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
import weakref

import numpy as np
import pytest
import tidewire
from tidewire import Code, State
from tidewire_testing import HARD_STOP, descriptors, environment, pattern, run_script, target, wait_until


def in_child(action):
    """Runs ``action`` in a forked child; what it returned as text, or how it failed."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reader)
            try:
                text = str(action())
            except BaseException as error:
                text = f"{type(error).__name__}: {error}"
            os.write(writer, text.encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as answers:
        end = time.monotonic() + HARD_STOP
        while time.monotonic() < end:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                assert status == 0, f"the child ended with status {status}"
                return answers.read().decode()
            time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    raise AssertionError("the child hung")


# -- fork --


def test_a_forked_child_gets_an_error_from_every_call_and_harms_nothing(pair):
    a, b = pair
    buffer = a.allocate(4096)
    region = a.register(bytearray(4096))
    theirs = b.register(bytearray(4096))
    peer = a.open(b.address)
    batch = a.write(peer, region, theirs.address)
    batch.wait()
    calls = {
        "write": lambda: a.write(peer, region, theirs.address),
        "read": lambda: a.read(b.address, region, theirs.address),
        "register": lambda: a.register(bytearray(8)),
        "allocate": lambda: a.allocate(8),
        "view": buffer.view,
        "open": lambda: a.open(b.address),
        "probe": lambda: a.probe(b.address),
        "notify": lambda: a.notify(peer, "x"),
        "notifications": a.notifications,
        "status": a.status,
        "first_region": peer.first_region,
        "transfer_status": lambda: batch.transfer_status(0),
        "copy_in": lambda: a.copy_in(buffer, b"x"),
    }

    def child():
        kinds = set()
        for name, call in calls.items():
            try:
                call()
                kinds.add(f"{name} did not fail")
            except tidewire.Error as error:
                kinds.add(error.code.name)
        return sorted(kinds)

    assert in_child(child) == "['FORKED']"
    assert "belongs to process" in in_child(a.notifications)
    # The raw C interface says the same, for children that were not made by Python's fork.
    assert in_child(lambda: tidewire._native.lib.tw_unregister(a._handle, region.address)) == str(int(Code.FORKED))

    def clean_up():
        batch.close(), buffer.close(), region.close(), peer.close(), a.close(), b.close()
        gc.collect()

    assert in_child(clean_up) == "None"
    assert a.write(peer, region, theirs.address).wait().completed == 1


def test_a_forked_child_makes_engines_of_its_own(pair):
    a, b = pair
    theirs = b.register(np.zeros(1000, np.uint8))
    data = pattern(5, 1000)

    def child():
        engine = tidewire.Engine()
        try:
            engine.write(b.address, engine.register(data), theirs.address).wait()
            return engine.port
        finally:
            engine.close()

    assert in_child(child).isdigit()
    assert (theirs._obj == data).all()


def test_children_that_only_exit_leave_the_parent_alone(pair):
    a, b = pair
    mine, theirs = a.register(pattern(1, 1 << 20)), b.register(bytearray(1 << 20))
    peer = a.open(b.address)
    script_failed = []

    def transfer():
        try:
            for _ in range(200):
                a.write(peer, mine, theirs.address).wait()
        except BaseException as error:
            script_failed.append(error)

    thread = threading.Thread(target=transfer)
    thread.start()
    for index in range(10):
        pid = os.fork()
        if pid == 0:
            if index % 2:
                os._exit(0)
            os.execv("/bin/true", ["true"])
        assert os.waitpid(pid, 0)[1] == 0
    thread.join(HARD_STOP)
    assert not script_failed and not thread.is_alive()


def test_a_forked_child_that_ends_as_a_program_does():
    result = run_script(
        "import os, tidewire\n"
        "engine = tidewire.Engine(); other = tidewire.Engine(); buffer = engine.allocate(4096)\n"
        "pid = os.fork()\n"
        "if pid:\n"
        "    print('status', os.waitpid(pid, 0)[1])\n"
        "    mine = engine.register(bytearray(8)); theirs = other.register(bytearray(8))\n"
        "    print(engine.write(other.address, mine, theirs.address).wait().completed)\n"
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "status 0\n1\n", "")


def test_data_loaders_that_fork():
    result = run_script(
        "import multiprocessing as mp, tidewire\n"
        "engine, other = tidewire.Engine(), tidewire.Engine()\n"
        "mine, theirs = engine.register(bytearray(1000)), other.register(bytearray(1000))\n"
        "def work(n): return n * n\n"
        "with mp.get_context('fork').Pool(4) as pool:\n"
        "    work_done = pool.map_async(work, range(100))\n"
        "    for _ in range(50): engine.write(other.address, mine, theirs.address).wait()\n"
        "    print(sum(work_done.get(30)))\n"
    )
    assert (result.returncode, result.stdout) == (0, "328350\n"), result.stderr


# -- the end of the interpreter --

OPENING = """
import sys, time, threading, asyncio
import numpy as np, tidewire
a, b = tidewire.Engine(), tidewire.Engine()
buffer = b.allocate(1 << 20)
data = np.ones(1 << 20, np.uint8)
region = a.register(data)
peer = a.open(b.address)
batch = a.write(peer, region, buffer.address)
"""

ENDINGS = {
    "nothing is closed": "",
    "a view is alive": "view = np.frombuffer(buffer.view(), np.uint8)",
    "a view is alive beside a daemon thread": (
        "view = np.frombuffer(buffer.view(), np.uint8)\n"
        "def touch():\n"
        "    while True: view[:] = 1\n"
        "threading.Thread(target=touch, daemon=True).start()"
    ),
    "engines go first": "a.close(); b.close()",
    "engines go last": "del batch, peer, region, buffer; a.close(); b.close()",
    "target goes first": "batch.wait(); b.close(); del b",
    "cycles": "for thing in (a, b): thing.me = thing\ndata = [a, b, buffer, region, batch]; data.append(data)",
    "an exit in the middle": "sys.exit(0)",
    "collected": "del a, b, buffer, data, region, peer, batch\nimport gc; gc.collect()",
    "a daemon thread waits": (
        "def wait():\n"
        "    try: b.notifications(timeout=100)\n"
        "    except tidewire.ClosedError: pass\n"
        "threading.Thread(target=wait, daemon=True).start(); time.sleep(0.05)"
    ),
    "a thread transfers until the end": (
        "def loop():\n"
        "    for _ in range(100): a.write(peer, region, buffer.address).wait()\n"
        "threading.Thread(target=loop).start()"
    ),
    "an atexit function uses the engine": (
        "import atexit; atexit.register(lambda: a.write(peer, region, buffer.address).wait())"
    ),
    "module attributes": "sys.modules['tidewire'].kept = (batch, buffer, a, region); del batch, buffer, a, region",
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_the_interpreter_ends_cleanly_in_every_order(ending):
    result = run_script(OPENING + ENDINGS[ending] + "\nprint('end', flush=True)\n")
    expected = "" if "sys.exit" in ENDINGS[ending] else "end\n"
    assert (result.returncode, result.stdout) == (0, expected), result.stderr
    assert "Error" not in result.stderr and "Traceback" not in result.stderr


@pytest.mark.parametrize(
    "order", ["import tidewire, numpy", "import numpy, tidewire", "import asyncio, tidewire, logging"]
)
def test_import_orders(order):
    assert run_script(order + "\nengine = tidewire.Engine()\n").returncode == 0


def test_a_peer_is_told_of_the_end(child_factory, engine_factory):
    child = child_factory(target(1 << 20))
    address, base = child.eval("[engine.address, region.address]")
    engine = engine_factory()
    source = engine.register(bytearray(1 << 20))
    engine.write(address, source, base).wait()
    assert child.finish() == 0
    started = time.monotonic()
    with pytest.raises(tidewire.Error) as failure:
        engine.write(address, source, base, deadline=20).wait()
    assert failure.value.code in (Code.PEER_GONE, Code.UNREACHABLE)
    assert time.monotonic() - started < 10


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_end_a_waiting_program_as_they_always_do(child_factory, number):
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import tidewire\nengine = tidewire.Engine()\nprint('up', flush=True)\nengine.notifications(timeout=100)",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
        text=True,
    )
    try:
        assert process.stdout.readline() == "up\n"
        time.sleep(0.1)
        process.send_signal(number)
        _, errors = process.communicate(timeout=30)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    assert process.returncode == -number
    assert ("KeyboardInterrupt" in errors) == (number == signal.SIGINT)


def test_the_application_keeps_its_signal_handlers():
    result = run_script(
        "import os, signal, tidewire\n"
        "seen = []\n"
        "for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP):\n"
        "    signal.signal(number, lambda n, f: seen.append(n))\n"
        "with tidewire.Engine() as engine:\n"
        "    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP): os.kill(os.getpid(), number)\n"
        "    engine.notifications(timeout=0.01)\n"
        "print(sorted(seen))\n"
    )
    assert (result.returncode, result.stdout) == (0, "[1, 10, 15]\n")


# -- close and collection --


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


# -- threads and the interpreter lock --


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


class Counter:
    """A thread that counts: how far it comes shows how much of the interpreter it gets."""

    def __init__(self):
        self.count, self.stop = 0, False
        self.thread = threading.Thread(target=self._run)

    def _run(self):
        while not self.stop:
            self.count += 1

    def rate(self, seconds, during=lambda: None):
        """Counts a second while ``during`` runs in threads of its own."""
        self.count, self.stop = 0, False
        self.thread = threading.Thread(target=self._run)
        started = time.monotonic()
        self.thread.start()
        during()
        time.sleep(max(0, seconds - (time.monotonic() - started)))
        self.stop = True
        self.thread.join()
        return self.count / (time.monotonic() - started)


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


def test_ctrl_c_ends_a_wait(stuck):
    batch = stuck.write()
    timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        batch.wait()
    timer.join()
    assert time.monotonic() - started < 10
    assert not batch.done
