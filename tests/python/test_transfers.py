# SPDX-License-Identifier: Apache-2.0
"""Transfers: sizes, addresses, lists, and arguments that are refused."""

from __future__ import annotations

from array import array

import numpy as np
import pytest
import tidewire
from guarded_memory import canaries_hold, guarded
from tidewire import Code, State
from tidewire_testing import pattern


@pytest.fixture(params=["same host", "tcp"])
def path(request):
    """Settings of both engines: with the same-host path, and with TCP alone."""
    return {"same_host": request.param == "same host"}


@pytest.fixture
def routed(engine_factory, path):
    """(initiator, target) over the path."""
    return engine_factory(settings=path), engine_factory(settings=path)


SIZES = [1, 2, 3, 7, 63, 64, 65, 511, 512, 513, 4095, 4096, 4097, 65_535, 65_537, 1 << 20, (1 << 20) + 1, 5_000_001]


def test_every_size_arrives_exactly_in_both_directions(routed):
    a, b = routed
    whole_a, mine = guarded(max(SIZES))
    whole_b, theirs = guarded(max(SIZES))
    local, remote = a.register(mine), b.register(theirs)
    peer = a.open(b.address)
    for seed, size in enumerate(SIZES):
        mine[:size] = pattern(seed, size)
        theirs[: size + 1 if size < len(theirs) else size] = 0
        status = a.write(peer, local, remote.address, size).wait()
        assert status == (State.COMPLETED, Code.OK, 1, 1, 0, size)
        assert (theirs[:size] == mine[:size]).all() and not theirs[size : size + 1].any()
        mine[:size] = 0
        a.read(peer, local, remote.address, size).wait()
        assert (mine[:size] == pattern(seed, size)).all()
    assert canaries_hold(whole_a) and canaries_hold(whole_b)


@pytest.mark.parametrize("shift", range(1, 8))
def test_misaligned_addresses(routed, shift):
    a, b = routed
    mine, theirs = pattern(shift, 10_000), np.zeros(10_000, np.uint8)
    local, remote = a.register(mine), b.register(theirs)
    a.write(b.address, local.address + shift, remote.address + 7 - shift, 9_000).wait()
    assert (theirs[7 - shift : 9_007 - shift] == mine[shift : 9_000 + shift]).all()
    assert theirs.astype(bool)[: 7 - shift].sum() == theirs.astype(bool)[9_007 - shift :].sum() == 0


@pytest.mark.parametrize("count", [*range(1, 41), 5_000])
def test_lists_of_every_count(pair, count):
    a, b = pair
    size = 48
    mine, theirs = pattern(count, count * size), np.zeros(count * size, np.uint8)
    local, remote = a.register(mine), b.register(theirs)
    order = np.random.default_rng(count).permutation(count).tolist()
    batch = a.write(
        b.address, [local.address + i * size for i in range(count)], [remote.address + i * size for i in order], size
    )
    status = batch.wait()
    assert (status.transfers, status.completed, status.transferred_bytes) == (count, count, count * size)
    assert (theirs.reshape(count, size)[order] == mine.reshape(count, size)).all()


@pytest.mark.parametrize(
    "make",
    [
        list,
        tuple,
        lambda values: array("Q", values),
        lambda values: np.array(values, np.uint64),
        lambda values: np.array(values, np.int64),
        lambda values: np.repeat(np.array(values, np.uint64), 2)[::2],
        lambda values: [np.uint64(value) for value in values],
        lambda values: range(values[0], values[-1] + 1, values[1] - values[0]),
    ],
    ids=["list", "tuple", "array", "uint64", "int64", "strided", "numpy scalars", "range"],
)
def test_addresses_of_every_kind(pair, make):
    a, b = pair
    mine, theirs = pattern(5, 4000), np.zeros(4000, np.uint8)
    local, remote = a.register(mine), b.register(theirs)
    offsets = [0, 1000, 2000, 3000]
    status = a.write(
        b.address,
        make([local.address + offset for offset in offsets]),
        make([remote.address + offset for offset in offsets]),
        [1000] * 4,
    ).wait()
    assert status.completed == 4 and (theirs == mine).all()


def test_registered_objects_regions_and_buffers_are_local_memory(pair):
    a, b = pair
    theirs = b.allocate(1000)
    data = pattern(1, 1000)
    region = a.register(data)
    for local in [data, region]:
        theirs.view()[:] = bytes(1000)
        a.write(b.address, local, theirs.address).wait()
        assert bytes(theirs.view()) == data.tobytes()
    mine = a.allocate(1000)
    a.read(b.address, mine, theirs.address).wait()
    assert bytes(mine.view()) == data.tobytes()
    for local, lengths in [(region, 1001), (mine, 2000)]:
        with pytest.raises(tidewire.InvalidArgumentError):
            a.write(b.address, local, theirs.address, lengths)
    constant = a.register(bytes(1000), permission="none")
    a.write(b.address, constant, theirs.address).wait()
    with pytest.raises(tidewire.InvalidArgumentError, match="read-only"):
        a.read(b.address, constant, theirs.address)


