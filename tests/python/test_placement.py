# SPDX-License-Identifier: Apache-2.0
"""Where bytes come to lie, between two processes over each transport: B01, B05, B12 to B15 and B28 of the scenarios."""

from __future__ import annotations

import hashlib
import mmap
import threading

import numpy as np
import pytest
import tidewire
from both_transports import TRANSPORTS, options, over_both
from tidewire import Code
from tidewire_testing import HARD_STOP, pattern, target

RECEIVER = """
def receive(count):
    wrong, seen = [], []
    while len(seen) < count:
        found = engine.notifications(timeout=60)
        if not found:
            break
        for one in found:
            # At once: data that is still on its way must show.
            slot, length, sha, padding = one.message.split(b"\\0", 3)
            slot, length = int(slot), int(length)
            if digest(slot * 40_000, length) != sha.decode():
                wrong.append(f"data of slot {slot}")
            if padding != np.random.default_rng(slot).bytes(len(padding)):
                wrong.append(f"message of slot {slot}")
            seen.append([one.name, slot])
    return [wrong, seen]
"""


@over_both
def test_a_notification_never_overtakes_its_data(engine_factory, child_factory, transport):
    """B01, B28: eight threads; messages to 64 KiB with NUL bytes, each once, in its thread's order, after its data."""
    threads_count, each, room = 8, 40, 40_000
    count = threads_count * each
    child = child_factory(target(count * room, options(transport)) + RECEIVER)
    address, base = child.eval("[engine.address, region.address]")
    engine = engine_factory(**TRANSPORTS[transport])
    source = pattern(1, count * room)
    region, peer = engine.register(source), engine.open(address)
    failures = []

    def send(thread):
        try:
            for turn in range(each):
                slot = thread * each + turn
                length = 1 + slot * 7919 % room
                offset = slot * room
                sha = hashlib.sha256(source[offset : offset + length].tobytes()).hexdigest()
                head = f"{slot}\0{length}\0{sha}\0".encode()
                message = head + np.random.default_rng(slot).bytes(slot * 331 % (65_536 - len(head) + 1))
                cut = length // 3
                engine.write(
                    peer,
                    [region.address + offset + cut, region.address + offset],
                    [base + offset + cut, base + offset],
                    [length - cut, cut],
                    notify=(str(thread), message),
                ).wait()
        except BaseException as error:
            failures.append(error)

    child.start(f"receive({count})")
    threads = [threading.Thread(target=send, args=(thread,)) for thread in range(threads_count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HARD_STOP)
    assert not failures, failures[0]
    wrong, seen = child.answer()
    assert wrong == []
    for thread in range(threads_count):
        assert [slot for name, slot in seen if name == str(thread)] == list(range(thread * each, (thread + 1) * each))
    assert child.eval("len(engine.notifications(timeout=0.05))") == 0


@over_both
def test_what_a_peer_registers_and_unregisters_is_followed(engine_factory, child_factory, transport):
    """B05: no second open; memory that is no longer registered stays as it is; who left is gone, its successor new."""
    child = child_factory(target(1 << 20, options(transport)))
    address, first = child.eval("[engine.address, region.address]")
    engine = engine_factory(**TRANSPORTS[transport])
    data = pattern(2, 1 << 20)
    source, peer = engine.register(data), engine.open(address)
    sha = hashlib.sha256(data.tobytes()).hexdigest()
    engine.write(peer, source, first).wait()
    assert child.eval("digest()") == sha

    child.run("second = np.zeros(1 << 20, np.uint8); other = engine.register(second)")
    engine.write(peer, source, child.eval("other.address")).wait()
    assert child.eval("hashlib.sha256(second.tobytes()).hexdigest()") == sha

    child.run("region.close(); memory[:] = 0xEE")
    with pytest.raises(tidewire.NotRegisteredError):
        engine.write(peer, source, first).wait()
    assert child.eval("bool((memory == 0xEE).all())")
    engine.write(peer, source, child.eval("other.address")).wait()  # the refusal was of that range, not of the peer

    for leave in (lambda: child.finish(), lambda: child.kill()):
        leave()
        for call in (lambda: engine.open(address), lambda: engine.write(peer, source, first, deadline=30).wait()):
            with pytest.raises(tidewire.Error) as failure:
                call()
            assert failure.value.code in (Code.PEER_GONE, Code.UNREACHABLE), failure.value
            assert address in str(failure.value)
        child = child_factory(target(2 << 20, f"{address!r}, {options(transport)}"))
        first = child.eval("region.address")
        engine.probe(address)
        assert engine.open(address).first_region() == (first, 2 << 20)
        engine.write(peer, source, first).wait()
        assert child.eval(f"digest(0, {1 << 20})") == sha


@over_both
def test_nothing_to_do_and_nothing_to_register(engine_factory, child_factory, transport):
    """B12: what is refused leaves the peer's memory usable; an empty batch's notification arrives."""
    child = child_factory(target(4096, options(transport)))
    address, base = child.eval("[engine.address, region.address]")
    child.run("""
def refused(what):
    try:
        engine.register(what)
    except tidewire.InvalidArgumentError:
        return True
""")
    assert child.eval("[refused((memory.ctypes.data, 0)), refused((0, 4096)), refused(memory[:0])]") == [True] * 3
    engine = engine_factory(**TRANSPORTS[transport])
    source, peer = engine.register(pattern(3, 4096)), engine.open(address)
    for operation in (engine.write, engine.read):
        assert operation(peer, [], [], [], notify=("empty", b"")).wait().transferred_bytes == 0
        assert child.eval("[[n.name, len(n.message)] for n in engine.notifications()]") == [["empty", 0]]
        assert operation(peer, 1, 1, 0).wait().completed == 1  # zero bytes of nowhere
        status = operation(
            peer, [source.address, 1, source.address + 100], [base, 1, base + 100], [100, 0, 3996]
        ).wait()
        assert (status.completed, status.transferred_bytes) == (3, 4096)
    assert child.eval("digest()") == hashlib.sha256(pattern(3, 4096).tobytes()).hexdigest()


@over_both
def test_a_range_that_eight_threads_register_stays_usable_until_the_last_unregisters(
    engine_factory, child_factory, transport
):
    """B13, while a peer writes to it all the time."""
    engine = engine_factory(**TRANSPORTS[transport])
    memory = np.zeros(1 << 20, np.uint8)
    kept = engine.register(memory)
    child = child_factory(target(1 << 20, options(transport)))
    child.run(f"memory[:] = 7; peer = engine.open({engine.address!r}); stop = False")
    child.run(f"""
import threading
outcomes = []
def loop():
    while not stop:
        try:
            engine.write(peer, region, {kept.address}).wait()
            outcomes.append("ok")
        except tidewire.Error as error:
            outcomes.append(error.code.name)
thread = threading.Thread(target=loop); thread.start()
""")
    try:
        for _ in range(40):
            barrier, regions, failures = threading.Barrier(8), [], []

            def register(barrier=barrier, regions=regions, failures=failures):
                barrier.wait(HARD_STOP)
                try:
                    regions.append(engine.register(memory))
                    with pytest.raises(tidewire.OverlapError):
                        engine.register(memory[100:200])
                    regions.pop().close()
                except BaseException as error:
                    failures.append(error)

            threads = [threading.Thread(target=register) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(HARD_STOP)
            assert not failures, failures[0]
    finally:
        child.run("stop = True; thread.join(60)")
    assert child.eval("set(outcomes) == {'ok'}"), child.eval("[one for one in outcomes if one != 'ok'][:5]")
    assert (memory == 7).all()
    kept.close()
    memory[:] = 0
    child.run("stop = False; outcomes.clear()")
    with pytest.raises(RuntimeError, match="NotRegistered"):
        child.run(f"engine.write(peer, region, {memory.ctypes.data}).wait()")
    assert not memory.any()


def available_memory() -> int:
    with open("/proc/meminfo") as lines:
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable"))


@over_both
def test_one_request_past_four_gibibytes_between_processes(engine_factory, child_factory, transport):
    """B14: exact counts and bytes, also at an offset past 4 GiB; nothing beside. The source is holes but for marks."""
    room, nbytes = 5 << 30, (4 << 30) + 1
    if available_memory() < room + (3 << 30):
        pytest.skip("not enough memory")
    child = child_factory(target(room, options(transport)))
    address, base = child.eval("[engine.address, region.address]")
    engine = engine_factory(**TRANSPORTS[transport])
    holes = mmap.mmap(-1, room, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    source = np.frombuffer(holes, np.uint8)
    marks = [0, 1, (2 << 30) - 1, 2 << 30, (4 << 30) - 1, 4 << 30]
    for value, mark in enumerate(marks):
        source[mark] = value + 1
    region, peer = engine.register(source), engine.open(address)
    status = engine.write(peer, region, base, nbytes, deadline=60).wait()
    assert status.transferred_bytes == nbytes
    far = (4 << 30) + 4096
    source[far : far + 10_000] = pattern(4, 10_000)
    assert engine.write(peer, region.address + far, base + far, 10_000).wait().transferred_bytes == 10_000
    assert child.eval(f"[int(memory[mark]) for mark in {marks}]") == [1, 2, 3, 4, 5, 6]
    assert child.eval(f"digest({far}, 10_000)") == hashlib.sha256(pattern(4, 10_000).tobytes()).hexdigest()
    child.run(f"memory[{marks}] = 0; memory[{far} : {far} + 10_000] = 0")
    assert child.eval("int(memory.view(np.uint64).max())") == 0
    region.close()
    del source, region


@over_both
def test_sizes_around_every_power_of_two_up_to_the_lanes_window(engine_factory, child_factory, transport):
    """B15: one byte less, as many and one more than any slice, chunk or window; both directions, with canaries."""
    canary, most = 64, (16 << 20) + 1
    child = child_factory(target(most + 2 * canary + 8, options(transport)))
    address, base = child.eval("[engine.address, region.address]")
    engine = engine_factory(**TRANSPORTS[transport])
    mine = np.zeros(most + 2 * canary + 8, np.uint8)
    region, peer = engine.register(mine), engine.open(address)
    data = pattern(5, most)
    for power in range(13, 25):
        for size in ((1 << power) - 1, 1 << power, (1 << power) + 1):
            shift = size % 8
            at = canary + shift
            expected = np.full(size + 2 * canary + 8, 0xEE, np.uint8)
            expected[at : at + size] = data[:size]
            child.run(f"memory[: {expected.size}] = 0xEE")
            mine[:size] = data[:size]
            assert engine.write(peer, region, base + at, size).wait().transferred_bytes == size
            assert child.eval(f"digest(0, {expected.size})") == hashlib.sha256(expected.tobytes()).hexdigest(), size
            mine[: expected.size] = 0xEE
            engine.read(peer, region.address + at, base + at, size).wait()
            assert (mine[: expected.size] == expected).all(), size
