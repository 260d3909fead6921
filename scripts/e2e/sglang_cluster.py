# SPDX-License-Identifier: Apache-2.0
"""A prefill and a decode instance of sglang_rank.py's processes, and what a router does with them."""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Listener, wait
from pathlib import Path
from typing import Any, Mapping, Optional

from processes import Server, ServerError, free_port
from sglang_pool import PAGE_BYTES

READY_SECONDS = 120.0
STALL_SECONDS = 60.0  # without any event, while requests are under way
FEWEST_PAGES, MOST_PAGES = 4, 32


class Instance:
    """The ranks of one role, one process each."""

    def __init__(self, role: str, ranks: int, port: int, folder: Path, environment: Mapping[str, str], number: int = 0):
        self.role = role
        self.ranks = ranks
        self.sessions: list[str] = []
        self.connections: dict[Connection, Server] = {}
        self._stack = ExitStack()
        with tempfile.TemporaryDirectory(prefix="tidewire-e2e-") as place, Listener(f"{place}/control") as listener:
            # A listener has no accept with a time limit; a rank that ends before it calls must not hang the run.
            listener._listener._socket.settimeout(0.5)  # type: ignore[attr-defined]
            servers = []
            for rank in range(ranks):
                name = f"{role}{number or ''}-{ranks}-{rank}"
                command = [sys.executable, str(Path(__file__).parent / "sglang_rank.py"), "--role", role]
                command += ["--ranks", str(ranks), "--rank", str(rank), "--port", str(port)]
                command += ["--control", f"{place}/control"]
                servers.append(self._stack.enter_context(Server(name, command, folder / f"{name}.log", environment)))
            end = time.monotonic() + READY_SECONDS
            try:
                while len(self.connections) < ranks:
                    self._accept(listener, servers, end)
                for connection, server in self.connections.items():
                    if not connection.poll(max(0.0, end - time.monotonic())):
                        raise ServerError(f"{server.name} is not ready after {READY_SECONDS:.0f} s:\n{server.tail()}")
                    self.sessions.append(self.receive(connection)["session"])
            except BaseException:
                self.stop()
                raise

    def _accept(self, listener: Listener, servers: list[Server], end: float) -> None:
        try:
            connection = listener.accept()
        except TimeoutError:
            for server in servers:
                if server.ended() is not None:
                    raise ServerError(f"{server.name} ended with status {server.ended()}:\n{server.tail()}") from None
            if time.monotonic() > end:
                raise ServerError(f"{servers[0].name} does not call:\n{servers[0].tail()}") from None
            return
        self.connections[connection] = servers[connection.recv()["rank"]]

    def receive(self, connection: Connection) -> dict[str, Any]:
        try:
            return connection.recv()
        except (EOFError, ConnectionError):
            server = self.connections[connection]
            raise ServerError(f"{server.name} has ended:\n{server.tail()}") from None

    def tell(self, **command: Any) -> None:
        for connection in self.connections:
            connection.send(command)

    def kill(self) -> None:
        """Ends every rank at once, as a crash would."""
        for server in self.connections.values():
            server.kill()
        self._close()

    def stop(self) -> None:
        self._close()
        self._stack.close()

    def _close(self) -> None:
        for connection in self.connections:
            connection.close()
        self.connections = {}


@dataclass
class Room:
    """A request, as the router sees it."""

    pages: int
    sending: int = 0  # prefill ranks that have handed it to the transfer
    done: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: {"prefill": [], "decode": []})


@dataclass
class Outcome:
    """What came of a number of requests."""

    delivered: int = 0
    lost: list[str] = field(default_factory=list)  # reasons; not those in flight at a restart
    in_flight: int = 0  # at restarts, not delivered
    wrong: int = 0
    bytes: int = 0
    seconds: float = 0.0
    restarts: int = 0
    ended: Counter = field(default_factory=Counter)  # how prefill ranks ended requests whose decode instance died

    def enter(self, room: Room) -> None:
        """A request that every rank has done with."""
        every = [event for events in room.done.values() for event in events]
        self.wrong += sum(event.get("wrong", 0) for event in every)
        if all(event["success"] for event in every):
            self.delivered += 1
            self.bytes += room.pages * PAGE_BYTES
        else:
            self.lost.append(next(event["reason"] for event in every if not event["success"]))


def _kind(reason: str) -> str:
    """SGLang's reason for a failure without the room and the address in it."""
    return " ".join(word for word in reason.partition(": ")[2].split() if not any(c.isdigit() for c in word))


