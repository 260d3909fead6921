# SPDX-License-Identifier: Apache-2.0
"""What a run shows: a progress bar, the table and the plot."""

from __future__ import annotations

import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path


class Progress:
    """A bar on standard error where that is a terminal, otherwise a line a step. Context manager."""

    WIDTH = 28
    REFRESH_SECONDS = 0.5

    def __init__(self, cost: float):
        """cost: of all steps together, in any unit."""
        self._cost, self._done, self._running = cost, 0.0, 0.0
        self._what = ""
        self._begin = time.monotonic()
        self._terminal = sys.stderr.isatty()
        self._ended = threading.Event()
        self._ticker = threading.Thread(target=self._tick, name="progress", daemon=True)

    def __enter__(self) -> Progress:
        if self._terminal:
            self._ticker.start()
        return self

    def __exit__(self, *_) -> None:
        self._ended.set()
        if self._terminal:
            self._ticker.join()
            print("\r\033[K", end="", file=sys.stderr, flush=True)

    def step(self, what: str, cost: float) -> None:
        """Says what begins now and what it costs; the step before it is done."""
        self._done += self._running
        self._what, self._running = what, cost
        if self._terminal:
            self._draw()
        else:
            print(f"{self._done / self._cost:4.0%} {self._seconds():4.0f} s  {what}", file=sys.stderr, flush=True)

    def _seconds(self) -> float:
        return time.monotonic() - self._begin

    def _draw(self) -> None:
        filled = min(self.WIDTH, int(self.WIDTH * self._done / self._cost))
        bar = "#" * filled + "." * (self.WIDTH - filled)
        print(f"\r\033[K[{bar}] {self._seconds():4.0f} s  {self._what}", end="", file=sys.stderr, flush=True)

    def _tick(self) -> None:
        while not self._ended.wait(self.REFRESH_SECONDS):
            self._draw()


@dataclass
class Row:
    """One prompt. Seconds and bytes."""

    length: int
    kv_bytes: int
    operations: int
    prefill: float  # computing, with the transfers of all layers running beside it
    after: float  # from the end of computing until the decode process knew that its KV was complete
    alone: float  # the same KV in one batch with nothing else running, median
    tokens_equal: bool
    bytes_equal: bool

    @property
    def share(self) -> float:
        return self.after / (self.prefill + self.after)

    @property
    def bandwidth(self) -> float:
        return self.kv_bytes / self.alone


COLUMNS = (
    ("prompt", "tokens", lambda r: f"{r.length:,}"),
    ("KV", "MB", lambda r: f"{r.kv_bytes / 1e6:.1f}"),
    ("operations", "", lambda r: f"{r.operations:,}"),
    ("prefill", "ms", lambda r: f"{r.prefill * 1e3:,.1f}"),
    ("after last layer", "ms", lambda r: f"{r.after * 1e3:.2f}"),
    ("of TTFT", "%", lambda r: f"{r.share * 100:.2f}"),
    ("KV in one go", "ms", lambda r: f"{r.alone * 1e3:.2f}"),
    ("bandwidth", "GB/s", lambda r: f"{r.bandwidth / 1e9:.2f}"),
    ("tokens", "", lambda r: "equal" if r.tokens_equal else "DIFFERENT"),
    ("KV bytes", "", lambda r: "equal" if r.bytes_equal else "DIFFERENT"),
)


def table(rows: list[Row]) -> str:
    """The rows as a Markdown table that also reads well in a terminal."""
    lines = [[name + (f", {unit}" if unit else "") for name, unit, _ in COLUMNS]]
    lines += [[cell(row) for _, _, cell in COLUMNS] for row in rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(COLUMNS))]
    text = ["| " + " | ".join(cell.rjust(width) for cell, width in zip(line, widths)) + " |" for line in lines]
    text.insert(1, "|" + "|".join("-" * (width + 1) + ":" for width in widths) + "|")
    return "\n".join(text)


def plot(rows: list[Row], title: str, path: Path) -> None:
    """Where the time to the first token goes, and the bandwidth, over the prompt's length."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.ticker import FuncFormatter, NullLocator

    lengths = [row.length for row in rows]
    figure, (times, rates) = pyplot.subplots(1, 2, figsize=(11, 4.2), constrained_layout=True)
    figure.suptitle(title)
    times.plot(lengths, [row.prefill * 1e3 for row in rows], "o-", label="prefill, KV sent while computing")
    times.plot(lengths, [row.alone * 1e3 for row in rows], "s--", label="KV in one go, nothing else running")
    times.plot(lengths, [row.after * 1e3 for row in rows], "^-", label="wait after the last layer")
    times.set(xscale="log", yscale="log", xlabel="prompt, tokens", ylabel="ms", title="Time")
    times.legend(fontsize="small")
    rates.plot(lengths, [row.bandwidth / 1e9 for row in rows], "s--", color="C1")
    rates.set(xscale="log", xlabel="prompt, tokens", ylabel="GB/s", title="Bandwidth of the KV in one go")
    rates.set_ylim(0)
    for axes in (times, rates):
        axes.set_xticks(lengths)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.grid(alpha=0.3)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    pyplot.close(figure)
