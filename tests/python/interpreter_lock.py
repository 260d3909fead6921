# SPDX-License-Identifier: Apache-2.0
"""How much of the interpreter other threads get while something waits in the library."""

from __future__ import annotations

import threading
import time
from typing import Callable


class Counter:
    """A thread that counts: how far it comes shows how much of the interpreter it gets."""

    def __init__(self) -> None:
        self.count, self.stop = 0, False
        self.thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self.stop:
            self.count += 1

    def rate(self, seconds: float, during: Callable[[], object] = lambda: None) -> float:
        """Counts a second while ``during`` runs, over at least ``seconds``."""
        self.count, self.stop = 0, False
        self.thread = threading.Thread(target=self._run)
        started = time.monotonic()
        self.thread.start()
        during()
        time.sleep(max(0, seconds - (time.monotonic() - started)))
        self.stop = True
        self.thread.join()
        return self.count / (time.monotonic() - started)
