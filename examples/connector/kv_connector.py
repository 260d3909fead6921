# SPDX-License-Identifier: Apache-2.0
"""A connector for a framework with a paged KV cache: all that prefill-decode disaggregation needs of Tidewire.

The framework has one array for each layer (and for K and V, where it keeps them apart), cut into pages; a request owns
some pages of each. Both sides make a ``KvConnector`` over these arrays. The decode side sends ``describe()`` and its
page numbers to the prefill side, by whatever way requests travel; the prefill side calls ``send``. Both then ask, once
in each step of their scheduler, what has ended: ``sent()`` and ``received()``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional, TypedDict

import numpy as np
import tidewire


class Target(TypedDict):
    """What the prefill side must know of a decode instance. Plain JSON."""

    engine: str
    bases: list[int]
    page_bytes: list[int]
    pages: int


class KvConnector:
    """Call it from the scheduler's thread only; the engine below has threads of its own."""

    def __init__(self, arrays: Sequence[Any], pages: int, host: str = "127.0.0.1", **engine_options: Any) -> None:
        """``arrays``: contiguous, each of ``pages`` pages of equal size. ``host``: the address that peers use."""
        self._engine = tidewire.Engine(host, **engine_options)
        self._pages = pages
        # All or nothing. The engine keeps the arrays alive.
        regions = self._engine.register_many(arrays)
        for region in regions:
            if region.nbytes % pages:
                raise ValueError(f"an array of {region.nbytes} bytes can't be cut into {pages} pages")
        self._bases = np.array([region.address for region in regions], np.uint64)
        self._page_bytes = np.array([region.nbytes // pages for region in regions], np.uint64)
        self._sending: dict[str, tidewire.Batch] = {}

    def describe(self) -> Target:
        """For the other side. Valid as long as this process lives."""
        return {
            "engine": self._engine.address,
            "bases": self._bases.tolist(),
            "page_bytes": self._page_bytes.tolist(),
            "pages": self._pages,
        }

    def send(self, request: str, target: Target, pages: Sequence[int], target_pages: Sequence[int]) -> None:
        """Starts to copy ``pages`` of all arrays to ``target_pages`` there; they must stay as they are until ``sent``.

        The first contact with an instance waits for its answer; UnreachableError where none comes.
        """
        if target["page_bytes"] != self._page_bytes.tolist():
            raise ValueError(f"request {request}: pages of {target['page_bytes']} bytes there, not {self._page_bytes}")
        for numbers, count in ((pages, self._pages), (target_pages, target["pages"])):
            if any(not 0 <= page < count for page in numbers):
                raise ValueError(f"request {request}: there are {count} pages, not all of {list(numbers)}")
        # One batch for all layers: neighbouring pages are merged, and the notification comes after the last byte.
        self._sending[request] = self._engine.write(
            target["engine"],
            self._addresses(self._bases, pages),
            self._addresses(np.array(target["bases"], np.uint64), target_pages),
            np.repeat(self._page_bytes, len(pages)),
            notify=("kv", request.encode()),
        )

    def sent(self) -> dict[str, Optional[tidewire.Error]]:
        """The requests that have ended since the last call: None, or why it failed. Their pages may be used again."""
        ended = [request for request, batch in self._sending.items() if batch.done]
        return {request: self._end(request) for request in ended}

    def received(self, timeout: Optional[float] = None) -> list[str]:
        """The requests whose KV has come since the last call: all of it is in this side's pages."""
        return [news.message.decode() for news in self._engine.notifications(timeout) if news.name == "kv"]

    def abort(self, request: str) -> None:
        """Prefill side: afterwards nothing of this request is on its way (bounded, about half a second)."""
        if request in self._sending:
            self._sending[request].cancel()
            self._end(request)

    def close(self) -> None:
        self._engine.close()

    def _addresses(self, bases: np.ndarray, pages: Sequence[int]) -> np.ndarray:
        return (bases[:, None] + np.outer(self._page_bytes, np.array(pages, np.uint64))).ravel()

    def _end(self, request: str) -> Optional[tidewire.Error]:
        try:
            self._sending.pop(request).wait()
        except tidewire.Error as error:
            return error
        return None
