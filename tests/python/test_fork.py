# SPDX-License-Identifier: Apache-2.0
"""Forked children: errors in them, engines of their own, and a parent that is left alone."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time

import numpy as np
import tidewire
from tidewire import Code
from tidewire_testing import HARD_STOP, pattern, run_script


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
