# SPDX-License-Identifier: Apache-2.0
"""The numbers that ``mooncake.store`` answers with, and what the C interface's codes become."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Sequence

from tidewire import Code, _native
from tidewire._store_native import lib

log = logging.getLogger("mooncake")

INTERNAL_ERROR = -1
BUFFER_OVERFLOW = -10
NO_AVAILABLE_HANDLE = -200
INVALID_PARAMS = -600
OBJECT_NOT_FOUND = -704
OBJECT_ALREADY_EXISTS = -705
OBJECT_HAS_LEASE = -706
RPC_FAIL = -900
RPC_TIMEOUT = -901
UNAVAILABLE_IN_CURRENT_STATUS = -1010
NOT_SUPPORTED = -1012

# What a call as a whole failed with; a store that is not set up, closed or the parent's answers INVALID_PARAMS.
_OF_CALLS = {
    Code.INVALID_ARGUMENT: INVALID_PARAMS,
    Code.NOT_FOUND: INVALID_PARAMS,
    Code.NOT_REGISTERED: INVALID_PARAMS,
    Code.OVERLAP: INVALID_PARAMS,
    Code.BUSY: UNAVAILABLE_IN_CURRENT_STATUS,
    Code.PERMISSION_DENIED: -601,
    Code.UNAUTHENTICATED: -601,
    Code.UNREACHABLE: RPC_FAIL,
    Code.PEER_GONE: RPC_FAIL,
    Code.PROTOCOL: RPC_FAIL,
    Code.TIMEOUT: RPC_TIMEOUT,
    Code.NO_MEMORY: BUFFER_OVERFLOW,
    Code.NO_RESOURCES: BUFFER_OVERFLOW,
    Code.UNSUPPORTED: NOT_SUPPORTED,
    Code.FORKED: INVALID_PARAMS,
    Code.CLOSED: INVALID_PARAMS,
}

# Answers that a cache gives every day; they are no news.
_USUAL = {NO_AVAILABLE_HANDLE, OBJECT_NOT_FOUND, OBJECT_ALREADY_EXISTS, OBJECT_HAS_LEASE, -703, -707}


def code_name(code: int) -> str:
    """ "OBJECT_NOT_FOUND" for -704."""
    return (lib.tw_store_code_name(code) or b"").decode("ascii", "replace")


def call_code(code: int) -> int:
    """The number for a tw_code other than 0."""
    return _OF_CALLS.get(code, INTERNAL_ERROR)  # type: ignore[call-overload]


def failed_call(code: int, what: str) -> int:
    """The number for a tw_code, after one line in the log unless it is 0."""
    if not code:
        return 0
    text = _native.last_error()
    log.error("%s failed: %s", what, text)
    return call_code(code)


def note_failures(results: Sequence[int], what: str) -> None:
    """One line for a call in which keys failed with something that is no everyday answer."""
    unusual = [result for result in results if result < 0 and result not in _USUAL]
    if unusual:
        codes = ", ".join(f"{count} × {code_name(code)} ({code})" for code, count in Counter(unusual).items())
        log.warning("%s of %d keys: %s", what, len(results), codes)


def refused(what: str, why: str, code: int = INVALID_PARAMS) -> int:
    """Logs why a call is refused and gives the code back."""
    log.error("%s: %s", what, why)
    return code


def not_supported(what: str) -> int:
    """NOT_SUPPORTED after one line that names what."""
    log.warning("%s is not supported here (%d)", what, NOT_SUPPORTED)
    return NOT_SUPPORTED
