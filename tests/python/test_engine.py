# SPDX-License-Identifier: Apache-2.0
"""The Python engine: addresses, memory, transfers, notifications and errors, in one process and between two."""

from __future__ import annotations

import json
import os
import socket
import threading
from array import array

import numpy as np
import pytest
import tidewire
from tidewire import Code, State
from tidewire_testing import pattern, target

CANARY = 64


@pytest.fixture(params=["same host", "tcp"])
def path(request):
    """Settings of both engines: with the same-host path, and with TCP alone."""
    return {"same_host": request.param == "same host"}


@pytest.fixture
def routed(engine_factory, path):
    """(initiator, target) over the path."""
    return engine_factory(settings=path), engine_factory(settings=path)


def guarded(nbytes):
    """(whole, inner): ``inner`` of ``nbytes`` zeros between canaries of 0xA5."""
    whole = np.full(nbytes + 2 * CANARY, 0xA5, np.uint8)
    inner = whole[CANARY : CANARY + nbytes]
    inner[:] = 0
    return whole, inner


def canaries_hold(whole):
    return (whole[:CANARY] == 0xA5).all() and (whole[-CANARY:] == 0xA5).all()


# -- engines and names --


def test_engines_of_one_process_have_addresses_of_their_own(engine_factory):
    engines = [engine_factory() for _ in range(8)]
    assert len({engine.port for engine in engines}) == 8
    for engine in engines:
        host, port = engine.address.rsplit(":", 1)
        assert (host, int(port)) == ("127.0.0.1", engine.port)
        assert isinstance(engine.status(), dict)


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost", "::1", "[::1]", "[::1]:0", "127.0.0.1:0"])
def test_own_names_of_every_syntax(engine_factory, name):
    engine = engine_factory(name)
    region = engine.register(bytearray(64))
    other = engine_factory(name)
    source = other.register(bytearray(pattern(1, 64).tobytes()))
    assert other.write(engine.address, source, region.address, 64).wait().transferred_bytes == 64


@pytest.mark.parametrize("name", ["", "127.0.0.1:", ":80", "127.0.0.1:99999", "1:2:3", "no such host.invalid", "a\0b"])
def test_bad_own_names_are_named(name):
    with pytest.raises(tidewire.InvalidArgumentError) as failure:
        tidewire.Engine(name)
    assert repr(name)[1:-1] in str(failure.value) or name in str(failure.value)


def test_a_taken_port_is_named(engine_factory):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(tidewire.AddressInUseError, match=str(port)):
            tidewire.Engine(f"127.0.0.1:{port}")
    engine = engine_factory(f"127.0.0.1:{port}")
    assert engine.port == port


def test_a_bad_setting_names_itself(engine_factory):
    with pytest.raises(tidewire.InvalidArgumentError, match="threads.io"):
        tidewire.Engine(settings={"threads.io": "many"})
    with pytest.raises(tidewire.InvalidArgumentError, match="no.such"):
        tidewire.Engine(settings={"no.such": 1})
    with pytest.raises(TypeError):
        tidewire.Engine(5)


@pytest.mark.parametrize("protocol", ["nonsense", "efa"])
def test_a_protocol_that_this_machine_can_not_do_is_refused_by_name(protocol):
    with pytest.raises(tidewire.Error, match=protocol) as failure:
        tidewire.Engine(protocol=protocol)
    assert failure.value.code in (Code.UNSUPPORTED, Code.INVALID_ARGUMENT)


def test_settings_topology_and_version():
    rows = tidewire.settings()
    assert any(row["name"] == "transfer.timeout" for row in rows)
    assert isinstance(tidewire.topology(), dict)
    assert tidewire.__version__ == tidewire._native.lib.tw_version().decode()


def test_every_code_has_its_class():
    from tidewire.errors import error_class, make_error

    for code in Code:
        if code:
            assert make_error(code, "text").code == code
            assert error_class(code) is not tidewire.InternalError or code == Code.INTERNAL
            assert make_error(code).args[0] == code.name
    assert issubclass(tidewire.DeadlineError, TimeoutError)
    assert issubclass(tidewire.PeerGoneError, ConnectionError)
    assert error_class(999) is tidewire.InternalError


