#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What mooncake.engine adds to the C calls under it when a framework hands over long lists. Prints one line of JSON.

One call with 50,000 entries of 256 bytes, as SGLang makes it between different tensor parallel sizes. The time inside the C
library is taken apart; the rest is Python's part: checks, conversion of three lists, the call itself.
"""
import json
import statistics
import time

from mooncake import _core
from mooncake.engine import TransferEngine

ENTRIES, PIECE, CALLS = 50_000, 256, 40


class TimedLibrary:
    """The C library, with the time spent in it."""

    def __init__(self, library):
        self._library = library
        self.seconds = 0.0

    def __getattr__(self, name):
        call = getattr(self._library, name)

        def timed(*arguments):
            began = time.perf_counter()
            try:
                return call(*arguments)
            finally:
                self.seconds += time.perf_counter() - began

        setattr(self, name, timed)
        return timed


def engine():
    """An engine with room for all pieces, and the room's address."""
    made = TransferEngine()
    if made.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", ""):
        raise RuntimeError("the engine does not start; the log says why")
    address = made.allocate_managed_buffer(2 * ENTRIES * PIECE)
    if not address:
        raise RuntimeError("no managed buffer; the log says why")
    return made, address


def main():
    source, local = engine()
    target, remote = engine()
    session = f"127.0.0.1:{target.get_rpc_port()}"
    # Every other piece, so that none can be joined with its neighbour.
    sources = [local + 2 * PIECE * number for number in range(ENTRIES)]
    targets = [remote + 2 * PIECE * number for number in range(ENTRIES)]
    lengths = [PIECE] * ENTRIES
    library = _core._lib = TimedLibrary(_core._lib)
    above, inside = [], []
    for call in range(CALLS + 3):
        library.seconds = 0.0
        began = time.perf_counter()
        if source.batch_transfer_sync_write(session, sources, targets, lengths):
            raise RuntimeError("a write failed; the log says why")
        total = time.perf_counter() - began
        if call >= 3:
            above.append(total - library.seconds)
            inside.append(library.seconds)
    median = statistics.median
    print(json.dumps({"above_s": median(above), "worst_s": max(above), "c_call_s": median(inside)}))


if __name__ == "__main__":
    main()
