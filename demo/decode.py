# SPDX-License-Identifier: Apache-2.0
"""The decode process: holds a KV pool that others write into, and goes on from what has arrived.

    python -m demo.decode --model tiny

It says where its pool lies (one JSON line), reserves pages on request, waits for the notification that a prompt's KV is
complete, and generates. It never sees a prompt, only its length.
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np

from demo import engine as demo_engine
from demo.kv import PageAllocator, PagedKvCache
from demo.model import Model, generate, load_model

WAIT_SECONDS = 120.0  # for the KV of one prompt, computation included


class Decoder:
    """Serves one request after the other. Not thread-safe."""

    def __init__(self, model: Model, engine, pool_tokens: int):
        self._model, self._engine = model, engine
        pages = model.geometry.pages_for(pool_tokens)
        # Memory from the engine's own pool can be mapped by processes of this host; numpy's would work as well.
        self._memory = engine.allocate(model.geometry.pool_bytes(pages))
        self._cache = PagedKvCache(model.geometry, pages, self._memory.view())
        self._allocator = PageAllocator(pages, seed=7)
        self._tables: dict[int, tuple[np.ndarray, int]] = {}
        self._arrived: dict[str, tuple[float, bytes]] = {}

    def hello(self) -> dict:
        return {"engine": self._engine.address, "pool": self._cache.address, "pages": self._cache.pages}

    def reserve(self, request: int, length: int, new_tokens: int) -> np.ndarray:
        """Pages for a prompt of `length` tokens and what will be generated. They hold NaN until KV arrives."""
        table = self._allocator.take(self._model.geometry.pages_for(length + new_tokens))
        self._cache.poison(table)
        self._tables[request] = (table, new_tokens)
        return table

    def generate(self, request: int) -> dict:
        """Waits for the request's KV, then returns its tokens, the moment of arrival and a digest of the KV."""
        table, new_tokens = self._tables[request]
        arrival, message = self._wait_for(f"kv/{request}")
        told = json.loads(message)
        digest = self._cache.digest(table, told["length"])
        begin = time.monotonic()
        tokens = generate(self._model, told["first"], told["length"], new_tokens, self._cache, table)
        seconds = time.monotonic() - begin
        return {"tokens": tokens, "arrival": arrival, "digest": digest, "seconds": seconds}

    def release(self, request: int) -> None:
        self._allocator.give_back(self._tables.pop(request)[0])

    def close(self) -> None:
        del self._cache  # its array is a view of the memory that goes
        self._memory.close()

    def _wait_for(self, name: str) -> tuple[float, bytes]:
        end = time.monotonic() + WAIT_SECONDS
        while name not in self._arrived:
            if time.monotonic() > end:
                raise TimeoutError(f"no notification {name!r} within {WAIT_SECONDS:.0f} s: did prefill fail?")
            for notification in self._engine.notifications(timeout=1.0):
                self._arrived[notification.name] = (time.monotonic(), bytes(notification.message))
        return self._arrived.pop(name)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m demo.decode", description=__doc__.splitlines()[0])
    demo_engine.add_arguments(parser)
    arguments = parser.parse_args()
    model = load_model(arguments.model)
    with demo_engine.open_engine(arguments) as engine:
        decoder = Decoder(model, engine, arguments.pool_tokens)

        def reserve(request: dict) -> dict:
            return {"table": decoder.reserve(request["id"], request["length"], request["new_tokens"]).tolist()}

        def release(request: dict) -> dict:
            decoder.release(request["id"])
            return {}

        handlers = {"reserve": reserve, "generate": lambda r: decoder.generate(r["id"]), "release": release}
        try:
            demo_engine.serve(decoder.hello(), handlers)
        finally:
            decoder.close()


if __name__ == "__main__":
    main()
