# SPDX-License-Identifier: Apache-2.0
"""The interpreter's end in every order, and signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import pytest
import tidewire
from tidewire import Code
from tidewire_testing import environment, run_script, target

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