# -- memory --


def test_allocated_memory_is_zeroed_writable_and_registered(pair):
    a, b = pair
    with b.allocate(10_000) as buffer:
        view = buffer.view()
        assert (len(view), view.format, view.readonly, bytes(view)) == (10_000, "B", False, bytes(10_000))
        assert buffer.address % os.sysconf("SC_PAGE_SIZE") == 0
        source = a.register(pattern(3, 10_000))
        a.write(b.address, source, buffer.address).wait()
        assert bytes(view) == pattern(3, 10_000).tobytes()
        del view
    with pytest.raises(tidewire.ClosedError):
        buffer.view()
    with pytest.raises(tidewire.NotRegisteredError):
        a.write(b.address, source, buffer.address).wait()


@pytest.mark.parametrize("nbytes", [0, -1, 2**62])
def test_impossible_allocations_are_clear_errors(pair, nbytes):
    with pytest.raises(tidewire.Error) as failure:
        pair[0].allocate(nbytes)
    assert failure.value.code in (Code.INVALID_ARGUMENT, Code.NO_MEMORY, Code.NO_RESOURCES)
    pair[0].allocate(4096).close()


def test_nothing_is_not_registered(pair):
    for nothing in [bytearray(), (0, 0), (4096, 0), (0, 4096)]:
        with pytest.raises(tidewire.InvalidArgumentError):
            pair[0].register(nothing)


def test_the_same_range_is_counted_and_an_overlap_refused(pair):
    a, b = pair
    memory = np.zeros(8192, np.uint8)
    source = a.register(np.ones(10, np.uint8))
    first, second = b.register(memory), b.register(memory)
    with pytest.raises(tidewire.OverlapError):
        b.register(memory[100:200])
    first.close()
    a.write(b.address, source, second.address).wait()
    assert memory[:10].all()
    second.close()
    with pytest.raises(tidewire.NotRegisteredError):
        a.write(b.address, source, memory.ctypes.data).wait()


def test_many_are_registered_or_none(pair):
    a, _ = pair
    good, other = np.zeros(4096, np.uint8), np.zeros(4096, np.uint8)
    with pytest.raises(tidewire.Error, match="1"):
        a.register_many([good, other[:0], other])
    regions = a.register_many([good, other])
    assert [region.address for region in regions] == [good.ctypes.data, other.ctypes.data]
    for region in regions:
        region.close()
        region.close()


def test_permissions_are_checked_at_the_target(pair):
    a, b = pair
    mine = a.register(bytearray(16))
    secret = b.register(np.ones(16, np.uint8), permission="none")
    shown = b.register(b"0123456789abcdef", permission="read")
    for operation, remote in [(a.read, secret), (a.write, secret), (a.write, shown)]:
        with pytest.raises(tidewire.PermissionDeniedError):
            operation(b.address, mine, remote.address).wait()
    a.read(b.address, mine, shown.address).wait()
    assert bytes(mine._obj) == b"0123456789abcdef"
    with pytest.raises(tidewire.InvalidArgumentError, match="read-only"):
        b.register(b"constant")
    with pytest.raises(tidewire.InvalidArgumentError, match="permission"):
        b.register(bytearray(8), permission="write")


def test_device_pointers_are_refused_by_name(pair):
    class CudaArray:
        __cuda_array_interface__ = {"shape": (64,), "typestr": "|u1", "data": (0x7000, False)}

    with pytest.raises(tidewire.UnsupportedError, match="cuda"):
        pair[0].register(CudaArray())


def test_copies_in_and_out(pair):
    a, _ = pair
    with a.allocate(100) as buffer:
        a.copy_in(buffer, b"hello")
        a.copy_in(buffer.address + 5, b" you")
        out = bytearray(9)
        a.copy_out(out, buffer)
        assert bytes(out) == b"hello you"
        with pytest.raises(tidewire.InvalidArgumentError):
            a.copy_in(buffer, bytes(101))
        with pytest.raises(tidewire.InvalidArgumentError):
            a.copy_out(b"constant", buffer)
    with pytest.raises(tidewire.NotRegisteredError):
        a.copy_in(0x1000, b"x")


