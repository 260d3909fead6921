# SPDX-License-Identifier: Apache-2.0
"""Slow, lost and silent links between two hosts. Times are stops, five times wider than what the simulator asserts."""

from __future__ import annotations

import os
import socket
import time

import pytest
from fault_hosts import connect
from tidewire_testing import target

ROUNDS = int(os.environ.get("TIDEWIRE_FAULT_ROUNDS", "3"))  # 50 in scripts/soak.sh

INITIATOR = """
import hashlib, threading, time, numpy as np, tidewire
engine = tidewire.Engine({options})
source = np.zeros({nbytes}, np.uint8)
region = engine.register(source)
def fill(seed):
    source[:] = np.random.default_rng(seed).integers(0, 256, source.size, dtype=np.uint8)
    return hashlib.sha256(source.tobytes()).hexdigest()
def write(address, base, nbytes={nbytes}, deadline=30.0, notify=None):
    engine.write(engine.open(address), region.address, base, nbytes, deadline=deadline, notify=notify).wait()
"""


def initiator(nbytes: int, options: str = "") -> str:
    return INITIATOR.format(nbytes=nbytes, options=options)


def test_completed_means_that_the_bytes_are_at_the_target(hosts, inside, tmp_path):
    """B01: the target checksums at the moment at which the initiator hears COMPLETED; the link is slower than the socket buffers."""
    nbytes = 16 << 20
    host = hosts()
    host.run("tc", "qdisc", "add", "dev", "lo", "root", "tbf", "rate", "160mbit", "burst", "256kb", "latency", "400ms")
    options = "settings={'same_host': False}"
    passive = inside(host, target(nbytes, options))
    active = inside(host, initiator(nbytes, options))
    address, base = passive.eval("[engine.address, region.address]")
    # The signal goes over a Unix socket, which no link slows.
    path = str(tmp_path / "signal")
    passive.run(f"""
import socket
listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM); listener.bind({path!r}); listener.listen(1)
def digest_on_signal():
    connection, _ = listener.accept()
    connection.recv(1)
    seen = engine.notifications()
    return [digest(), [one.name for one in seen]]
""")
    for seed in range(ROUNDS):
        passive.run("memory[:] = 0xEE")
        wanted = active.eval(f"fill({seed})")
        passive.start("digest_on_signal()")
        active.run(f"""
import socket
signal = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM); signal.connect({path!r})
write({address!r}, {base}, notify=("done", b"x"))
signal.send(b"1"); signal.close()
""")
        assert passive.answer() == [wanted, ["done"]]


def test_a_large_transfer_uses_all_rails_and_survives_the_loss_of_one(hosts, inside):
    """No error when a rail goes down in the middle, and nothing is torn."""
    nbytes = 256 << 20
    a, b = hosts(), hosts()
    connect(a, b, rails=4, rate="1gbit")
    devices = "devices='e0,e1,e2,e3'"
    passive = inside(b, target(nbytes, f"'10.77.0.2', {devices}"))
    active = inside(a, initiator(nbytes, f"'10.77.0.1', {devices}"))
    address, base = passive.eval("[engine.address, region.address]")
    wanted = active.eval("fill(1)")
    active.run(f"write({address!r}, {base})")
    assert passive.eval("digest()") == wanted
    counters = [int(a.run("cat", f"/sys/class/net/e{i}/statistics/tx_bytes")) for i in range(4)]
    assert min(counters) > nbytes // 16, counters  # each rail carried a real share

    for cut in (1, 0):  # rail 0 carries the control connection too
        passive.run("memory[:] = 0xEE")
        wanted = active.eval(f"fill({10 + cut})")
        active.start(f"write({address!r}, {base})")
        before = int(a.run("cat", f"/sys/class/net/e{cut}/statistics/tx_bytes"))
        while int(a.run("cat", f"/sys/class/net/e{cut}/statistics/tx_bytes")) < before + (8 << 20):
            time.sleep(0.01)
        a.ip("link", "set", f"e{cut}", "down")
        assert active.answer() is None  # no error
        assert passive.eval("digest()") == wanted
        a.ip("link", "set", f"e{cut}", "up")
        # The rail heals: the control path over it works again before the next round.
        end = time.monotonic() + 30
        while True:
            try:
                active.run(f"engine.probe({address!r})")
                break
            except RuntimeError:
                assert time.monotonic() < end