def test_nothing_to_do_completes_at_once(pair):
    a, b = pair
    mine, theirs = a.register(pattern(1, 100)), b.register(bytearray(100))
    assert a.write(b.address, [], [], []).wait() == (State.COMPLETED, Code.OK, 0, 0, 0, 0)
    assert a.read(b.address, [], [], 5).wait().transfers == 0
    assert a.write(b.address, mine.address, theirs.address, 0).wait().completed == 1
    mixed = a.write(b.address, [mine.address] * 3, [theirs.address] * 3, [10, 0, 20]).wait()
    assert (mixed.completed, mixed.transferred_bytes) == (3, 30)
    a.write(b.address, [], [], [], notify=("empty", b"still told")).wait()
    assert [(item.name, item.message) for item in b.notifications(timeout=30)] == [("empty", b"still told")]


@pytest.mark.parametrize("wrong", ["local", "remote", "wrapped", "past the end"])
def test_ranges_that_are_not_registered_are_never_written(pair, wrong):
    a, b = pair
    whole, inner = guarded(4096)
    mine, theirs = a.register(pattern(1, 4096)), b.register(inner)
    local, remote, length = mine.address, theirs.address, 4096
    if wrong == "local":
        local -= 4096
    elif wrong == "remote":
        remote += 1 << 40
    elif wrong == "wrapped":
        length = 2**64 - remote + 10
    else:
        length = 4097
    with pytest.raises(tidewire.Error) as failure:
        a.write(b.address, local, remote, length).wait()
    assert failure.value.code in (Code.NOT_REGISTERED, Code.INVALID_ARGUMENT)
    assert not inner.any() and canaries_hold(whole)
    a.write(b.address, mine, theirs.address).wait()
    assert (inner == pattern(1, 4096)).all()


def test_wrong_arguments_are_refused_before_anything_moves(pair):
    a, b = pair
    mine, theirs = a.register(pattern(1, 100)), b.register(bytearray(100))
    with pytest.raises(tidewire.InvalidArgumentError, match="differ"):
        a.write(b.address, [mine.address] * 2, [theirs.address], [10, 10])
    with pytest.raises(tidewire.InvalidArgumentError, match="64-bit"):
        a.write(b.address, [mine.address], [-1], [10])
    with pytest.raises(tidewire.InvalidArgumentError, match="64-bit"):
        a.write(b.address, [2**64], [theirs.address], 10)
    for local, remote, lengths in [
        ("text", theirs.address, 1),
        (mine.address, b"bytes", 1),
        ([1.5], [theirs.address], 1),
        (mine.address, theirs.address, None),
        (np.array([1.0]), [theirs.address], 1),
        (mine.address, theirs.address, "3"),
    ]:
        with pytest.raises(TypeError):
            a.write(b.address, local, remote, lengths)
    for bad in [-1, float("nan")]:
        with pytest.raises(ValueError):
            a.write(b.address, mine, theirs.address, deadline=bad)
    assert not any(theirs._obj)


def test_two_neighbouring_regions_take_one_transfer_or_refuse_it_whole(pair):
    a, b = pair
    mine, theirs = pattern(4, 8192), np.zeros(8192, np.uint8)
    a.register(mine)
    b.register_many([theirs[:4096], theirs[4096:]])
    try:
        a.write(b.address, mine.ctypes.data, theirs.ctypes.data, 8192).wait()
    except tidewire.NotRegisteredError:
        assert not theirs.any()
    else:
        assert (theirs == mine).all()


def available_memory():
    with open("/proc/meminfo") as lines:
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable"))


@pytest.mark.parametrize("nbytes", [2**31 - 1, 2**31 + 1, 2**32 + 1])
def test_past_two_and_four_gibibytes(pair, nbytes):
    if available_memory() < 2 * nbytes + (3 << 30):
        pytest.skip("not enough memory")
    a, b = pair
    with a.allocate(nbytes) as mine, b.allocate(nbytes) as theirs:
        marks = [0, 1, 2**31 - 9000, nbytes - 5000, nbytes - 1]
        source, sink = np.frombuffer(mine.view(), np.uint8), np.frombuffer(theirs.view(), np.uint8)
        for value, mark in enumerate(marks):
            source[mark] = value + 1
        status = a.write(b.address, mine, theirs.address, deadline=120).wait()
        assert status.transferred_bytes == nbytes
        assert [int(sink[mark]) for mark in marks] == [1, 2, 3, 4, 5]
        assert int(np.count_nonzero(sink)) == 5
        del source, sink