class Pair:
    """A prefill and a decode instance. A context manager that ends them."""

    def __init__(self, prefill: int, decode: int, folder: Path, environment: Mapping[str, str]):
        self._sizes = {"prefill": prefill, "decode": decode}
        self._folder = folder
        self._environment = environment
        self.port = free_port()
        self._random = random.Random(prefill * 10 + decode)
        self._next_room = 1
        self._started: Counter = Counter()
        self.instances: dict[str, Instance] = {}
        self.rooms: dict[int, Room] = {}

    def __enter__(self) -> Pair:
        try:
            for role in ("prefill", "decode"):
                self.start(role)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for instance in self.instances.values():
            instance.stop()

    def start(self, role: str) -> None:
        self.instances[role] = Instance(
            role, self._sizes[role], self.port, self._folder, self._environment, self._started[role]
        )
        self._started[role] += 1

    def request(self, pages: Optional[int] = None, **prefill: Any) -> int:
        """Sends a request to both instances; its room. ``prefill``: more for the prefill ranks."""
        room = self._next_room
        self._next_room += 1
        pages = pages or self._random.randint(FEWEST_PAGES, MOST_PAGES)
        self.rooms[room] = Room(pages)
        self.instances["prefill"].tell(do="request", room=room, pages=pages, **prefill)
        self.instances["decode"].tell(do="request", room=room, pages=pages)
        return room

    def event(self) -> dict[str, Any]:
        """The next event of any rank, entered in its room."""
        owner = {c: i for i in self.instances.values() for c in i.connections}
        ready = wait(list(owner), STALL_SECONDS)
        if not ready:
            tails = "\n".join(s.tail(8) for i in self.instances.values() for s in i.connections.values())
            rooms = ", ".join(
                f"{number} (prefill {room.sending} sending, {len(room.done['prefill'])} done, "
                f"decode {len(room.done['decode'])} done)"
                for number, room in self.rooms.items()
            )
            raise ServerError(f"nothing happened for {STALL_SECONDS:.0f} s; open rooms: {rooms or 'none'}\n{tails}")
        instance = owner[ready[0]]
        event = {**instance.receive(ready[0]), "role": instance.role}
        room = self.rooms.get(event.get("room", 0))
        if room is not None:
            if event["event"] == "sending":
                room.sending += 1
            elif event["event"] == "done":
                room.done[instance.role].append(event)
        return event

    def ended(self, room: int, *roles: str) -> bool:
        """Whether every rank of these roles has done with a request."""
        return all(len(self.rooms[room].done[role]) == self._sizes[role] for role in roles or self._sizes)

    def finish(self, room: int) -> Room:
        """Waits until every rank has done with a request."""
        while not self.ended(room):
            self.event()
        return self.rooms.pop(room)

    def stray(self) -> int:
        """Bytes that were written to free pages of the decode instance, ever."""
        return sum(event["stray"] for event in self._ask("check_free", "checked"))

    def again(self) -> list[str]:
        """New managers in the decode instance, in place of torn down ones; what went wrong with registrations, ever."""
        self._ask("again", "ready")
        logs = [server.text() for instance in self.instances.values() for server in instance.connections.values()]
        return [line for log in logs for line in log.splitlines() if "egistration failed" in line]

    def _ask(self, command: str, answer: str) -> list[dict[str, Any]]:
        """One answer from each rank of the decode instance."""
        self.instances["decode"].tell(do=command)
        found: list[dict[str, Any]] = []
        while len(found) < self._sizes["decode"]:
            event = self.event()
            if event["event"] == answer:
                found.append(event)
        return found

    def run(self, count: int, at_once: int, restarts: int = 0) -> Outcome:
        """``count`` requests, ``at_once`` under way; meanwhile the decode instance is killed and started again."""
        outcome, started = Outcome(), 0
        begin = time.monotonic()
        while started < count or self.rooms:
            while started < count and len(self.rooms) < at_once:
                self.request()
                started += 1
            event = self.event()
            due = started * (restarts + 1) >= count * (outcome.restarts + 1)
            if event["event"] == "sending" and outcome.restarts < restarts and due:
                self._restart(outcome)
            for room in [room for room in self.rooms if self.ended(room)]:
                outcome.enter(self.rooms.pop(room))
        outcome.seconds = time.monotonic() - begin
        return outcome

    def _restart(self, outcome: Outcome) -> None:
        """While KV is on its way: kills the decode instance, lets the prefill ranks see it, starts another."""
        decode = self.instances["decode"]
        decode.kill()
        outcome.restarts += 1
        for number in self.rooms:
            # The router's connection to the decode instance broke: it gives up the other half. What prefill ranks have
            # handed to the transfer must end by itself.
            self.instances["prefill"].tell(do="abort", room=number)
        while not all(self.ended(number, "prefill") for number in self.rooms):
            self.event()
        for number in list(self.rooms):
            if self.ended(number):
                outcome.enter(self.rooms.pop(number))
                continue
            room = self.rooms.pop(number)
            outcome.wrong += sum(event.get("wrong", 0) for event in room.done["decode"])
            outcome.in_flight += 1
            for event in room.done["prefill"]:
                outcome.ended["sent" if event["success"] else _kind(event["reason"])] += 1
        decode.stop()
        self.start("decode")
