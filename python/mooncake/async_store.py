# SPDX-License-Identifier: Apache-2.0
"""The store for programs with an event loop: every method ``name`` also as the coroutine ``async_name``.

    store = MooncakeDistributedStoreAsync()
    await store.async_setup("127.0.0.1", "P2PHANDSHAKE", 1 << 30, 1 << 26, "tcp", "", "127.0.0.1:50051")
    await store.async_put("key", b"bytes")

A coroutine runs the method in the loop's default executor. Cancelling it does not stop the method: buffers that it was
given belong to it until it has ended (at most the store's operation timeout).
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from typing import Any, Callable

from .store import MooncakeDistributedStore


class MooncakeDistributedStoreAsync(MooncakeDistributedStore):
    """A :class:`~mooncake.store.MooncakeDistributedStore` with ``async_<name>`` for each of its methods."""


def _coroutine(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    async def call(self: Any, *arguments: Any, **named: Any) -> Any:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(None, functools.partial(method, self, *arguments, **named))

    call.__name__ = f"async_{method.__name__}"
    call.__qualname__ = f"{MooncakeDistributedStoreAsync.__qualname__}.{call.__name__}"
    return call


for _name, _method in inspect.getmembers(MooncakeDistributedStore, inspect.isfunction):
    if not _name.startswith("_"):
        setattr(MooncakeDistributedStoreAsync, f"async_{_name}", _coroutine(_method))

__all__ = ["MooncakeDistributedStoreAsync"]
