# SPDX-License-Identifier: Apache-2.0
"""Arguments for the C interface: texts, and lists of 64-bit numbers.

Lists go to ``tw_submit_lists`` by address where the caller has an array of them, else through array('Q').
"""

from __future__ import annotations

from array import array
from typing import Any

from .errors import InvalidArgumentError

# An array of no entries may have address 0; the C interface gets a valid pointer all the same.
_EMPTY = array("Q", [0])


class Numbers:
    """``count`` unsigned 64-bit numbers at ``pointer``; ``owner`` keeps them there."""

    __slots__ = ("pointer", "count", "owner")

    def __init__(self, pointer: int, count: int, owner: Any) -> None:
        self.pointer = pointer
        self.count = count
        self.owner = owner


def numbers(value: Any, name: str) -> Numbers:
    """Numbers of an int, of a sequence of ints, or (without a copy) of an array of uint64.

    Raises TypeError for anything else and InvalidArgumentError for a number outside of 64 bits; ``name`` is the
    argument's name in these texts.
    """
    if type(value) is list or type(value) is tuple:
        return _from_array(_convert(value, name))
    if isinstance(value, int):
        return _from_array(_convert((value,), name))
    if isinstance(value, array):
        if value.typecode in "QL" and value.itemsize == 8:
            return _from_array(value)
        return _from_array(_convert(value.tolist(), name))
    interface = getattr(value, "__array_interface__", None)
    if interface is not None:
        return _from_numpy(value, interface, name)
    if hasattr(value, "__index__"):
        return _from_array(_convert((value.__index__(),), name))
    if isinstance(value, (str, bytes, bytearray, memoryview)):
        raise TypeError(f"{name}: {type(value).__name__} is no list of integers")
    return _from_array(_convert(value, name))


def _from_array(values: array) -> Numbers:
    pointer, count = values.buffer_info()
    if count == 0:
        return Numbers(_EMPTY.buffer_info()[0], 0, _EMPTY)
    return Numbers(pointer, count, values)


def _convert(values: Any, name: str) -> array:
    try:
        return array("Q", values)
    except OverflowError:
        bad = next(v for v in values if not 0 <= v < 2**64)
        raise InvalidArgumentError(f"{name}: {bad} is no unsigned 64-bit number") from None
    except TypeError as error:
        raise TypeError(f"{name}: {error}") from None


def _from_numpy(values: Any, interface: dict[str, Any], name: str) -> Numbers:
    kind = interface["typestr"]
    if kind[1] not in "iu":
        raise TypeError(
            f"{name}: an array of {kind} is no list of integers; register it and pass the Region for its data"
        )
    if len(interface["shape"]) == 0:
        return _from_array(_convert((int(values),), name))
    if len(interface["shape"]) != 1:
        raise InvalidArgumentError(f"{name}: an array of shape {interface['shape']} is no list")
    if kind != "<u8" or interface.get("strides") is not None:
        return _from_array(_convert(values.tolist(), name))
    count = interface["shape"][0]
    if count == 0:
        return _from_array(_EMPTY[:0])
    return Numbers(interface["data"][0], count, values)


def broadcast(number: int, count: int) -> Numbers:
    """``count`` times the same number."""
    if not 0 <= number < 2**64:
        raise InvalidArgumentError(f"{number} is no unsigned 64-bit number")
    return _from_array(array("Q", (number,)) * count)


def text_argument(value: str, name: str) -> bytes:
    """UTF-8 for a ``const char*``. A NUL would cut the text silently, so it is refused."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a str, not {type(value).__name__}")
    data = value.encode("utf-8", "surrogateescape")
    if b"\0" in data:
        raise InvalidArgumentError(f"{name} holds a NUL character: {value!r}")
    return data
