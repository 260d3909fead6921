# SPDX-License-Identifier: Apache-2.0
"""One line for each check of an end-to-end run."""

from __future__ import annotations

import sys


class Checks:
    """Prints checks as they are made and remembers the failed ones."""

    def __init__(self) -> None:
        self.passed = 0
        self.failed: list[str] = []
        self.broken: list[str] = []  # the failed ones that are no figure themselves

    def check(self, name: str, good: bool, detail: str = "", *, figure: bool = False) -> bool:
        """One line; ``good`` again. ``figure``: it compares a figure of the run with its goal."""
        print(f"{'ok    ' if good else 'FAILED'} {name}{': ' + detail if detail else ''}", flush=True)
        if good:
            self.passed += 1
        else:
            self.failed.append(name)
            if not figure:
                self.broken.append(f"{name}: {detail}" if detail else name)
        return good

    @staticmethod
    def note(text: str) -> None:
        """A line about the course of the run, apart from the checks."""
        print(f"       {text}", file=sys.stderr, flush=True)

    def summary(self) -> int:
        """The last line, and the exit status of the run."""
        print(f"{self.passed} passed, {len(self.failed)} failed", flush=True)
        for name in self.failed:
            print(f"failed: {name}", file=sys.stderr)
        return 1 if self.failed else 0
