# SPDX-License-Identifier: Apache-2.0
"""Whether the machine is quiet enough to measure on."""
import time

ENOUGH = 0.9  # share of all processors that must be idle
SAMPLE = 0.5  # seconds


def _times():
    with open("/proc/stat", encoding="ascii") as file:
        values = [int(value) for value in file.readline().split()[1:9]]
    return values[3] + values[4], sum(values)


def idle_share(seconds=SAMPLE):
    """The share of processor time that nobody used during the next `seconds`."""
    idle, total = _times()
    time.sleep(seconds)
    idle_after, total_after = _times()
    return (idle_after - idle) / max(1, total_after - total)


def wait(patience):
    """Waits at most `patience` seconds for a quiet machine; returns the last idle share."""
    end = time.monotonic() + patience
    while True:
        share = idle_share()
        if share >= ENOUGH or time.monotonic() >= end:
            return share
