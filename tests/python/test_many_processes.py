# SPDX-License-Identifier: Apache-2.0
"""Processes that start, fork, end and come back, over each transport: B03, B09, B20, B22, B24, B25, B28."""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import signal
import subprocess
import threading

import numpy as np
import pytest
import tidewire
from both_transports import TRANSPORTS, options, over_both
from tidewire import Code
from tidewire_testing import HARD_STOP, descriptors, pattern, target, wait_until

# A target whose buffer lies between canaries, at an address that differs from run to run.
GUARDED = """
import os, numpy as np, tidewire
engine = tidewire.Engine({options})
pad = np.zeros(int.from_bytes(os.urandom(2), "little") * 4096 + 1, np.uint8)
block = np.full(3 << 20, 0xEE, np.uint8)
region = engine.register(block[1 << 20 : 2 << 20])
def canaries():
    return bool((block[: 1 << 20] == 0xEE).all() and (block[2 << 20 :] == 0xEE).all())
def inner():
    return sorted(set(block[1 << 20 : 2 << 20].tolist()))
"""


@over_both
def test_a_target_that_is_there_later_and_one_that_restarts_in_an_orderly_way(
    engine_factory, child_factory, transport
):
    """B03, variants: the initiator is first; its target leaves and comes back four times, with its buffer elsewhere."""
    vacant = tidewire.Engine()
    address = vacant.address
    vacant.close()
    engine = engine_factory(**TRANSPORTS[transport])
    source = np.zeros(1 << 20, np.uint8)
    region = engine.register(source)
    with pytest.raises(tidewire.UnreachableError):
        engine.open(address)
    peer = None
    for turn in range(1, 5):
        child = child_factory(GUARDED.format(options=f"{address!r}, {options(transport)}"))
        base = child.eval("region.address")
        source[:] = turn
        if peer is None:
            wait_until(lambda: _succeeds(lambda: engine.open(address)), "the first contact")
            peer = engine.open(address)
        wait_until(lambda base=base: _succeeds(engine.write(peer, region, base, deadline=5).wait), "a transfer")
        assert child.eval("[canaries(), inner()]") == [True, [turn]]
        if turn % 2:
            child.run("engine.close()")  # while its process lives on
        assert child.finish() == 0
        with pytest.raises(tidewire.Error) as failure:
            engine.write(peer, region, base, deadline=30).wait()
        assert failure.value.code in (Code.PEER_GONE, Code.UNREACHABLE), failure.value


def _succeeds(call) -> bool:
    try:
        call()
        return True
    except tidewire.Error:
        return False


MANY = """
import os, threading, time, numpy as np, tidewire
def fill(a, b, turn):
    return np.random.default_rng([a, b, turn]).integers(0, 256, 65536, dtype=np.uint8)
def begin(first, each, count, go):
    global engines
    engines = [None] * each
    def one(i):
        while not os.path.exists(go):
            time.sleep(0.0005)
        made = tidewire.Engine({options})
        inbox, outbox = np.zeros((count, 65536), np.uint8), np.zeros((count, 65536), np.uint8)
        engines[i] = (made, made.register(inbox), inbox, made.register(outbox), outbox)
    threads = [threading.Thread(target=one, args=(i,)) for i in range(each)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    return [[made.address, region.address] for made, region, _, _, _ in engines]
def send(first, places, turn):
    batches = []
    for i, (made, _, _, source, outbox) in enumerate(engines):
        for to, (address, base) in enumerate(places):
            outbox[to] = fill(first + i, to, turn)
            batches.append(made.write(address, source.address + to * 65536, base + (first + i) * 65536, 65536))
    return sum(batch.wait().completed for batch in batches)
def check(first, count, turn):
    inboxes = [inbox for _, _, inbox, _, _ in engines]
    return all((inboxes[i][a] == fill(a, first + i, turn)).all() for i in range(len(inboxes)) for a in range(count))
def end():
    [made.close() for made, *_ in engines]
"""


