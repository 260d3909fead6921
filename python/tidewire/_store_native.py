# SPDX-License-Identifier: Apache-2.0
"""The C interface ``store.h`` as ctypes sees it, in the library that :mod:`tidewire._native` has loaded.

Nothing here is public. Importing raises ImportError where that library has no store.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_char_p, c_int, c_int32, c_int64, c_size_t, c_uint8, c_uint32, c_uint64, c_void_p
from typing import Any

from . import _native

lib = _native.lib


class StoreOptions(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("local_name", c_char_p),
        ("metadata", c_char_p),
        ("protocol", c_char_p),
        ("devices", c_char_p),
        ("master", c_char_p),
        ("segment_bytes", c_uint64),
        ("local_buffer_bytes", c_uint64),
        ("engine", c_uint64),
        ("settings", POINTER(c_char_p)),
    ]


class StoreKeys(ctypes.Structure):
    # `bytes` may hold NULs; `lengths` is the address of an array('Q'), which whoever makes one keeps.
    _fields_ = [("bytes", c_char_p), ("lengths", c_void_p), ("count", c_size_t)]


class StorePutOptions(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("upsert", c_int32),
        ("replicas", c_uint32),
        ("soft_pin", c_int32),
        ("soft_pin_ttl_ns", c_uint64),
        ("hard_pin", c_int32),
        ("prefer_same_host", c_int32),
        ("preferred_segments", POINTER(c_char_p)),
        ("data_type", c_uint8),
        ("groups", POINTER(StoreKeys)),
    ]


class StoreBuffer(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("size", c_uint64), ("result", c_int64), ("handle", c_uint64)]


_KEYS = POINTER(StoreKeys)
# Arrays go by address (an int or None).
_ARRAY = c_void_p

# Name -> argument types. Every function returns a tw_code except those in _RESULTS.
PROTOTYPES: dict[str, list[Any]] = {
    "tw_store_code_name": [c_int64],
    "tw_store_create": [POINTER(StoreOptions), POINTER(c_uint64)],
    "tw_store_destroy": [c_uint64],
    "tw_store_name": [c_uint64, c_char_p, c_size_t],
    "tw_store_health": [c_uint64],
    "tw_store_status_json": [c_uint64, c_char_p, c_size_t, POINTER(c_size_t)],
    "tw_store_register": [c_uint64, c_void_p, c_uint64],
    "tw_store_unregister": [c_uint64, c_void_p],
    "tw_store_mount": [c_uint64, c_void_p, c_uint64, c_char_p, POINTER(c_uint32)],
    "tw_store_unmount": [c_uint64, c_uint32],
    "tw_store_allocate": [c_uint64, c_uint64],
    "tw_store_free": [c_uint64, c_void_p],
    "tw_store_put": [c_uint64, _KEYS, _ARRAY, _ARRAY, _ARRAY, POINTER(StorePutOptions), _ARRAY],
    "tw_store_get_into": [c_uint64, _KEYS, _ARRAY, _ARRAY, _ARRAY, _ARRAY, _ARRAY],
    "tw_store_get": [c_uint64, _KEYS, _ARRAY],
    "tw_store_buffer_release": [c_uint64],
    "tw_store_exists": [c_uint64, _KEYS, _ARRAY],
    "tw_store_sizes": [c_uint64, _KEYS, _ARRAY],
    "tw_store_remove": [c_uint64, _KEYS, c_int, _ARRAY],
    "tw_store_remove_matching": [c_uint64, c_char_p, c_int, POINTER(c_int64)],
    "tw_store_replicas_json": [c_uint64, _KEYS, c_char_p, c_size_t, POINTER(c_size_t)],
    "tw_store_get_session_start": [c_uint64, _KEYS, _ARRAY],
    "tw_store_get_session_end": [c_uint64, _KEYS, _ARRAY],
    "tw_store_put_session_start": [c_uint64, _KEYS, _ARRAY, POINTER(StorePutOptions), _ARRAY],
    "tw_store_put_session_write": [c_uint64, _KEYS, _ARRAY, _ARRAY, _ARRAY, _ARRAY, _ARRAY],
    "tw_store_put_session_end": [c_uint64, _KEYS, c_int, _ARRAY],
}

_RESULTS: dict[str, Any] = {
    "tw_store_code_name": c_char_p,
    "tw_store_allocate": c_void_p,
    "tw_store_buffer_release": None,
}


def _declare() -> None:
    for name, arguments in PROTOTYPES.items():
        try:
            function = getattr(lib, name)
        except AttributeError:
            raise ImportError(
                f"{_native.library_path()} lacks {name}: it is a build without the store, or not of this version"
            ) from None
        function.argtypes = arguments
        function.restype = _RESULTS.get(name, c_int)


_declare()
