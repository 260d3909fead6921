# SPDX-License-Identifier: Apache-2.0
"""The types of Mooncake's interface and the conversions that its binding makes: a wrong type is a TypeError."""

from __future__ import annotations

import ctypes
import enum
from array import array
from typing import Any, Tuple

import tidewire
from tidewire._arguments import Numbers, numbers

# Local addresses, remote addresses, lengths.
Lists = Tuple[Numbers, Numbers, Numbers]


class TransferOpcode(enum.IntEnum):
    """The direction of a transfer: ``Read`` from the peer, ``Write`` to it."""

    Read = 0
    Write = 1

    def __str__(self) -> str:
        return f"TransferOpcode.{self.name}"


Read = TransferOpcode.Read
Write = TransferOpcode.Write


class TransferNotify:
    """A message to or from a peer: ``name`` and ``msg``, both str. Bytes that are no UTF-8 come as surrogates."""

    __slots__ = ("name", "msg")

    def __init__(self, name: str = "", msg: str = "") -> None:
        self.name = to_string(name, "name")
        self.msg = to_string(msg, "msg")

    def __repr__(self) -> str:
        return f"TransferNotify(name={self.name!r}, msg={self.msg!r})"


def to_string(value: Any, name: str) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    raise TypeError(f"{name} must be a str, not {type(value).__name__}")


def to_unsigned(value: Any, name: str) -> int:
    try:
        number = value.__index__()
    except (AttributeError, TypeError):
        raise TypeError(f"{name} must be an int, not {type(value).__name__}") from None
    if not 0 <= number < 2**64:
        raise TypeError(f"{name} must be an unsigned 64-bit int, not {number}")
    return number


def to_direction(opcode: Any) -> int:
    if not isinstance(opcode, TransferOpcode):
        raise TypeError(f"opcode must be a TransferOpcode, not {type(opcode).__name__}")
    return int(opcode)


def to_list(values: Any, name: str) -> Numbers:
    if type(values) is not list and (isinstance(values, (int, dict, set)) or not hasattr(values, "__len__")):
        raise TypeError(f"{name} must be a sequence of ints, not {type(values).__name__}")
    try:
        return numbers(values, name)
    except tidewire.InvalidArgumentError as error:
        raise TypeError(str(error)) from None


def to_lists(buffers: Any, remotes: Any, lengths: Any) -> Lists:
    return to_list(buffers, "buffers"), to_list(remotes, "peer_buffer_addresses"), to_list(lengths, "lengths")


def to_single(buffer: Any, remote: Any, length: Any) -> Lists:
    return (
        numbers(to_unsigned(buffer, "buffer"), "buffer"),
        numbers(to_unsigned(remote, "peer_buffer_address"), "peer_buffer_address"),
        numbers(to_unsigned(length, "length"), "length"),
    )


def to_array(values: Numbers) -> array:
    """The numbers as an array('Q'); numpy's are copied."""
    if not values.count:
        return array("Q")
    if isinstance(values.owner, array) and values.owner.typecode == "Q":
        return values.owner
    copied = array("Q")
    copied.frombytes(ctypes.string_at(values.pointer, 8 * values.count))
    return copied