def test_a_silent_peer_does_not_slow_a_healthy_one(hosts, inside):
    """B06: SYNs vanish; requests to that peer end soon, those to another go on, and no worker waits in connect."""
    a, b = hosts(), hosts()
    connect(a, b, rails=1)
    a.ip("neigh", "add", "10.77.0.77", "lladdr", "02:00:00:00:00:77", "dev", "e0", "nud", "permanent")
    passive = inside(b, target(1 << 20, "'10.77.0.2'"))
    active = inside(a, initiator(1 << 20, "'10.77.0.1'"))
    address, base = passive.eval("[engine.address, region.address]")
    active.run(f"""
def healthy(seconds):
    times, end = [], time.monotonic() + seconds
    while time.monotonic() < end:
        begin = time.perf_counter()
        write({address!r}, {base}, 65536)
        times.append(time.perf_counter() - begin)
    return times
slow = []
def bad():
    for i in range(50):
        begin = time.monotonic()
        try:
            write("10.77.0.77:4000", 4096, 65536)
            slow.append("completed?")
        except tidewire.Error as error:
            slow.append(time.monotonic() - begin)
""")
    active.run("alone = healthy(2)")
    active.run("threads = [threading.Thread(target=bad) for _ in range(4)]; [thread.start() for thread in threads]")
    active.run("together = healthy(3)")
    active.run("[thread.join(60) for thread in threads]")
    slow = active.eval("slow")
    assert len(slow) == 200
    assert all(isinstance(one, float) and one < 5 * 1.5 for one in slow), max(slow)
    # The healthy peer was served all the while; a wait behind the silent one would be a whole connect timeout.
    assert active.eval("len(together)") > 100
    assert active.eval("max(together)") < 1.0


def test_a_full_backlog_and_a_refused_port_fail_in_bounded_time(engine_factory):
    """B06, second and third form."""
    import tidewire

    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(0)
    fillers = [socket.socket() for _ in range(8)]
    for filler in fillers:
        filler.setblocking(False)
        filler.connect_ex(listener.getsockname())
    engine = engine_factory()
    begin = time.monotonic()
    with pytest.raises(tidewire.Error):
        engine.open("127.0.0.1:%d" % listener.getsockname()[1])
    assert time.monotonic() - begin < 5 * 1.5
    port = listener.getsockname()[1]
    for one in [*fillers, listener]:
        one.close()
    begin = time.monotonic()
    with pytest.raises(tidewire.Error) as refused:
        engine.open(f"127.0.0.1:{port}")
    assert time.monotonic() - begin < 5 * 0.1 + 0.5
    assert str(port) in str(refused.value)


def test_many_transfers_need_few_ports(hosts, inside):
    """B08: 64 local ports are enough for 20,000 transfers from 16 threads."""
    host = hosts()
    host.run("sysctl", "-qw", "net.ipv4.ip_local_port_range=40000 40063")
    options = "settings={'same_host': False}"
    passive = inside(host, target(1 << 20, options))
    active = inside(host, initiator(1 << 20, options))
    address, base = passive.eval("[engine.address, region.address]")
    active.run(f"""
failures = []
def many():
    for i in range(1250):
        try:
            write({address!r}, {base} + 4096 * (i % 16), 4096)
        except tidewire.Error as error:
            failures.append(str(error))
threads = [threading.Thread(target=many) for _ in range(16)]
[thread.start() for thread in threads]; [thread.join() for thread in threads]
""")
    assert active.eval("failures") == []
    assert host.sockets("established") <= 2 * 16  # both ends of each connection are in this namespace
    assert host.sockets("time-wait") < 16


def test_addresses_of_both_families_between_hosts(hosts, inside):
    """B11: IPv4, IPv6 and link-local literals with a scope, as own name and as peer name."""
    a, b = hosts(), hosts()
    connect(a, b, rails=1)
    a.ip("addr", "add", "fd77::1/64", "dev", "e0", "nodad")
    b.ip("addr", "add", "fd77::2/64", "dev", "e0", "nodad")
    scoped = {}
    for host in (a, b):
        line = host.run("sh", "-c", "for i in 1 2 3 4 5 6 7 8 9 10; do ip -6 -o addr show dev e0 scope link | grep -v tentative && break; sleep 1; done")
        scoped[host.name] = line.split()[3].split("/")[0]
    for own_a, own_b in (("10.77.0.1", "10.77.0.2"), ("fd77::1", "fd77::2"), ("[fd77::1]", "[fd77::2]:18999"),
                         (f"{scoped[a.name]}%e0", f"{scoped[b.name]}%e0")):
        passive = inside(b, target(4096, repr(own_b)))
        active = inside(a, initiator(4096, repr(own_a)))
        address, base = passive.eval("[engine.address, region.address]")
        wanted = active.eval("fill(7)")
        active.run(f"write({address!r}, {base})")
        assert passive.eval("digest()") == wanted, own_b
        assert active.finish() == 0
        assert passive.finish() == 0
