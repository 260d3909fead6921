# SPDX-License-Identifier: Apache-2.0
"""Address and length of anything that holds bytes.

:func:`describe` understands, in this order: what Tidewire made itself (``Buffer``, ``Region``), a pair
``(address, nbytes)``, tensors with ``data_ptr()`` (torch), ``__cuda_array_interface__`` (CuPy, Numba), the buffer
protocol (bytes, bytearray, mmap, array, numpy), ``__array_interface__`` (numpy types without a buffer format, such as
bfloat16) and DLPack. Nothing is copied and nothing is imported. The memory must be one contiguous piece.
"""

from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass
from typing import Any, Optional

from .errors import InvalidArgumentError, UnsupportedError

__all__ = ["Span", "describe"]


@dataclass(frozen=True)
class Span:
    """One contiguous piece of memory.

    ``address``: virtual address. ``nbytes``: length in bytes. ``location``: "*" (find out), "cpu:N", "cuda:N".
    ``readonly``: the owner forbids writing. ``owner``: keeps the memory alive and in place while it is held; ``None``
    when the caller gave a bare address and so looks after it.
    """

    address: int
    nbytes: int
    location: str
    readonly: bool
    owner: Any


class _PyBuffer(ctypes.Structure):
    # The head of CPython's Py_buffer; the whole struct is smaller than the padding that follows.
    _fields_ = [
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.c_void_p),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("padding", ctypes.c_byte * 256),
    ]


_PYBUF_SIMPLE = 0
_get_buffer = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(_PyBuffer), ctypes.c_int)(
    ("PyObject_GetBuffer", ctypes.pythonapi)
)
_release_buffer = ctypes.PYFUNCTYPE(None, ctypes.POINTER(_PyBuffer))(("PyBuffer_Release", ctypes.pythonapi))


def describe(obj: Any) -> Span:
    """The :class:`Span` of ``obj``.

    Raises TypeError when ``obj`` holds no bytes in any known way, InvalidArgumentError when it is not contiguous or its
    numbers make no sense, UnsupportedError for a kind of device memory that has no name here.
    """
    span = getattr(obj, "_tidewire_span", None)
    if span is not None:
        return span()
    if isinstance(obj, tuple):
        return _from_pair(obj)
    if callable(getattr(obj, "data_ptr", None)):
        return _from_data_ptr(obj)
    cuda = getattr(obj, "__cuda_array_interface__", None)
    if cuda is not None:
        return _from_interface(obj, cuda, "cuda")
    try:
        view: Optional[memoryview] = memoryview(obj)
    except TypeError:
        view = None
    except (ValueError, BufferError):  # a numpy type without a buffer format
        view = None
    if view is not None:
        return _from_memoryview(view)
    interface = getattr(obj, "__array_interface__", None)
    if interface is not None:
        return _from_interface(obj, interface, "*")
    if hasattr(obj, "__dlpack__"):
        return _from_dlpack(obj)
    raise TypeError(
        f"{type(obj).__name__} is no memory: give an object with the buffer protocol, data_ptr() or DLPack, or a pair "
        "(address, nbytes)"
    )


def _span(address: Any, nbytes: Any, location: str, readonly: bool, owner: Any) -> Span:
    address, nbytes = int(address), int(nbytes)
    if address < 0 or nbytes < 0 or address + nbytes > 2**64:
        raise InvalidArgumentError(f"address {address:#x} with {nbytes} bytes is outside of 64 bits")
    return Span(address, nbytes, location, readonly, owner)


def _from_pair(pair: tuple[Any, ...]) -> Span:
    if len(pair) != 2 or not all(hasattr(value, "__index__") for value in pair):
        raise TypeError(f"a tuple must be (address, nbytes), two integers, not {pair!r}")
    return _span(pair[0].__index__(), pair[1].__index__(), "*", False, None)


