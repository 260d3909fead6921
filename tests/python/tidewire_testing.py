# SPDX-License-Identifier: Apache-2.0
"""What the Python tests share: other processes that obey, seeded bytes, and waits with a hard stop."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / "python"
HARD_STOP = 60.0

if str(PYTHON) not in sys.path:
    sys.path.insert(0, str(PYTHON))

_OBEY = """
import json, os, sys, traceback
commands, answers = sys.stdin, os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
names = {"__name__": "__child__"}
for line in commands:
    kind, text = json.loads(line)
    try:
        result = eval(text, names) if kind == "eval" else exec(text, names)
        answer = {"result": result}
    except BaseException as error:
        answer = {"error": "".join(traceback.format_exception(type(error), error, error.__traceback__))}
    print(json.dumps(answer), file=answers, flush=True)
"""


def environment(**changes: str) -> dict[str, str]:
    """This process's environment with the sources' packages importable, and ``changes``."""
    values = dict(os.environ, PYTHONPATH=f"{PYTHON}{os.pathsep}{os.environ.get('PYTHONPATH', '')}".rstrip(os.pathsep))
    values.update(changes)
    return values


class Child:
    """A Python process that evaluates what it is told. JSON comes back; an exception there raises RuntimeError here."""

    def __init__(self, setup: str = "", python: str = sys.executable, **env: str) -> None:
        self.process = subprocess.Popen(
            [python, "-c", _OBEY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment(**env)
        )
        if setup:
            self.run(setup)

    @property
    def pid(self) -> int:
        return self.process.pid

    def run(self, source: str) -> None:
        self._ask("exec", source)

    def eval(self, expression: str) -> Any:
        return self._ask("eval", expression)

    def start(self, expression: str) -> None:
        """Starts an evaluation; ``answer()`` gets its result."""
        self._send("eval", expression)

    def answer(self) -> Any:
        line = self.process.stdout.readline()
        if not line:
            raise EOFError(f"the child ended with status {self.process.wait(HARD_STOP)}")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer["result"]

    def finish(self) -> int:
        """Lets the interpreter end as at the end of a program; the exit status."""
        self.process.stdin.close()
        return self.process.wait(HARD_STOP)

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(HARD_STOP)
        self.process.stdin.close()
        self.process.stdout.close()

    def _send(self, kind: str, text: str) -> None:
        self.process.stdin.write(json.dumps([kind, text]) + "\n")
        self.process.stdin.flush()

    def _ask(self, kind: str, text: str) -> Any:
        self._send(kind, text)
        return self.answer()


# A passive engine with one buffer; `memory` is its numpy view.
TARGET = """
import hashlib, numpy as np, tidewire
engine = tidewire.Engine({options})
memory = np.zeros({nbytes}, np.uint8)
region = engine.register(memory)
def digest(offset=0, length={nbytes}):
    return hashlib.sha256(memory[offset : offset + length].tobytes()).hexdigest()
"""


def target(nbytes: int, options: str = "") -> str:
    """Set-up of a child that owns ``nbytes`` of registered memory."""
    return TARGET.format(nbytes=nbytes, options=options)


def pattern(seed: int, nbytes: int) -> np.ndarray:
    """Bytes of which any shift, truncation or stale block shows."""
    return np.random.default_rng(seed).integers(0, 256, nbytes, dtype=np.uint8)


def wait_until(condition: Callable[[], Any], what: str, timeout: float = HARD_STOP) -> Any:
    """Asks until the condition holds; the hard stop is a failure."""
    end = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < end, f"{what}: not within {timeout} s"
        time.sleep(0.005)


def descriptors() -> int:
    """How many file descriptors this process holds."""
    return len(os.listdir("/proc/self/fd"))


def run_script(source: str, *arguments: str, timeout: float = HARD_STOP, **env: str) -> subprocess.CompletedProcess:
    """Runs a whole program; output is text."""
    return subprocess.run(
        [sys.executable, "-c", source, *arguments],
        env=environment(**env),
        capture_output=True,
        text=True,
        timeout=timeout,
    )
