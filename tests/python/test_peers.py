# SPDX-License-Identifier: Apache-2.0
"""Peers: those that answer, those that do not, and engines in several processes."""

from __future__ import annotations

import hashlib
import json
import socket
import threading

import pytest
import tidewire
from tidewire import Code
from tidewire_testing import pattern, target, wait_until


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


@pytest.mark.parametrize("same_host", ["true", "false"])
def test_bytes_move_between_processes_and_are_there_when_the_wait_returns(engine_factory, child_factory, same_host):
    nbytes = 4 << 20
    other = child_factory(target(nbytes, f"settings={{'same_host': '{same_host}'}}"))
    address, base = other.eval("[engine.address, region.address]")
    engine = engine_factory(settings={"same_host": same_host})
    peer = engine.open(address)
    assert peer.first_region() == (base, nbytes)
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

    wait_until(once, "the first write to the successor", 20)
    assert second.eval(f"digest(0, {1 << 20})") == hashlib.sha256(pattern(1, 1 << 20).tobytes()).hexdigest()
