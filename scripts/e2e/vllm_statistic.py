# SPDX-License-Identifier: Apache-2.0
"""vLLM's own statistic of KV transfers, read from the log of a prefill instance."""

from __future__ import annotations

import re
from dataclasses import dataclass

_STATISTIC = re.compile(
    r"KV Transfer metrics: Num successful transfers=(?P<count>\d+), Avg xfer time \(ms\)=(?P<ms>[\d.]+),.*?"
    r"Avg MB per transfer=(?P<mb>[\d.]+), Throughput \(MB/s\)=[\d.]+, Avg number of descriptors=(?P<descriptors>[\d.]+)"
    r", Num failed transfers=(?P<failed>\d+), Num failed recvs=(?P<failed_recvs>\d+)"
)


@dataclass(frozen=True)
class Transfers:
    """vLLM's own statistic of KV transfers, over some time. A megabyte is 2**20 bytes, as vLLM has it."""

    count: int = 0
    failed: int = 0
    megabytes: float = 0.0
    seconds: float = 0.0
    descriptors: float = 0.0

    @property
    def throughput(self) -> float:
        """Megabytes a second: all megabytes over the time of all transfers, as vLLM computes it."""
        return self.megabytes / self.seconds if self.seconds else 0.0

    def since(self, earlier: Transfers) -> Transfers:
        return Transfers(
            self.count - earlier.count,
            self.failed - earlier.failed,
            self.megabytes - earlier.megabytes,
            self.seconds - earlier.seconds,
            self.descriptors - earlier.descriptors,
        )


def read_transfers(log: str) -> Transfers:
    """The sum of the lines that vLLM has logged, each of which speaks of the time since the last."""
    count, failed, megabytes, seconds, descriptors = 0, 0, 0.0, 0.0, 0.0
    for match in _STATISTIC.finditer(log):
        number = int(match["count"])
        count += number
        failed += int(match["failed"]) + int(match["failed_recvs"])
        megabytes += number * float(match["mb"])
        seconds += number * float(match["ms"]) / 1e3
        descriptors += number * float(match["descriptors"])
    return Transfers(count, failed, megabytes, seconds, descriptors)