@over_both
def test_many_engines_start_at_the_same_moment(child_factory, tmp_path, transport):
    """B09: 24 engines in four processes, started by one signal; each writes to each; the bytes name their sender."""
    processes, each, rounds = 4, 6, 3
    count = processes * each
    children = [child_factory(MANY.replace("{options}", options(transport))) for _ in range(processes)]
    for turn in range(rounds):
        go = tmp_path / f"go{turn}"
        for i, child in enumerate(children):
            child.start(f"begin({i * each}, {each}, {count}, {str(go)!r})")
        go.touch()
        places = [place for child in children for place in child.answer()]
        assert len({address for address, _ in places}) == count
        for i, child in enumerate(children):
            child.start(f"send({i * each}, {json.dumps(places)}, {turn})")
        assert [child.answer() for child in children] == [each * count] * processes
        for i, child in enumerate(children):
            child.start(f"check({i * each}, {count}, {turn})")
        assert [child.answer() for child in children] == [True] * processes
        for child in children:
            child.run("end()")


BUSY = """
import random, threading
stop, failures, received = False, [], []
def churn(seed):
    dice, memory = random.Random(seed), np.zeros(1 << 20, np.uint8)
    while not stop:
        begin = dice.randrange(1 << 19)
        try:
            with engine.register(memory[begin : begin + dice.randrange(1, 1 << 19)]):
                pass
        except BaseException as error:
            failures.append(repr(error))
def collect():
    while not stop:
        received.extend([one.name, int(one.message)] for one in engine.notifications(timeout=0.05))
threads = [threading.Thread(target=churn, args=(seed,)) for seed in (1, 2)] + [threading.Thread(target=collect)]
[thread.start() for thread in threads]
def leave():
    global stop
    stop = True
    [thread.join() for thread in threads]
    received.extend([one.name, int(one.message)] for one in engine.notifications())
    return [failures, received]
"""


@over_both
def test_everything_at_once(engine_factory, child_factory, transport):
    """B20, no sanitizer: registrations, peers that come and go, transfers checked at both ends, messages, readers."""
    piece, rounds, messages = 200_000, 40, 150
    child = child_factory(target(4 * piece, options(transport)) + BUSY)
    address, base = child.eval("[engine.address, region.address]")
    engine = engine_factory(**TRANSPORTS[transport])
    failures: list[BaseException] = []
    over = threading.Event()

    def guarded(work, *arguments):
        def run():
            try:
                work(*arguments)
            except BaseException as error:
                failures.append(error)

        return threading.Thread(target=run)

    def transfer(index):
        back = np.zeros(piece, np.uint8)
        with engine.register(back) as sink:
            for turn in range(rounds):
                data = pattern(index * 1000 + turn, piece)
                with engine.register(data) as region:
                    engine.write(address, region, base + index * piece).wait()
                back[:] = 0
                engine.read(address, sink, base + index * piece).wait()
                assert (back == data).all(), f"thread {index}, round {turn}"

    def tell(index):
        for number in range(messages):
            engine.notify(address, str(index), str(number).encode())

    def register(seed):
        dice, memory = np.random.default_rng(seed), np.zeros(1 << 20, np.uint8)
        while not over.is_set():
            begin, length = int(dice.integers(1 << 19)), int(dice.integers(1, 1 << 19))
            engine.register(memory[begin : begin + length]).close()

    def meet(seed):
        while not over.is_set():
            with tidewire.Engine(**TRANSPORTS[transport]) as other:
                buffer = other.register(np.zeros(1000, np.uint8))
                mine = engine.register(pattern(seed, 1000))
                peer = engine.open(other.address)
                engine.write(peer, mine, buffer.address).wait()
                assert (buffer._obj == mine._obj).all()
                peer.close()
                mine.close()

    def look():
        while not over.is_set():
            assert engine.open(address).first_region()[1] > 0
            engine.status()
            engine.probe(address)

    workers = [guarded(transfer, i) for i in range(4)] + [guarded(tell, i) for i in range(2)]
    others = [guarded(register, i) for i in range(2)] + [guarded(meet, i) for i in range(4)]
    others += [guarded(look) for _ in range(8)]
    for thread in workers + others:
        thread.start()
    for thread in workers:
        thread.join(HARD_STOP)
    over.set()
    for thread in others:
        thread.join(HARD_STOP)
    assert not any(thread.is_alive() for thread in workers + others), "a deadlock"
    assert not failures, failures[0]
    theirs, received = child.eval("leave()")
    assert theirs == []
    for index in range(2):
        assert [number for name, number in received if name == str(index)] == list(range(messages))


