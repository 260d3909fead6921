# SPDX-License-Identifier: Apache-2.0
"""The C interface ``tidewire.h`` as ctypes sees it: finds the library, declares every prototype.

Nothing here is public. The library is searched in this order: the file that ``TIDEWIRE_LIBRARY`` names, beside this
package (a wheel), ``build/lib`` of a source tree. ctypes releases the interpreter lock around every call.
"""

from __future__ import annotations

import ctypes
import os
from ctypes import POINTER, c_char_p, c_int, c_int32, c_size_t, c_uint16, c_uint64, c_void_p
from pathlib import Path
from typing import Any, Callable, Optional

NO_TIMEOUT = 2**64 - 1
NANOSECONDS = 1_000_000_000
# A long wait goes to the library in pieces of this length, so that Ctrl-C and the close of the engine are noticed.
WAIT_SLICE_NS = 250_000_000


class EngineOptions(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("local_name", c_char_p),
        ("metadata", c_char_p),
        ("protocol", c_char_p),
        ("devices", c_char_p),
        ("settings", POINTER(c_char_p)),
    ]


class Range(ctypes.Structure):
    _fields_ = [("address", c_void_p), ("length", c_uint64)]


class Transfer(ctypes.Structure):
    _fields_ = [
        ("opcode", c_int32),
        ("reserved", c_int32),
        ("local", c_void_p),
        ("peer", c_uint64),
        ("remote", c_uint64),
        ("length", c_uint64),
    ]


class SubmitOptions(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("deadline_ns", c_uint64),
        ("notify_name", c_char_p),
        ("notify_message", c_char_p),
        ("notify_length", c_size_t),
    ]


class TransferStatus(ctypes.Structure):
    _fields_ = [("state", c_int32), ("code", c_int32), ("transferred_bytes", c_uint64)]


class BatchStatus(ctypes.Structure):
    _fields_ = [
        ("state", c_int32),
        ("code", c_int32),
        ("transfers", c_uint64),
        ("completed", c_uint64),
        ("failed", c_uint64),
        ("transferred_bytes", c_uint64),
    ]


class Notification(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("message", c_void_p), ("length", c_size_t), ("sender", c_char_p)]


# Name -> argument types. Every function returns a tw_code except those in _RESULTS.
PROTOTYPES: dict[str, list[Any]] = {
    "tw_code_name": [c_int],
    "tw_last_error": [],
    "tw_version": [],
    "tw_engine_create": [POINTER(EngineOptions), POINTER(c_uint64)],
    "tw_engine_destroy": [c_uint64],
    "tw_engine_address": [c_uint64, c_char_p, c_size_t],
    "tw_engine_port": [c_uint64, POINTER(c_uint16)],
    "tw_engine_status_json": [c_uint64, c_char_p, c_size_t, POINTER(c_size_t)],
    "tw_register": [c_uint64, c_void_p, c_uint64, c_char_p, c_int],
    "tw_unregister": [c_uint64, c_void_p],
    "tw_register_many": [c_uint64, POINTER(Range), c_size_t, c_char_p, c_int],
    "tw_unregister_many": [c_uint64, c_void_p, c_size_t],
    "tw_allocate": [c_uint64, c_uint64, c_char_p, POINTER(c_void_p)],
    "tw_free": [c_uint64, c_void_p],
    "tw_copy_in": [c_uint64, c_void_p, c_void_p, c_uint64],
    "tw_copy_out": [c_uint64, c_void_p, c_void_p, c_uint64],
    "tw_peer_open": [c_uint64, c_char_p, POINTER(c_uint64)],
    "tw_peer_close": [c_uint64, c_uint64],
    "tw_peer_probe": [c_uint64, c_char_p, c_uint64],
    "tw_peer_first_region": [c_uint64, c_uint64, POINTER(c_uint64), POINTER(c_uint64)],
    "tw_submit": [c_uint64, POINTER(Transfer), c_size_t, POINTER(SubmitOptions), POINTER(c_uint64)],
    # The three arrays are passed by address (an int), so that array.array and numpy need no copy.
    "tw_submit_lists": [
        c_uint64,
        c_uint64,
        c_int,
        c_void_p,
        c_void_p,
        c_void_p,
        c_size_t,
        POINTER(SubmitOptions),
        POINTER(c_uint64),
    ],
    "tw_transfer_in_stream": [c_uint64, c_uint64, c_int, c_void_p, c_void_p, c_void_p, c_size_t, c_uint64],
    "tw_batch_wait": [c_uint64, c_uint64, POINTER(BatchStatus)],
    "tw_batch_poll": [c_uint64, POINTER(BatchStatus)],
    "tw_batch_transfer_status": [c_uint64, c_size_t, POINTER(TransferStatus)],
    "tw_batch_error": [c_uint64, c_char_p, c_size_t],
    "tw_batch_cancel": [c_uint64],
    "tw_batch_fd": [c_uint64, POINTER(c_int)],
    "tw_batch_release": [c_uint64],
    "tw_notify": [c_uint64, c_uint64, c_char_p, c_char_p, c_size_t, c_uint64],
    "tw_notifications_take": [c_uint64, POINTER(POINTER(Notification)), POINTER(c_size_t)],
    "tw_notifications_free": [POINTER(Notification), c_size_t],
    "tw_notifications_wait": [c_uint64, c_uint64],
    "tw_topology_json": [c_char_p, c_size_t, POINTER(c_size_t)],
    "tw_settings_json": [c_char_p, c_size_t, POINTER(c_size_t)],
    "tw_test_device_allocate": [c_uint64, POINTER(c_void_p)],
    "tw_test_device_free": [c_void_p],
}

