# SPDX-License-Identifier: Apache-2.0
"""The store in real processes against a model: random operations, masters and clients that are killed and started again.

For each key the model holds what may be there: contents by number, or None for nothing. An operation whose outcome is
known narrows that, one that failed widens it. What is read must be in it. TIDEWIRE_STORE_ROUNDS sets the rounds (each ends with a
kill), TIDEWIRE_STORE_SEED the seed, which a failure prints.
"""

from __future__ import annotations

import os
import random
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "conformance" / "python"))

from store_cluster import Master, client_setup  # noqa: E402
from tidewire_testing import HARD_STOP, Child  # noqa: E402

ROUNDS = int(os.environ.get("TIDEWIRE_STORE_ROUNDS") or 6)
OPERATIONS = 100  # in a round
KEYS = 40
CLIENTS = 3
SEGMENT = 256 << 20  # far more than the keys need: nothing is evicted

CONTENT = """
import hashlib
def content(number):
    size = [1, 100, 4096, 70_000, 1 << 20, 3 << 20][number % 6] + number % 7
    seed = hashlib.sha256(str(number).encode()).digest()
    return (seed * (size // len(seed) + 1))[:size]
def read(key, numbers):
    '''The number of what is there, None for nothing, -1 for something else.'''
    data = store.get(key)
    if data == b"":
        return None
    return next((number for number in numbers if content(number) == data), -1)
"""


class Cluster:
    def __init__(self, folder):
        self.folder = str(folder)
        self.master = Master("--journal", self.folder)
        self.clients = [self.new_client() for _ in range(CLIENTS)]

    def new_client(self):
        return Child(client_setup(self.master, SEGMENT) + CONTENT)

    def kill_master(self):
        port = self.master.address.rpartition(":")[2]
        self.master.kill()
        self.master = Master("--journal", self.folder, "--rpc_port", port)

    def kill_client(self, index):
        self.clients[index].kill()
        self.clients[index] = self.new_client()

    def stop(self):
        for client in self.clients:
            client.kill()
        self.master.stop()


class Model:
    def __init__(self, rng):
        self.rng = rng
        self.may_be = {f"key-{i}": {None} for i in range(KEYS)}
        self.history = {key: [] for key in self.may_be}  # what was done, for the failure's text
        self.last = 0

    def note(self, key, what):
        self.history[key].append(what)

    def note_all(self, what):
        for key in self.history:
            self.note(key, what)

    def step(self, client):
        key = self.rng.choice(sorted(self.may_be))
        getattr(self, self.rng.choice(["put", "upsert", "read", "read", "read", "remove"]))(client, key)

    def put(self, client, key):
        self.last += 1
        result = client.eval(f"store.put({key!r}, content({self.last}))")
        self.note(key, f"put {self.last} -> {result}")
        before = self.may_be[key]
        if result == 0:
            self.may_be[key] = (before - {None}) | ({self.last} if None in before else set())
        elif None in before:
            self.may_be[key] = before | {self.last}

    def upsert(self, client, key):
        self.last += 1
        result = client.eval(f"store.upsert({key!r}, content({self.last}))")
        self.note(key, f"upsert {self.last} -> {result}")
        self.may_be[key] = {self.last} if result == 0 else self.may_be[key] | {self.last}

    def remove(self, client, key):
        result = client.eval(f"store.remove({key!r}, force=True)")
        self.note(key, f"remove -> {result}")
        self.may_be[key] = {None} if result == 0 else self.may_be[key] | {None} if result != -704 else self.may_be[key]
        if result == -704:
            assert None in self.may_be[key], f"{key} was not there to be removed; it may be {self.may_be[key]}"

    def read(self, client, key, settled=True):
        allowed = self.may_be[key]
        seen = client.eval(f"read({key!r}, {sorted(number for number in allowed if number is not None)})")
        until = time.monotonic() + HARD_STOP
        # An owner that is still coming back to a new master: what it holds appears when it has.
        while settled and seen is None and None not in allowed and time.monotonic() < until:
            seen = client.eval(f"read({key!r}, {sorted(allowed)})")
        self.note(key, f"read {seen}")
        assert seen in allowed, f"{key} is {seen}; it may be {allowed}; history: {self.history[key]}"
        if seen is not None:
            self.may_be[key] = {seen}

    def owner_lost(self):
        for allowed in self.may_be.values():
            allowed.add(None)


@pytest.mark.timeout(180 + 60 * ROUNDS)
def test_the_store_is_what_its_model_says_while_masters_and_clients_are_killed(tmp_path):
    seed = int(os.environ.get("TIDEWIRE_STORE_SEED") or time.time_ns() % 1_000_000)
    print(f"replay with TIDEWIRE_STORE_SEED={seed} TIDEWIRE_STORE_ROUNDS={ROUNDS}")
    rng = random.Random(seed)
    cluster, model = Cluster(tmp_path / "journal"), Model(rng)
    try:
        for round_number in range(ROUNDS):
            for _ in range(OPERATIONS):
                model.step(rng.choice(cluster.clients))
            if round_number % 3 == 2:
                cluster.kill_client(rng.randrange(CLIENTS))
                model.owner_lost()
                model.note_all("client killed")
            else:
                cluster.kill_master()
                model.note_all("master killed")
        for key in sorted(model.may_be):
            model.read(rng.choice(cluster.clients), key)
    finally:
        cluster.stop()