def test_memory_that_the_processor_may_not_touch(pair):
    import ctypes

    lib = tidewire._native.lib
    address = ctypes.c_void_p()
    tidewire.check(lib.tw_test_device_allocate(4096, ctypes.byref(address)))
    a, b = pair
    region = b.register((address.value, 4096), location="testdev:0")
    data = pattern(9, 4096)
    a.write(b.address, a.register(data), region.address).wait()
    back = bytearray(4096)
    b.copy_out(back, region)
    assert back == data.tobytes()
    region.close()
    tidewire.check(lib.tw_test_device_free(address))


# -- peers --


def test_a_peer_knows_its_first_region(pair):
    a, b = pair
    peer = a.open(b.address)
    with pytest.raises(tidewire.NotFoundError):
        peer.first_region()
    region = b.register(bytearray(100))
    assert a.open(b.address).first_region() == (region.address, 100)
    peer.close()
    peer.close()
    with pytest.raises(tidewire.ClosedError):
        peer.first_region()
    a.probe(b.address)
    a.probe(b.address, timeout=5)


def test_a_peer_that_is_not_there(pair):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        name = f"127.0.0.1:{free.getsockname()[1]}"
        for call in [pair[0].open, pair[0].probe, lambda name: pair[0].notify(name, "x")]:
            with pytest.raises(tidewire.UnreachableError, match=name):
                call(name)
    for bad in ["", "host:", ":1", "127.0.0.1:99999"]:
        with pytest.raises(tidewire.Error) as failure:
            pair[0].open(bad)
        assert failure.value.code in (Code.INVALID_ARGUMENT, Code.NOT_FOUND, Code.UNREACHABLE)


def test_a_peer_that_speaks_something_else(pair):
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        name = f"127.0.0.1:{server.getsockname()[1]}"

        def answer():
            connection, _ = server.accept()
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 10)
            connection.close()

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(tidewire.Error) as failure:
            pair[0].open(name)
        thread.join()
    assert failure.value.code in (Code.PROTOCOL, Code.UNREACHABLE)


def test_peers_belong_to_their_engine(pair, engine_factory):
    a, b = pair
    with pytest.raises(tidewire.InvalidArgumentError):
        engine_factory().write(a.open(b.address), 0, 0, 0)


# -- transfers --


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


# -- batches --


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


# -- notifications --


def test_notifications_arrive_whole_and_in_order(pair):
    a, b = pair
    messages = [(f"name {i}", os.urandom(i * 37 % 1000)) for i in range(100)]
    messages += [("NULs", b"a\0b\0\0"), ("", b""), ("ümläut", bytes(65_536))]
    for name, message in messages:
        a.notify(b.address, name, message)
    received = b.notifications()
    assert [(item.name, item.message) for item in received] == messages
    assert {item.sender for item in received} == {a.address}
    assert b.notifications() == [] == b.notifications(timeout=0.01)


def test_a_notification_to_oneself_and_one_that_is_too_large(pair):
    a, _ = pair
    a.notify(a.address, "self", b"hello")
    assert a.notifications(timeout=30)[0].message == b"hello"
    for send in [
        lambda: a.notify(a.address, "large", bytes(65_537)),
        lambda: a.write(a.address, [], [], [], notify=("large", bytes(65_537))),
        lambda: a.notify(a.address, "nul\0name", b""),
    ]:
        with pytest.raises(tidewire.InvalidArgumentError):
            send()
    assert a.notifications() == []


def test_a_waiting_receiver_is_woken(pair):
    a, b = pair
    received = []
    thread = threading.Thread(target=lambda: received.extend(b.notifications(timeout=60)))
    thread.start()
    a.notify(b.address, "wake", b"up")
    thread.join(60)
    assert [item.name for item in received] == ["wake"]


