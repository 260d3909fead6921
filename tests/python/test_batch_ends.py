# SPDX-License-Identifier: Apache-2.0
"""How batches end when something goes wrong, over each transport: B17 and B18 of the scenarios."""

from __future__ import annotations

import ctypes
import os
import signal

import numpy as np
import pytest
import tidewire
from both_transports import TRANSPORTS, options, over_both
from tidewire import Code, State
from tidewire_testing import pattern, target


@over_both
def test_of_a_hundred_transfers_to_three_peers_only_the_bad_ones_fail(engine_factory, child_factory, transport):
    """B17: one unregistered, one to a dead peer, one to a stopped peer; the batch ends with the last of them."""
    piece = 10_000
    good = child_factory(target(100 * piece, options(transport)))
    dead, stopped = (child_factory(target(piece, options(transport))) for _ in range(2))
    engine = engine_factory(**TRANSPORTS[transport])
    names = [child.eval("[engine.address, region.address]") for child in (good, dead, stopped)]
    peers = [engine.open(name) for name, _ in names]
    bases = [base for _, base in names]
    source = pattern(1, 100 * piece)
    region = engine.register(source)
    dead.kill()
    os.kill(stopped.pid, signal.SIGSTOP)
    os.waitpid(stopped.pid, os.WUNTRACED)  # until then it still answers
    try:
        where = {20: (0, 0x1000), 50: (1, bases[1]), 80: (2, bases[2])}
        Transfer = tidewire._native.Transfer
        transfers = (Transfer * 100)()
        for i in range(100):
            peer, remote = where.get(i, (0, bases[0] + i * piece))
            transfers[i] = Transfer(1, 0, region.address + i * piece, peers[peer]._handle, remote, piece)
        lib, handle = tidewire._native.lib, ctypes.c_uint64()
        submit = tidewire._native.SubmitOptions(ctypes.sizeof(tidewire._native.SubmitOptions), 3 * 10**9, None, None, 0)
        tidewire.check(lib.tw_submit(engine._handle, transfers, 100, ctypes.byref(submit), ctypes.byref(handle)))
        status, one = tidewire._native.BatchStatus(), tidewire._native.TransferStatus()

        # While the transfer to the stopped peer may still go on, the batch is neither terminal nor to be freed.
        lib.tw_batch_poll(handle, ctypes.byref(status))
        while status.completed < 97:
            assert not State(status.state).terminal
            assert lib.tw_batch_wait(handle, 10_000_000, ctypes.byref(status)) == Code.BUSY
            assert lib.tw_batch_release(handle) == Code.BUSY
        assert lib.tw_batch_wait(handle, 60 * 10**9, ctypes.byref(status)) == Code.PARTIAL
        assert (status.completed, status.failed, status.state) == (97, 3, State.FAILED)
        codes = {}
        for i in range(100):
            tidewire.check(lib.tw_batch_transfer_status(handle, i, ctypes.byref(one)))
            assert State(one.state).terminal
            assert (one.state == State.COMPLETED) == (i not in where), i
            assert one.transferred_bytes == (piece if i not in where else 0), i
            codes[i] = Code(one.code)
        assert codes[20] == Code.NOT_REGISTERED
        assert codes[50] in (Code.PEER_GONE, Code.UNREACHABLE)
        assert codes[80] in (Code.TIMEOUT, Code.UNREACHABLE)
        assert lib.tw_batch_release(handle) == 0
        assert lib.tw_batch_release(handle) == Code.NOT_FOUND
        expected = source.reshape(100, piece).copy()
        expected[list(where)] = 0
        import hashlib

        assert good.eval("digest()") == hashlib.sha256(expected.tobytes()).hexdigest()
    finally:
        os.kill(stopped.pid, signal.SIGCONT)
    assert stopped.eval("bool(memory.any())") is False


PIECES, PIECE = 8, 16 << 20
TIMES = 12  # each piece goes so often in a batch that the end comes while most of it is still to be done
ENDINGS = ["cancel", "deadline", "close the peer", "close the engine"]


def end(engine, peer, batches, ending):
    """Brings all to their end; the codes of those that failed."""
    if ending == "cancel":
        for batch in batches:
            batch.cancel()
    elif ending == "close the peer":
        peer.close()
    elif ending == "close the engine":
        engine.close()
    codes = set()
    for batch in batches:
        try:
            batch.wait(timeout=60)
            codes.add(Code.OK)
        except tidewire.Error as error:
            codes.add(error.code)
    return codes


