# SPDX-License-Identifier: Apache-2.0
"""The prefill process: computes a prompt's KV and writes it into the decode process, layer by layer, while it computes.

    python -m demo.prefill --model tiny
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence

import numpy as np

from demo import engine as demo_engine
from demo.kv import PageAllocator, PagedKvCache, pieces
from demo.model import Model, load_model

WAIT_SECONDS = 60.0  # for a transfer, after which something is broken


class Prefiller:
    """Serves one prompt after the other; the last prompt's KV stays until the next. Not thread-safe."""

    def __init__(self, model: Model, engine, pool_tokens: int):
        self._model, self._engine = model, engine
        pages = model.geometry.pages_for(pool_tokens)
        self._memory = engine.allocate(model.geometry.pool_bytes(pages))
        self._cache = PagedKvCache(model.geometry, pages, self._memory.view())
        self._last: tuple | None = None

    def run(self, request: int, tokens: Sequence[int], decoder: dict, remote_table: Sequence[int]) -> dict:
        """Computes the prompt and hands it over.

        decoder: what Decoder.hello said. Returns the first token, the moments (monotonic seconds) when computing began
        and ended and when the last byte was confirmed, the number of operations and a digest of the KV.
        """
        geometry, length = self._model.geometry, len(tokens)
        table = PageAllocator(self._cache.pages).take(geometry.pages_for(length))
        peer = self._engine.open(decoder["engine"])
        local = (self._cache.address, self._cache.pages, table)
        remote = (decoder["pool"], decoder["pages"], np.asarray(remote_table, dtype=np.int64))
        batches, operations = [], 0

        def send(layer: int) -> None:
            nonlocal operations
            lists = pieces(geometry, range(layer, layer + 1), length, local, remote)
            operations += len(lists[2])
            batches.append(self._engine.write(peer, *lists, deadline=WAIT_SECONDS))

        begin = time.monotonic()
        first = self._model.prefill(tokens, self._cache, table, send)
        computed = time.monotonic()
        for batch in batches:
            batch.wait(WAIT_SECONDS)
        sent = time.monotonic()
        # All bytes are in the decoder's memory now, so it may be told.
        self._engine.notify(peer, f"kv/{request}", json.dumps({"first": first, "length": length}).encode())
        self._last = (peer, local, remote, length)
        return {
            "first": first,
            "begin": begin,
            "computed": computed,
            "sent": sent,
            "operations": operations,
            "digest": self._cache.digest(table, length),
        }

    def repeat(self, times: int) -> list[float]:
        """Sends the last prompt's KV again, all layers in one batch and nothing else running: seconds of each time."""
        peer, local, remote, length = self._last
        lists = pieces(self._model.geometry, range(self._model.geometry.layers), length, local, remote)
        seconds = []
        for _ in range(times):
            begin = time.monotonic()
            self._engine.write(peer, *lists, deadline=WAIT_SECONDS).wait(WAIT_SECONDS)
            seconds.append(time.monotonic() - begin)
        return seconds

    def close(self) -> None:
        del self._cache  # its array is a view of the memory that goes
        self._memory.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m demo.prefill", description=__doc__.splitlines()[0])
    demo_engine.add_arguments(parser)
    arguments = parser.parse_args()
    model = load_model(arguments.model)
    with demo_engine.open_engine(arguments) as engine:
        prefiller = Prefiller(model, engine, arguments.pool_tokens)
        handlers = {
            "prefill": lambda r: prefiller.run(r["id"], r["tokens"], r["decoder"], r["table"]),
            "repeat": lambda r: {"seconds": prefiller.repeat(r["times"])},
        }
        try:
            demo_engine.serve({"engine": engine.address}, handlers)
        finally:
            prefiller.close()


if __name__ == "__main__":
    main()