@over_both
def test_engines_that_connect_and_leave_leave_nothing_at_their_peer(child_factory, transport):
    """B22: cycles of connect and close; descriptors, threads and /dev/shm of both sides come back to their level."""
    child = child_factory(target(1 << 16, options(transport)))
    child.run("import os")
    address, base = child.eval("[engine.address, region.address]")
    level = "[len(os.listdir('/proc/self/fd')), len(os.listdir('/proc/self/task'))]"

    def cycle():
        with tidewire.Engine(**TRANSPORTS[transport]) as engine:
            engine.write(address, engine.register(pattern(1, 1000)), base).wait()

    def cycles():
        for _ in range(25):
            cycle()

    cycles()
    theirs, mine, shm = child.eval(level), descriptors(), sorted(os.listdir("/dev/shm"))
    threads = [threading.Thread(target=cycles) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HARD_STOP)
    wait_until(lambda: all(now <= then for now, then in zip(child.eval(level), theirs)), "the target's level")
    wait_until(lambda: descriptors() <= mine, "this process's level")
    assert sorted(os.listdir("/dev/shm")) == shm


def _ended(pid: int, status: list[int]) -> bool:
    done, code = os.waitpid(pid, os.WNOHANG)
    if done:
        status.append(code)
    return bool(done)


@over_both
def test_forks_while_transfers_run(engine_factory, child_factory, transport):
    """B24: children that exit, call the parent's engine, or make their own, while the parent writes and checks."""
    child = child_factory(target(2 << 20, options(transport)))
    address, base = child.eval("[engine.address, region.address]")
    engine = engine_factory(**TRANSPORTS[transport])
    data = pattern(1, 1 << 20)
    back = np.zeros(1 << 20, np.uint8)
    region, sink, peer = engine.register(data), engine.register(back), engine.open(address)
    stop, failures, turns = threading.Event(), [], []

    def transfer():
        try:
            while not stop.is_set():
                data[: 1 << 10] = pattern(len(turns), 1 << 10)
                engine.write(peer, region, base).wait()
                engine.read(peer, sink, base).wait()
                assert (back == data).all()
                turns.append(1)
        except BaseException as error:
            failures.append(error)

    def only_exit():
        return 0

    def call_the_parents():
        try:
            engine.write(peer, region, base)
        except tidewire.ForkedError:
            return 0
        return 1

    def make_its_own():
        with tidewire.Engine(**TRANSPORTS[transport]) as own:
            mine = own.register(pattern(7, 1000))
            return 0 if own.write(address, mine, base + (1 << 20)).wait().transferred_bytes == 1000 else 1

    thread = threading.Thread(target=transfer)
    thread.start()
    try:
        for turn in range(12):
            before = len(turns)
            pid = os.fork()
            if pid == 0:
                code = 2
                try:
                    code = (only_exit, call_the_parents, make_its_own)[turn % 3]()
                finally:
                    os._exit(code)
            # While the child holds copies of all descriptors, and after it has closed them.
            status = []
            wait_until(lambda pid=pid, status=status: _ended(pid, status), "the child's end")
            assert status == [0], ("exit", "call", "own engine")[turn % 3]
            wait_until(lambda before=before: failures or len(turns) > before + 2, "the parent's transfers go on")
    finally:
        stop.set()
        thread.join(HARD_STOP)
    assert not failures, failures[0]
    assert child.eval(f"digest({1 << 20}, 1000)") == hashlib.sha256(pattern(7, 1000).tobytes()).hexdigest()


def thread_ids(pid: int) -> list[int]:
    return sorted(int(name) for name in os.listdir(f"/proc/{pid}/task"))


def send_to_thread(pid: int, thread: int, number: int) -> None:
    """tgkill; the C library has a name for it only since glibc 2.30, the system call is older."""
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.syscall(234, pid, thread, number) == 0, os.strerror(ctypes.get_errno())


QUEUED = """
import os, signal, sys, time, numpy as np, tidewire
engine = tidewire.Engine(settings={{'lane.stall_timeout': '60s'{same_host}}}, protocol={protocol!r})
memory = np.ones(64 << 20, np.uint8)
region = engine.register(memory)
def meet(address, base):
    engine.write(address, region.address, base, 64).wait()
    return [engine.address, region.address]
def fill(address, base):
    global batches
    batches = [engine.write(address, region, base, deadline=100) for _ in range(100)]
"""