@over_both
@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("opcode", ["write", "read"])
def test_memory_belongs_to_the_caller_again_once_a_batch_has_ended(child_factory, transport, ending, opcode):
    """B18: what the caller writes to its memory after the end is neither sent nor overwritten by what still comes."""
    child = child_factory(target(PIECES * PIECE, options(transport)))
    address, base = child.eval("[engine.address, region.address]")
    mine = np.zeros(PIECES * PIECE, np.uint8)
    ended_early = False
    for turn in range(6):
        with tidewire.Engine(**TRANSPORTS[transport]) as engine, tidewire.Engine(**TRANSPORTS[transport]) as witness:
            region, peer = engine.register(mine), engine.open(address)
            engine.read(peer, region, base, 64).wait()  # the channels are up
            child.run(f"memory[:] = {0 if opcode == 'write' else 1}")
            mine[:] = 1 if opcode == "write" else 0
            deadline = 0.002 * turn if ending == "deadline" else 30
            batches = [
                getattr(engine, opcode)(
                    peer,
                    [region.address + i * PIECE] * TIMES,
                    [base + i * PIECE] * TIMES,
                    PIECE,
                    deadline=deadline or 1e-6,
                )
                for i in range(PIECES)
            ]
            codes = end(engine, peer, batches, ending)
            assert codes <= {Code.OK, Code.CANCELED, Code.CLOSED, Code.TIMEOUT, Code.PARTIAL}, codes
            ended_early = ended_early or codes != {Code.OK}
            mine[:] = 2
            # Whatever is still under way has come after this: a transfer of another engine, over the same path.
            for _ in range(3):
                witness.write(address, witness.register(bytearray(b"\1")), base).wait()
            if opcode == "write":
                assert child.eval("int(memory.max())") <= 1, "bytes that the caller wrote after the end were sent"
            else:
                assert int(mine.min()) == 2, "bytes came to memory that was the caller's again"
            if not engine.closed:
                mine[:] = 1
                engine.write(address, region, base).wait()  # the engine goes on
                assert child.eval("bool((memory == 1).all())")
    # Closing a peer lets what runs go on; the others have to have caught something under way, or nothing was shown.
    assert ended_early or ending == "close the peer"


def close_under_transfers(child_factory, engine, transport, opcode, region, mine):
    """A target closes while it is written to or read; the codes of the batches. Checks every byte on both sides."""
    child = child_factory(target(PIECES * PIECE, options(transport)))
    address, base = child.eval("[engine.address, region.address]")
    child.run("memory[:] = 3")
    child.run("def leave():\n    engine.close()\n    memory[:] = 0x55\n")
    peer = engine.open(address)
    engine.read(peer, region, base, 64).wait()
    mine[:] = 1
    batches = [
        getattr(engine, opcode)(peer, region.address + i % PIECES * PIECE, base + i % PIECES * PIECE, PIECE)
        for i in range(3 * PIECES)
    ]
    batches[0].wait(timeout=60)
    child.start("leave()")
    codes, done = set(), set()
    for i, batch in enumerate(batches):
        try:
            batch.wait(timeout=60)
            done.add(i % PIECES)
        except tidewire.Error as error:
            codes.add(error.code)
    child.answer()
    assert child.eval("bool((memory == 0x55).all())"), "bytes were written after close returned"
    if opcode == "read":
        for piece in done:
            assert (mine[piece * PIECE : (piece + 1) * PIECE] == 3).all()
    child.kill()
    return codes


@over_both
@pytest.mark.parametrize("opcode", ["write", "read"])
def test_no_byte_comes_to_memory_of_an_engine_that_has_closed(engine_factory, child_factory, transport, opcode):
    """B18, B25: what the target's owner does with its memory after close stays; reads meanwhile are right or fail."""
    engine = engine_factory(**TRANSPORTS[transport])
    mine = np.ones(PIECES * PIECE, np.uint8)
    region = engine.register(mine)
    codes = set()
    for _ in range(4):
        codes |= close_under_transfers(child_factory, engine, transport, opcode, region, mine)
    assert codes, "no close came under a transfer: nothing was shown"


@over_both
def test_transfers_to_a_target_that_closes_say_that_it_is_gone(engine_factory, child_factory, transport):
    """B25: peers see "closed": not a time-out, and no fault of their ranges."""
    engine = engine_factory(**TRANSPORTS[transport])
    mine = np.ones(PIECES * PIECE, np.uint8)
    region = engine.register(mine)
    for turn in range(40 if transport == "shm" else 5):
        codes = close_under_transfers(child_factory, engine, transport, ("write", "read")[turn % 2], region, mine)
        assert codes <= {Code.PEER_GONE, Code.UNREACHABLE}, codes


@over_both
def test_memory_that_is_used_again_and_again_sends_what_it_holds_now(engine_factory, child_factory, transport):
    """B18: the same lists a hundred times, with other bytes each time."""
    child = child_factory(target(1 << 20, options(transport)))
    address, base = child.eval("[engine.address, region.address]")
    engine = engine_factory(**TRANSPORTS[transport])
    source = np.zeros(1 << 20, np.uint8)
    region, peer = engine.register(source), engine.open(address)
    import hashlib

    for turn in range(100):
        source[:] = pattern(turn, source.size)
        batch = engine.write(peer, region, base)
        status = batch.wait()
        assert batch.status == status
        assert child.eval("digest()") == hashlib.sha256(source.tobytes()).hexdigest(), turn
