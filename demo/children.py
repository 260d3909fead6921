# SPDX-License-Identifier: Apache-2.0
"""Child processes that answer JSON lines, with bounded waits and no survivors."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading


class ChildError(RuntimeError):
    """A child reported an error, ended early or did not answer in time."""


class Child:
    """`python -m module arguments...` with pipes. Standard error goes where ours goes.

    Use as a context manager: however the block ends, the process has ended after it.
    """

    END_SECONDS = 5.0  # for each of: ending by itself, ending when asked to

    def __init__(self, module: str, arguments: list[str]):
        self.name = module
        # A session of its own, so that Ctrl-C reaches this process alone, which then ends the child.
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, name=f"read {module}", daemon=True)
        self._reader.start()

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, do: str, **values) -> None:
        """Sends a request without waiting for its answer."""
        try:
            self._process.stdin.write(json.dumps({"do": do, **values}) + "\n")
            self._process.stdin.flush()
        except OSError as error:
            raise ChildError(f"{self.name} (pid {self.pid}) has ended: {error}") from error

    def receive(self, timeout: float = 180.0) -> dict:
        """The next answer."""
        try:
            line = self._lines.get(timeout=timeout)
        except queue.Empty:
            raise ChildError(f"{self.name} (pid {self.pid}) did not answer within {timeout:.0f} s") from None
        if line is None:
            self._lines.put(None)
            raise ChildError(f"{self.name} (pid {self.pid}) ended early; its messages stand above")
        answer = json.loads(line)
        if "error" in answer:
            raise ChildError(f"{self.name}: {answer['error']}")
        return answer

    def ask(self, do: str, timeout: float = 180.0, **values) -> dict:
        self.send(do, **values)
        return self.receive(timeout)

    def close(self) -> None:
        """Ends the process: by closing its input, then by SIGTERM, then by SIGKILL."""
        for end in (self._process.stdin.close, self._process.terminate, self._process.kill):
            try:
                end()
            except OSError:
                pass  # a pipe whose reader is gone
            try:
                self._process.wait(self.END_SECONDS)
                break
            except subprocess.TimeoutExpired:
                continue
        self._reader.join(self.END_SECONDS)
        self._process.stdout.close()

    def _read(self) -> None:
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)