def _from_data_ptr(tensor: Any) -> Span:
    contiguous = getattr(tensor, "is_contiguous", None)
    if callable(contiguous) and not contiguous():
        raise InvalidArgumentError(f"a tensor of shape {tuple(tensor.shape)} is not contiguous: use .contiguous()")
    nbytes = getattr(tensor, "nbytes", None)
    if nbytes is None:
        if callable(getattr(tensor, "numel", None)):
            nbytes = tensor.numel() * tensor.element_size()
        else:  # a storage
            nbytes = tensor.size() * tensor.element_size()
    elif callable(nbytes):
        nbytes = nbytes()
    location = "*"
    device = getattr(tensor, "device", None)
    kind = getattr(device, "type", None)
    if kind is not None and kind != "cpu":
        location = f"{kind}:{getattr(device, 'index', None) or 0}"
    return _span(tensor.data_ptr(), nbytes, location, False, tensor)


def _from_memoryview(view: memoryview) -> Span:
    if not view.c_contiguous:
        raise InvalidArgumentError(f"a buffer of shape {view.shape} with strides {view.strides} is not contiguous")
    raw = _PyBuffer()
    if view.nbytes == 0:
        return Span(0, 0, "*", view.readonly, view)
    _get_buffer(view, ctypes.byref(raw), _PYBUF_SIMPLE)
    address = raw.buf
    _release_buffer(ctypes.byref(raw))
    # The memoryview stays: while it lives, a bytearray or mmap can't move or shrink.
    return _span(address or 0, view.nbytes, "*", view.readonly, view)


def _from_interface(obj: Any, interface: dict[str, Any], kind: str) -> Span:
    shape = tuple(interface["shape"])
    itemsize = _itemsize(interface["typestr"])
    strides = interface.get("strides")
    if strides is not None and not _c_contiguous(shape, tuple(strides), itemsize):
        raise InvalidArgumentError(f"an array of shape {shape} with strides {tuple(strides)} is not contiguous")
    nbytes = itemsize
    for extent in shape:
        nbytes *= extent
    address, readonly = interface["data"]
    location = kind
    if kind == "cuda":
        device = getattr(obj, "device", None)
        index = getattr(device, "id", getattr(device, "index", 0))
        location = f"cuda:{index if isinstance(index, int) else 0}"
    return _span(address or 0, nbytes, location, bool(readonly), obj)


def _itemsize(typestr: str) -> int:
    match = re.match(r"[<>|=]([a-zA-Z])(\d+)", typestr)
    if match is None:
        raise InvalidArgumentError(f"an array of unknown type {typestr!r}")
    return int(match[2]) * (4 if match[1] == "U" else 1)  # U counts characters


def _c_contiguous(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> bool:
    expected = itemsize
    for extent, stride in zip(reversed(shape), reversed(strides)):
        if extent == 0:
            return True
        if extent > 1 and stride != expected:
            return False
        expected *= extent
    return True


class _DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("type_code", ctypes.c_uint8),
        ("type_bits", ctypes.c_uint8),
        ("type_lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


# DLDeviceType: kDLCPU, kDLCUDA, kDLCUDAHost (pinned), kDLCUDAManaged.
_DL_LOCATIONS = {1: "*", 2: "cuda:{}", 3: "*", 13: "cuda:{}"}

_capsule_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


def _from_dlpack(obj: Any) -> Span:
    # The capsule is not consumed: it goes with the span, and its destructor gives the tensor back.
    capsule = obj.__dlpack__()
    tensor = _DLTensor.from_address(_capsule_pointer(capsule, b"dltensor"))
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    itemsize = (tensor.type_bits * tensor.type_lanes + 7) // 8
    if tensor.strides:
        strides = tuple(tensor.strides[i] * itemsize for i in range(tensor.ndim))
        if not _c_contiguous(shape, strides, itemsize):
            raise InvalidArgumentError(f"a DLPack tensor of shape {shape} is not contiguous")
    location = _DL_LOCATIONS.get(tensor.device_type)
    if location is None:
        raise UnsupportedError(f"memory of DLPack device type {tensor.device_type} is not supported")
    nbytes = itemsize
    for extent in shape:
        nbytes *= extent
    address = (tensor.data or 0) + tensor.byte_offset
    return _span(address, nbytes, location.format(tensor.device_id), False, (obj, capsule))
