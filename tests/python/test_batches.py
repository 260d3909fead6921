# SPDX-License-Identifier: Apache-2.0
"""Batches: partial failure, status, handles."""

from __future__ import annotations

import numpy as np
import pytest
import tidewire
from tidewire import Code, State
from tidewire_testing import pattern


def test_part_of_a_batch_fails_alone(pair):
    a, b = pair
    mine, theirs = a.register(pattern(1, 1000)), b.register(bytearray(1000))
    count = 100
    remote = [theirs.address + 10 * i for i in range(count)]
    remote[33] = 0x1000
    remote[66] = theirs.address + 999
    batch = a.write(b.address, [mine.address + 10 * i for i in range(count)], remote, 10)
    with pytest.raises(tidewire.PartialError) as failure:
        batch.wait()
    status = failure.value.status
    assert (status.transfers, status.completed, status.failed) == (count, count - 2, 2)
    assert status.transferred_bytes == (count - 2) * 10
    for index in range(count):
        one = batch.transfer_status(index)
        if index in (33, 66):
            assert one.code == Code.NOT_REGISTERED and one.state.terminal and one.state != State.COMPLETED
        else:
            assert one == (State.COMPLETED, Code.OK, 10)
    with pytest.raises(tidewire.PartialError):
        batch.wait()
    with pytest.raises(tidewire.Error):
        batch.transfer_status(count)
    with pytest.raises(IndexError):
        batch.transfer_status(-1)


def test_a_finished_batch_can_be_asked_again_and_closed_twice(pair):
    a, b = pair
    mine, theirs = a.register(pattern(1, 100)), b.register(bytearray(100))
    batch = a.write(b.address, mine, theirs.address)
    status = batch.wait()
    for _ in range(100):
        assert batch.status == status == batch.wait(timeout=0)
        assert batch.done
    batch.cancel()
    batch.close()
    batch.close()
    assert batch.status == status
    with pytest.raises(tidewire.ClosedError):
        batch.transfer_status(0)


def test_a_batch_in_a_with_block_is_waited_for(pair):
    a, b = pair
    mine, theirs = a.register(pattern(1, 100)), b.register(bytearray(100))
    with a.write(b.address, mine, theirs.address) as batch:
        pass
    assert batch.status.state == State.COMPLETED
    with pytest.raises(tidewire.NotRegisteredError):
        with a.write(b.address, mine, 0x1000):
            pass
    with pytest.raises(KeyError):
        with a.write(b.address, mine, theirs.address):
            raise KeyError


def test_stale_and_forged_handles_get_errors(pair):
    a, b = pair
    mine, theirs = a.register(pattern(1, 100)), b.register(bytearray(100))
    lib = tidewire._native.lib
    batch = a.write(b.address, mine, theirs.address)
    batch.wait()
    handle = batch._handle
    assert lib.tw_batch_release(handle) == 0
    for bad in [handle, 0, 1, 2**64 - 1, *np.random.default_rng(7).integers(1, 2**63, 200).tolist()]:
        # A random number may look as if it came from the parent of a fork.
        expected = (Code.NOT_FOUND, Code.FORKED)
        assert lib.tw_batch_release(bad) in expected
        assert lib.tw_batch_cancel(bad) in expected
        assert lib.tw_batch_wait(bad, 0, None) in expected
        assert lib.tw_engine_destroy(bad) in expected
        assert lib.tw_peer_close(a._handle, bad) in expected
    a.write(b.address, mine, theirs.address).wait()
