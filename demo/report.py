# SPDX-License-Identifier: Apache-2.0
"""What a run shows: a progress bar, the table and the plot."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path


class Progress:
    """A bar on standard error where that is a terminal, otherwise a line a step. Context manager."""

    WIDTH = 28

    def __init__(self, steps: int):
        self._steps, self._done = steps, 0
        self._begin = time.monotonic()
        self._terminal = sys.stderr.isatty()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_) -> None:
        if self._terminal:
            print("\r\033[K", end="", file=sys.stderr, flush=True)

    def step(self, what: str) -> None:
        """Says what begins now; the step before it is done."""
        seconds = time.monotonic() - self._begin
        if self._terminal:
            filled = self.WIDTH * self._done // self._steps
            bar = "#" * filled + "." * (self.WIDTH - filled)
            print(f"\r\033[K[{bar}] {seconds:4.0f} s  {what}", end="", file=sys.stderr, flush=True)
        else:
            print(f"[{self._done + 1}/{self._steps}] {seconds:4.0f} s  {what}", file=sys.stderr, flush=True)
        self._done += 1


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