def test_senders_in_many_threads_lose_and_double_nothing(pair):
    a, b = pair
    senders, each = 8, 200

    def send(sender):
        for index in range(each):
            a.notify(b.address, str(sender), str(index).encode())

    threads = [threading.Thread(target=send, args=(sender,)) for sender in range(senders)]
    for thread in threads:
        thread.start()
    received = []
    while len(received) < senders * each:
        found = b.notifications(timeout=30)
        assert found, f"{len(received)} of {senders * each} came"
        received.extend(found)
    for thread in threads:
        thread.join()
    assert b.notifications() == []
    for sender in range(senders):
        assert [int(item.message) for item in received if item.name == str(sender)] == list(range(each))


# -- two processes --


@pytest.mark.parametrize("same_host", ["true", "false"])
def test_bytes_move_between_processes_and_are_there_when_the_wait_returns(engine_factory, child_factory, same_host):
    nbytes = 4 << 20
    other = child_factory(target(nbytes, f"settings={{'same_host': '{same_host}'}}"))
    address, base = other.eval("[engine.address, region.address]")
    engine = engine_factory(settings={"same_host": same_host})
    peer = engine.open(address)
    assert peer.first_region() == (base, nbytes)
    import hashlib

    for seed in range(5):
        data = pattern(seed, nbytes)
        with engine.register(data) as region:
            engine.write(peer, region, base, notify=("done", str(seed).encode())).wait()
            assert other.eval("digest()") == hashlib.sha256(data.tobytes()).hexdigest()
            assert other.eval("[n.message.decode() for n in engine.notifications(timeout=30)]") == [str(seed)]
            back = bytearray(nbytes)
            with engine.register(back) as sink:
                engine.read(peer, sink, base).wait()
            assert back == data.tobytes()
    assert other.finish() == 0


def test_many_engines_start_at_once_and_none_crosses_another(child_factory):
    count = 12
    children = [child_factory("import tidewire, numpy as np") for _ in range(count)]
    for index, child in enumerate(children):
        child.run(
            f"me, count = {index}, {count}\n"
            "engine = tidewire.Engine()\n"
            "inbox, outbox = np.zeros((count, 65536), np.uint8), np.zeros((count, 65536), np.uint8)\n"
            "region, source = engine.register(inbox), engine.register(outbox)\n"
            "def fill(a, b):\n"
            "    return np.random.default_rng(a * 1000 + b).integers(0, 256, 65536, dtype=np.uint8)\n"
        )
    places = [child.eval("[engine.address, region.address]") for child in children]
    assert len({address for address, _ in places}) == count
    for child in children:
        child.run(f"places = {json.dumps(places)}\nfor to in range(count): outbox[to] = fill(me, to)")
    for child in children:
        child.start(
            "[engine.write(address, source.address + to * 65536, base + me * 65536, 65536).wait().completed"
            " for to, (address, base) in enumerate(places)]"
        )
    for child in children:
        assert child.answer() == [1] * count
    for child in children:
        assert child.eval("all((inbox[other] == fill(other, me)).all() for other in range(count))")


def test_a_peer_that_died_fails_in_time_and_its_successor_is_recognised(engine_factory, child_factory):
    first = child_factory(target(1 << 20))
    address, base = first.eval("[engine.address, region.address]")
    engine = engine_factory()
    source = engine.register(pattern(1, 1 << 20))
    engine.write(address, source, base).wait()
    first.kill()
    with pytest.raises(tidewire.Error) as failure:
        engine.write(address, source, base, deadline=5).wait()
    assert failure.value.code in (Code.PEER_GONE, Code.UNREACHABLE, Code.TIMEOUT)
    second = child_factory(target(2 << 20, repr(address)))
    base = second.eval("region.address")

    def once():
        try:
            return engine.write(address, source, base, deadline=5).wait()
        except tidewire.Error:
            return None

    from tidewire_testing import wait_until

    wait_until(once, "the first write to the successor", 20)
    import hashlib

    assert second.eval(f"digest(0, {1 << 20})") == hashlib.sha256(pattern(1, 1 << 20).tobytes()).hexdigest()
