# SPDX-License-Identifier: Apache-2.0
"""The engine: registers memory, knows peers, moves bytes, passes notifications."""

from __future__ import annotations

import ctypes
import json
import time
from typing import Any, Iterable, Mapping, Optional, Sequence, Union

from . import _native
from ._arguments import Numbers, broadcast, numbers, text_argument
from ._life import EngineLife
from .batch import Batch
from .buffers import Span, describe
from .errors import Code, InvalidArgumentError, check, make_error
from .memory import Buffer, Region
from .peers import Notification, Peer, take_notifications

_PERMISSIONS = {"none": 0, "read": 1, "read-write": 3}
_READ, _WRITE = 0, 1

PeerLike = Union[Peer, str]


class Engine(EngineLife):
    """A transfer engine: one listening port, its rails, its regions, its threads. Several in a process are fine.

    ``local_name``: the advertised "host", "host:port" or "[v6]:port"; without a port one is chosen.
    ``metadata``: "P2PHANDSHAKE" (peers are addresses) or "http://host:port[/path]" (peers are names).
    ``protocol``: "auto" (same host, then TCP), "tcp", "shm", "rdma", "efa", "fabric:<provider>".
    ``devices``: interface names, a comma list or a sequence; empty means the interface of the advertised address.
    ``settings``: name to value, as ``tidewire doctor --settings`` prints them; these win over the environment.

    Raises AddressInUseError for a taken port, UnsupportedError for a protocol that this machine can't do,
    InvalidArgumentError for a bad name or setting. After ``os.fork`` the child gets ForkedError from every call and may
    make engines of its own. An engine that is not closed is closed when it is collected or the interpreter exits.
    """

    def __init__(
        self,
        local_name: str = "127.0.0.1",
        *,
        metadata: str = "P2PHANDSHAKE",
        protocol: str = "auto",
        devices: Union[str, Sequence[str]] = "",
        settings: Mapping[str, Any] = {},
    ) -> None:
        super().__init__()

        if not isinstance(devices, str):
            devices = ",".join(devices)
        values = [text_argument(f"{name}={_setting(value)}", "settings") for name, value in settings.items()]
        listed = (ctypes.c_char_p * (len(values) + 1))(*values, None)
        options = _native.EngineOptions(
            struct_size=ctypes.sizeof(_native.EngineOptions),
            local_name=text_argument(local_name, "local_name"),
            metadata=text_argument(metadata, "metadata"),
            protocol=text_argument(protocol, "protocol"),
            devices=text_argument(devices, "devices"),
            settings=ctypes.cast(listed, ctypes.POINTER(ctypes.c_char_p)),
        )
        self._start(options)

    @property
    def address(self) -> str:
        """ "host:port" ("[v6]:port"): what peers pass to ``open``."""
        return self._address

    @property
    def port(self) -> int:
        """The listening port."""
        return self._port

    @property
    def closed(self) -> bool:
        """Whether ``close`` was called."""
        return self._closed

    def status(self) -> dict[str, Any]:
        """Everything that ``tidewire status`` shows: peers, rails, regions, work in flight, last errors."""
        handle = self._live()
        code, text = _native.read_text(
            lambda out, size, needed: _native.lib.tw_engine_status_json(handle, out, size, needed)
        )
        check(code)
        return json.loads(text)

    def __enter__(self) -> "Engine":
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<tidewire.Engine {getattr(self, '_address', '?')}{' closed' if self._closed else ''}>"

    # -- memory --

    def allocate(self, nbytes: int, location: str = "*") -> Buffer:
        """``nbytes`` > 0 of zeroed, registered (read-write) memory at ``location`` ("*", "cpu:N").

        NoMemoryError or NoResourcesError when it can't be had, InvalidArgumentError for 0 bytes.
        """
        out = ctypes.c_void_p()
        handle = self._live()
        if nbytes < 0:
            raise InvalidArgumentError(f"can't allocate {nbytes} bytes")
        check(_native.lib.tw_allocate(handle, nbytes, text_argument(location, "location"), ctypes.byref(out)))
        return Buffer(self, out.value or 0, nbytes, location)

    def register(self, obj: Any, location: str = "*", permission: str = "read-write") -> Region:
        """Registers the memory of ``obj`` (see :func:`tidewire.describe`) and keeps ``obj`` alive until ``close``.

        ``location``: "*" finds out, or "cpu:N", "cuda:N", "neuron:N". ``permission``: what peers may do with it,
        "none", "read" or "read-write"; read-only objects can't be "read-write". The identical range may be registered
        again and is counted; a partial overlap raises OverlapError. A bare (address, nbytes) must outlive the region.
        """
        return self.register_many([obj], location, permission)[0]

    def register_many(
        self, objects: Iterable[Any], location: str = "*", permission: str = "read-write"
    ) -> list[Region]:
        """Registers all of ``objects`` or none; the error names the one at fault. See :meth:`register`."""
        handle = self._live()
        if permission not in _PERMISSIONS:
            raise InvalidArgumentError(f"permission must be one of {', '.join(_PERMISSIONS)}, not {permission!r}")
        things = list(objects)
        spans = [describe(obj) for obj in things]
        for index, span in enumerate(spans):
            if span.readonly and permission == "read-write":
                raise InvalidArgumentError(
                    f"object {index} ({type(things[index]).__name__}) is read-only: register it with permission "
                    '"read" or "none"'
                )
        # Different locations need a call each, so "all or nothing" means to undo what went before a failure.
        regions: dict[int, Region] = {}
        try:
            for place, indices in _by_location(spans, location).items():
                listed = [_native.Range(spans[i].address, spans[i].nbytes) for i in indices]
                ranges = (_native.Range * len(listed))(*listed)
                check(
                    _native.lib.tw_register_many(
                        handle, ranges, len(listed), text_argument(place, "location"), _PERMISSIONS[permission]
                    )
                )
                regions.update((i, Region(self, things[i], spans[i], permission)) for i in indices)
        except BaseException:
            for region in regions.values():
                _native.lib.tw_unregister(handle, region.address)
                region._closed = True
            raise
        for index, region in regions.items():
            self._regions[region] = None
            if not isinstance(things[index], tuple):
                self._by_object.setdefault(id(things[index]), region)
        return [regions[index] for index in range(len(things))]

    def copy_in(self, destination: Any, source: Any) -> None:
        """Copies the bytes of ``source`` to ``destination``: registered or allocated local memory, also device memory.

        ``destination``: an address, a Buffer, a Region, or a registered object. The length is that of ``source``.
        """
        handle = self._live()
        span = describe(source)
        check(_native.lib.tw_copy_in(handle, _fitting(destination, span.nbytes), span.address, span.nbytes))

    def copy_out(self, destination: Any, source: Any) -> None:
        """Fills ``destination`` (writable ordinary memory) from ``source``: registered or allocated local memory.

        ``source``: an address, a Buffer, a Region, or a registered object. The length is that of ``destination``.
        """
        handle = self._live()
        span = describe(destination)
        if span.readonly:
            raise InvalidArgumentError(f"{type(destination).__name__} is read-only")
        check(_native.lib.tw_copy_out(handle, span.address, _fitting(source, span.nbytes), span.nbytes))

    # -- peers --

    def open(self, name: str) -> Peer:
        """Fetches a peer's record by "host:port" or metadata name.

        UnreachableError when nobody answers, NotFoundError for an unknown name, ProtocolError for a foreign protocol,
        UnauthenticatedError when the cluster secrets differ.
        """
        out = ctypes.c_uint64()
        check(_native.lib.tw_peer_open(self._live(), text_argument(name, "name"), ctypes.byref(out)))
        return Peer(self, out.value, name)

    def probe(self, name: PeerLike, timeout: Optional[float] = None) -> None:
        """Returns when the peer answers within ``timeout`` seconds (default: the connect timeout), else raises.

        An answer lifts the peer's back-off.
        """
        text = name.name if isinstance(name, Peer) else name
        check(_native.lib.tw_peer_probe(self._live(), text_argument(text, "name"), _native.to_nanoseconds(timeout, 0)))

    # -- transfers --

    def write(
        self,
        peer: PeerLike,
        local: Any,
        remote: Any,
        lengths: Any = None,
        *,
        deadline: Optional[float] = None,
        notify: Optional[tuple[str, bytes]] = None,
    ) -> Batch:
        """Copies local memory to a peer: one transfer, or one for each entry of the lists.

        ``peer``: a Peer or its name. ``local``: an address, a list of addresses, a Region, a Buffer, or an object that
        was registered. ``remote``: an address at the peer, or a list. ``lengths``: bytes, one number for all or a list;
        may be left out when ``local`` is memory. Lists may be sequences of int, array('Q') or numpy arrays; uint64
        arrays are not copied. ``deadline``: seconds from now (default: the setting ``transfer.timeout`` and 1 ns a
        byte). ``notify``: (name, message) for the peer, delivered once all bytes are in place.

        Returns a Batch at once. What is wrong with one transfer fails that transfer; lists of different lengths raise
        InvalidArgumentError here.
        """
        return self._submit(_WRITE, peer, local, remote, lengths, deadline, notify)

    def read(
        self,
        peer: PeerLike,
        local: Any,
        remote: Any,
        lengths: Any = None,
        *,
        deadline: Optional[float] = None,
        notify: Optional[tuple[str, bytes]] = None,
    ) -> Batch:
        """Copies a peer's memory to local memory; arguments as for :meth:`write`."""
        return self._submit(_READ, peer, local, remote, lengths, deadline, notify)

    # -- notifications --

    def notify(self, peer: PeerLike, name: str, message: bytes = b"", timeout: Optional[float] = None) -> None:
        """Sends a message of at most 65,536 bytes, exactly once, and returns when the peer has it.

        ``timeout``: seconds (default: the setting ``transfer.timeout``).
        """
        handle = self._live()
        data = bytes(message)
        check(
            _native.lib.tw_notify(
                handle,
                self._peer(peer)._live(),
                text_argument(name, "name"),
                data,
                len(data),
                _native.to_nanoseconds(timeout, 0),
            )
        )

    def notifications(self, timeout: Optional[float] = None) -> list[Notification]:
        """Takes all received notifications, oldest first.

        ``timeout``: seconds to wait for the first one; ``None`` doesn't wait. Returns [] when there is none.
        """
        end = None if timeout is None else time.monotonic_ns() + _native.to_nanoseconds(timeout, 0)
        while True:
            found = take_notifications(self._live())
            if found or end is None:
                return found
            left = end - time.monotonic_ns()
            if left <= 0:
                return found
            code = _native.lib.tw_notifications_wait(self._live(), min(left, _native.WAIT_SLICE_NS))
            if code and code != Code.TIMEOUT:
                text = _native.last_error()
                self._live()
                raise make_error(code, text)

    # -- inside --

    def _peer(self, peer: PeerLike) -> Peer:
        if isinstance(peer, Peer):
            if peer._engine is not self:
                raise InvalidArgumentError(f"the peer {peer.name} belongs to engine {peer._engine.address}")
            return peer
        known = self._peers.get(peer)
        if known is None:
            known = self._peers.setdefault(peer, self.open(peer))
        return known

    def _submit(
        self,
        opcode: int,
        peer: PeerLike,
        local: Any,
        remote: Any,
        lengths: Any,
        deadline: Optional[float],
        notify: Optional[tuple[str, bytes]],
    ) -> Batch:
        handle = self._live()
        if self._orphans:
            self._reap()
        keep, locals_, sizes = self._local(opcode, local, lengths)
        remotes = numbers(remote, "remote")
        if sizes is None:
            sizes = broadcast(lengths, remotes.count)
        if not locals_.count == remotes.count == sizes.count:
            raise InvalidArgumentError(
                f"lists differ: {locals_.count} local and {remotes.count} remote addresses, {sizes.count} lengths"
            )
        options = None
        if deadline is not None or notify is not None:
            name, message = (None, b"") if notify is None else (text_argument(notify[0], "notify"), bytes(notify[1]))
            options = ctypes.byref(
                _native.SubmitOptions(
                    ctypes.sizeof(_native.SubmitOptions),
                    _native.to_nanoseconds(deadline, 0),
                    name,
                    message,
                    len(message),
                )
            )
        out = ctypes.c_uint64()
        check(
            _native.lib.tw_submit_lists(
                handle,
                self._peer(peer)._live(),
                opcode,
                locals_.pointer,
                remotes.pointer,
                sizes.pointer,
                locals_.count,
                options,
                ctypes.byref(out),
            )
        )
        return Batch(self, out.value, keep)

    def _local(self, opcode: int, local: Any, lengths: Any) -> tuple[Any, Numbers, Optional[Numbers]]:
        """(what to keep alive, addresses, lengths or None for "one number for all")."""
        known = self._by_object.get(id(local))
        if known is None and (hasattr(local, "_tidewire_span") or callable(getattr(local, "data_ptr", None))):
            known = local
        if known is not None:
            span = describe(known)
            if opcode == _READ and span.readonly:
                raise InvalidArgumentError(f"{type(local).__name__} is read-only: nothing can be read into it")
            if lengths is None:
                lengths = span.nbytes
            if isinstance(lengths, int) and lengths > span.nbytes:
                raise InvalidArgumentError(f"{lengths} bytes from {local!r}, which has {span.nbytes}")
            return (local, known), numbers(span.address, "local"), numbers(lengths, "lengths")
        if lengths is None:
            raise TypeError("lengths is needed unless local is a Region, a Buffer or a registered object")
        addresses = numbers(local, "local")
        if isinstance(lengths, int) and addresses.count != 1:
            return None, addresses, None
        return None, addresses, numbers(lengths, "lengths")


def _setting(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _fitting(memory: Any, nbytes: int) -> int:
    """The address of ``memory``; what knows its length must have room for ``nbytes``."""
    if isinstance(memory, int):
        return memory
    span = describe(memory)
    if nbytes > span.nbytes:
        raise InvalidArgumentError(f"{nbytes} bytes don't fit {memory!r}, which has {span.nbytes}")
    return span.address


def _by_location(spans: list[Span], location: str) -> dict[str, list[int]]:
    """Indices of the spans by the location to register them with."""
    places: dict[str, list[int]] = {}
    for index, span in enumerate(spans):
        places.setdefault(location if location != "*" else span.location, []).append(index)
    return places
