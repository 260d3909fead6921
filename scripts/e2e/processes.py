# SPDX-License-Identifier: Apache-2.0
"""Servers that a run starts, waits for and ends, whatever happens to the run itself."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Mapping, Optional, Sequence

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


class ServerError(RuntimeError):
    """A server ended early, or was not ready in time; the text ends with the last lines of its log."""


def free_port() -> int:
    """A TCP port of the loopback device that nobody uses at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def fetch(url: str, timeout: float = 10.0) -> str:
    """The body of a GET request. OSError when there is none."""
    with urllib.request.urlopen(url, timeout=timeout) as answer:
        return answer.read().decode()


def _living(session: int) -> bool:
    """Whether a process of this session runs. One that only waits to be reaped doesn't count."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                # After the name in brackets, which may hold anything: state, parent, group, session.
                state, _, _, its = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
            except OSError:
                continue  # ended meanwhile
            if int(its) == session and state not in "ZX":
                return True
    return False


class Server:
    """A program in a session of its own, whose output goes to a file.

    A context manager: however the block ends, every process of that session has ended after it. It is told to end, too,
    when the process that started it dies.
    """

    END_SECONDS = 6.0

    def __init__(self, name: str, command: Sequence[str], log: Path, environment: Optional[Mapping[str, str]] = None):
        self.name = name
        self.log = log
        with open(log, "wb") as out:
            self._process = subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
                preexec_fn=lambda: _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM),
            )

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def wait_ready(self, url: str, seconds: float = 300.0) -> None:
        """Returns when ``url`` answers."""
        end = time.monotonic() + seconds
        while True:
            try:
                fetch(url, timeout=2.0)
                return
            except OSError:
                pass
            if self._process.poll() is not None:
                raise ServerError(f"{self.name} ended with status {self._process.returncode}:\n{self.tail()}")
            if time.monotonic() > end:
                raise ServerError(f"{self.name} does not answer at {url} after {seconds:.0f} s:\n{self.tail()}")
            time.sleep(0.2)

    def ended(self) -> Optional[int]:
        """The status that the program has ended with, or None while it runs."""
        return self._process.poll()

    def stop(self) -> None:
        """Asks the program to end, then ends what is left of its session."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(self.END_SECONDS)
            except subprocess.TimeoutExpired:
                pass
        self.kill()

    def kill(self) -> None:
        """Ends every process of the session at once, as a crash would, and waits until they are gone."""
        end = time.monotonic() + self.END_SECONDS
        while _living(self._process.pid) and time.monotonic() < end:
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except ProcessLookupError:
                break
            time.sleep(0.01)
        self._process.wait()

    def text(self) -> str:
        """Everything that the program has printed."""
        return self.log.read_text(errors="replace")

    def tail(self, lines: int = 25) -> str:
        """The last lines of that, with the lines that name errors before them."""
        every = self.text().splitlines()
        last = every[-lines:]
        named = [line for line in every[:-lines] if "Error" in line or "ERROR" in line][:lines]
        return "\n".join(f"  | {line[:240]}" for line in [*named, *last])