@over_both
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("handled", [False, True], ids=["default", "handled"])
def test_a_signal_ends_a_process_whose_queue_is_full(
    engine_factory, child_factory, transport, number, handled
):
    """B25: a hundred requests wait for a stopped peer. Right exit status, also with two signals; peers hear of it."""
    stopped = child_factory(target(64 << 20, options(transport)))
    address, base = stopped.eval("[engine.address, region.address]")
    same_host = ", 'same_host': False" if transport == "tcp" else ""
    child = child_factory(QUEUED.format(same_host=same_host, protocol=TRANSPORTS[transport]["protocol"]))
    own, mine = child.eval(f"meet({address!r}, {base})")
    engine = engine_factory(**TRANSPORTS[transport])
    here = engine.register(bytearray(4096))
    engine.read(own, here, mine).wait()
    os.kill(stopped.pid, signal.SIGSTOP)
    try:
        child.run(f"fill({address!r}, {base})")
        child.run(f"signal.signal({int(number)}, signal.SIG_DFL)")
        if handled:
            child.run(
                "seen = []\n"
                "def end(number, frame):\n"
                "    seen.append(number)\n"
                "    if len(seen) == 1: sys.exit(7)\n"
                f"signal.signal({int(number)}, end)\n"
                "def leave():\n"
                "    try: time.sleep(100)\n"
                "    except SystemExit as end: engine.close(); os._exit(end.code)\n"
            )
            child.start("leave()")
        child.process.send_signal(number)
        if handled:
            try:
                child.process.send_signal(number)
            except ProcessLookupError:
                pass
        assert child.process.wait(HARD_STOP) == (7 if handled else -number)
    finally:
        os.kill(stopped.pid, signal.SIGCONT)
    with pytest.raises(tidewire.Error) as failure:
        engine.read(own, here, mine, deadline=30).wait()
    assert failure.value.code in (Code.PEER_GONE, Code.UNREACHABLE), failure.value


def waiting_program(child_factory, number):
    """A process with an engine, a waiting main thread and another; (child, its threads, the library's threads)."""
    child = child_factory("import os, signal, threading, time")
    child.run(f"signal.signal({int(number)}, signal.SIG_DFL)")
    child.run("thread = threading.Thread(target=time.sleep, args=(100,), daemon=True); thread.start()")
    own = child.eval("[os.getpid(), thread.native_id]")
    child.run("import tidewire; engine = tidewire.Engine(); memory = engine.allocate(4096)")
    return child, own, [one for one in thread_ids(child.pid) if one not in own]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("which", [0, 1], ids=["main", "other"])
def test_a_signal_to_one_thread_of_the_program_ends_it(child_factory, which, number):
    """B25: tgkill to the main thread and to another thread of the program, beside a running engine."""
    child, own, _ = waiting_program(child_factory, number)
    send_to_thread(child.pid, own[which], number)
    assert child.process.wait(HARD_STOP) == -number


def test_a_signal_to_one_thread_of_the_library_ends_the_program(child_factory):
    """B25: tgkill to each thread of the library, a process for each."""
    child, _, threads = waiting_program(child_factory, signal.SIGTERM)
    assert threads
    for index in range(len(threads)):
        send_to_thread(child.pid, threads[index], signal.SIGTERM)
        assert child.process.wait(HARD_STOP) == -signal.SIGTERM
        child, _, threads = waiting_program(child_factory, signal.SIGTERM)


def test_a_restart_of_the_receiver_loses_no_notification_silently(engine_factory, child_factory):
    """B28: eight threads have sent; the receiver is killed and comes back; what was delivered is there, in order."""
    receiver = "import tidewire\nengine = tidewire.Engine({name!r})\n"
    child = child_factory(receiver.format(name="127.0.0.1"))
    address = child.eval("engine.address")
    engine = engine_factory()
    threads = [threading.Thread(target=engine.notify, args=(address, "before")) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HARD_STOP)
    assert len(child.eval("[one.name for one in engine.notifications()]")) == 8
    for _ in range(3):
        child.kill()
        child = child_factory(receiver.format(name=address))
        delivered, failed = [], 0
        for number in range(30):
            try:
                engine.notify(address, "after", str(number).encode(), timeout=20)
                delivered.append(number)
            except tidewire.Error as error:
                assert error.code in (Code.PEER_GONE, Code.UNREACHABLE), error
                failed += 1
                engine.probe(address)
        assert child.eval("[int(one.message) for one in engine.notifications()]") == delivered
        assert failed <= 1
