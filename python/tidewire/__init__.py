# SPDX-License-Identifier: Apache-2.0
"""Tidewire moves bytes, above all KV cache, between processes and machines at the speed of the wire.

    import numpy, tidewire

    with tidewire.Engine("10.0.0.5") as engine:
        cache = numpy.zeros(1 << 20, numpy.uint8)
        region = engine.register(cache)
        peer = engine.open("10.0.0.6:17001")
        address, nbytes = peer.first_region()
        engine.write(peer, region, address, cache.nbytes).wait()    # returns when the peer can read the bytes

Sizes are bytes, times are seconds (float), addresses are integers. All calls may come from any thread and release the
interpreter lock. Failures raise subclasses of :class:`Error`.
"""

from __future__ import annotations

import json
from typing import Any

from . import _native
from ._version import __version__
from .batch import Batch, BatchStatus, State, TransferStatus
from .buffers import Span, describe
from .engine import Engine
from .errors import (
    AddressInUseError,
    BusyError,
    CanceledError,
    ClosedError,
    Code,
    DeadlineError,
    Error,
    ForkedError,
    InternalError,
    InvalidArgumentError,
    NoMemoryError,
    NoResourcesError,
    NotFoundError,
    NotRegisteredError,
    OverlapError,
    PartialError,
    PeerGoneError,
    PermissionDeniedError,
    ProtocolError,
    UnauthenticatedError,
    UnreachableError,
    UnsupportedError,
    WaitTimeoutError,
    check,
)
from .memory import Buffer, Region
from .peers import Notification, Peer


def topology() -> dict[str, Any]:
    """This machine's NICs, NUMA nodes and accelerators, as ``tidewire topology --json`` prints them."""
    code, text = _native.read_text(_native.lib.tw_topology_json)
    check(code)
    return json.loads(text)


def settings() -> Any:
    """The table of settings: name, unit, default, range, value, origin, Mooncake's name, help."""
    code, text = _native.read_text(_native.lib.tw_settings_json)
    check(code)
    return json.loads(text)


__all__ = [
    "AddressInUseError",
    "Batch",
    "BatchStatus",
    "Buffer",
    "BusyError",
    "CanceledError",
    "ClosedError",
    "Code",
    "DeadlineError",
    "Engine",
    "Error",
    "ForkedError",
    "InternalError",
    "InvalidArgumentError",
    "NoMemoryError",
    "NoResourcesError",
    "NotFoundError",
    "NotRegisteredError",
    "Notification",
    "OverlapError",
    "PartialError",
    "Peer",
    "PeerGoneError",
    "PermissionDeniedError",
    "ProtocolError",
    "Region",
    "Span",
    "State",
    "TransferStatus",
    "UnauthenticatedError",
    "UnreachableError",
    "UnsupportedError",
    "WaitTimeoutError",
    "__version__",
    "describe",
    "settings",
    "topology",
]