_RESULTS: dict[str, Any] = {
    "tw_code_name": c_char_p,
    "tw_last_error": c_char_p,
    "tw_version": c_char_p,
    "tw_notifications_free": None,
}


def library_path() -> Path:
    """The file that is, or would be, loaded. ImportError when there is none."""
    named = os.environ.get("TIDEWIRE_LIBRARY")
    if named:
        if not os.path.isfile(named):
            raise ImportError(f"TIDEWIRE_LIBRARY names {named!r}, which is not a file")
        return Path(named)
    package = Path(__file__).resolve().parent
    candidates = [package / "libtidewire.so", package.parent.parent / "build" / "lib" / "libtidewire.so"]
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    looked = ", ".join(str(candidate) for candidate in candidates)
    raise ImportError(f"libtidewire.so not found (looked at {looked}): run scripts/build.sh or set TIDEWIRE_LIBRARY")


def _load() -> ctypes.CDLL:
    path = library_path()
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise ImportError(
            f"can't load {path}: {error} (Tidewire needs Linux x86_64 with glibc 2.34 or newer)"
        ) from None
    for name, arguments in PROTOTYPES.items():
        try:
            function = getattr(library, name)
        except AttributeError:
            raise ImportError(f"{path} lacks {name}: it is not the library of this version of tidewire") from None
        function.argtypes = arguments
        function.restype = _RESULTS.get(name, c_int)
    return library


lib = _load()

# The process that may use engines made here; a forked child gets a number of its own and so knows itself.
process_id = os.getpid()
# Set while the interpreter goes away: finalizers then leave the library alone.
exiting = False


def _after_fork_in_child() -> None:
    global process_id
    process_id = os.getpid()


os.register_at_fork(after_in_child=_after_fork_in_child)


def last_error() -> str:
    """Text of the calling thread's last failed call."""
    return (lib.tw_last_error() or b"").decode("utf-8", "replace")


def read_text(call: Callable[[Any, int, Any], int]) -> tuple[int, str]:
    """Runs a ``(out, out_size, *needed)`` function with a buffer that is large enough. Returns (code, text)."""
    size = 64 * 1024
    needed = c_size_t(0)
    code = 0
    for _ in range(4):  # the text may grow between two calls
        buffer = ctypes.create_string_buffer(size)
        code = call(buffer, size, ctypes.byref(needed))
        if code == 0:
            return 0, buffer.value.decode("utf-8", "replace")
        if needed.value <= size:
            break
        size = needed.value + 4096
    return code, ""


def to_nanoseconds(seconds: Optional[float], default: int) -> int:
    """Seconds to nanoseconds; ``None`` gives ``default``. Never 0 for a given time, because 0 means "the default"."""
    if seconds is None:
        return default
    if not seconds >= 0:  # also refuses NaN
        raise ValueError(f"a time must be 0 or more seconds, not {seconds!r}")
    return max(1, min(int(seconds * NANOSECONDS), NO_TIMEOUT - 1)) if seconds < 1e10 else NO_TIMEOUT - 1
