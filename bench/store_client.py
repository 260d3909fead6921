#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Puts and gets of one client in the memory of another, through the Python interface `mooncake.store` that Tidewire and the Mooncake wheel share.

  store_client.py owner --master HOST:PORT --local HOST --bytes N          lends memory, prints {"name"} and waits until its input closes
  store_client.py small --master HOST:PORT --local HOST --owner NAME       4 KB objects in batches of 32: keys a second
  store_client.py large --master HOST:PORT --local HOST --owner NAME --bytes N --batch N     get into a registered buffer: bytes a second

Whose interface it is depends on the interpreter's path alone. Keys are never used twice, buffers are registered, and everything is warmed first.
"""
import argparse
import ctypes
import json
import mmap
import os
import resource
import statistics
import sys
import time
import uuid

SMALL, SMALL_BATCH = 4096, 32
GIB = 1 << 30


def buffer_of(length):
    """Populated memory, its address, and its bytes in a pattern that differs from page to page."""
    memory = mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_POPULATE", 0))
    view = memoryview(memory)
    for page in range(0, length, 4096):
        view[page:page + 8] = page.to_bytes(8, "little")
    view.release()
    return memory, ctypes.addressof(ctypes.c_char.from_buffer(memory))


def store_of(arguments, lend):
    from mooncake.store import MooncakeDistributedStore

    store = MooncakeDistributedStore()
    code = store.setup(arguments.local, "P2PHANDSHAKE", lend, 256 << 20, "tcp", arguments.devices, arguments.master)
    if code:
        raise RuntimeError(f"setup: {code}")
    return store


def owner(arguments):
    store = store_of(arguments, arguments.bytes)
    print(json.dumps({"name": store.get_hostname(), "pid": os.getpid()}), flush=True)
    sys.stdin.read()
    os._exit(0)


def config_for(name):
    from mooncake.store import ReplicateConfig

    config = ReplicateConfig()
    config.replica_num = 1
    config.preferred_segment = name
    return config


def checked(results, wanted, what):
    for result in results:
        if result != wanted:
            raise RuntimeError(f"{what}: {result} instead of {wanted}")


def put_batch(store, keys, addresses, size, config):
    checked(store.batch_put_from(keys, addresses, [size] * len(keys), config), 0, "put")


def small(arguments):
    store, config = store_of(arguments, 0), config_for(arguments.owner)
    memory, address = buffer_of(2 * SMALL * SMALL_BATCH)
    if store.register_buffer(address, len(memory)):
        raise RuntimeError("register_buffer failed")
    sources = [address + i * SMALL for i in range(SMALL_BATCH)]
    targets = [address + (SMALL_BATCH + i) * SMALL for i in range(SMALL_BATCH)]
    prefix = uuid.uuid4().hex

    def phase(batches, step):
        """Keys a second. A batch's keys are made before its time is taken."""
        start = time.perf_counter()
        for keys in batches:
            step(keys)
        return len(batches) * SMALL_BATCH / (time.perf_counter() - start)

    def put(keys):
        put_batch(store, keys, sources, SMALL, config)

    def get(keys):
        checked(store.batch_get_into(keys, targets, [SMALL] * SMALL_BATCH), SMALL, "get")

    def batches(name, count):
        return [[f"{prefix}-{name}-{batch}-{i}" for i in range(SMALL_BATCH)] for batch in range(count)]

    warm = batches("warm", 50)
    phase(warm, put)
    phase(warm, get)
    puts, gets, end, number = [], [], time.perf_counter() + arguments.seconds, 0
    while time.perf_counter() < end or len(puts) < 3:
        keys = batches(number, 50)
        number += 1
        puts.append(phase(keys, put))
        gets.append(phase(keys, get))
        if memory[SMALL * SMALL_BATCH:] != memory[:SMALL * SMALL_BATCH]:
            raise RuntimeError("get: wrong bytes")
    put_rate, get_rate = statistics.median(puts), statistics.median(gets)
    # Keys that are put and got, a second.
    return {"put_keys_per_s": put_rate, "get_keys_per_s": get_rate, "keys_per_s": 2 / (1 / put_rate + 1 / get_rate)}


def processor_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def large(arguments):
    """Objects that are larger together than the caches, read round and round into a buffer that is walked as well."""
    store, config = store_of(arguments, 0), config_for(arguments.owner)
    size, batch = arguments.bytes, arguments.batch
    count = max(batch, arguments.walk // size // batch * batch)
    memory, address = buffer_of(count * size)
    if store.register_buffer(address, len(memory)):
        raise RuntimeError("register_buffer failed")
    keys = [f"{uuid.uuid4().hex}-{i}" for i in range(count)]
    for i in range(0, count, batch):
        put_batch(store, keys[i:i + batch], [address + j * size for j in range(i, i + batch)], size, config)
    sizes = [size] * batch
    groups = [(keys[i:i + batch], [address + j * size for j in range(i, i + batch)]) for i in range(0, count, batch)]
    for names, places in groups:
        checked(store.batch_get_into(names, places, sizes), size, "get")
    pids = [pid for pid in arguments.pids.split(",") if pid]
    before, own = sum(map(processor_seconds, pids)), resource.getrusage(resource.RUSAGE_SELF)
    moved, start = 0, time.perf_counter()
    times = []
    while moved == 0 or time.perf_counter() - start < arguments.seconds:
        for names, places in groups:
            began = time.perf_counter()
            checked(store.batch_get_into(names, places, sizes), size, "get")
            times.append(time.perf_counter() - began)
            moved += batch * size
    elapsed = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_SELF)
    used = after.ru_utime + after.ru_stime - own.ru_utime - own.ru_stime + sum(map(processor_seconds, pids)) - before
    return {"bytes_per_s": moved / elapsed, "median_bytes_per_s": batch * size / statistics.median(times), "busy": used / elapsed}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["owner", "small", "large"])
    parser.add_argument("--master", required=True)
    parser.add_argument("--local", default="127.0.0.1")
    parser.add_argument("--devices", default="")
    parser.add_argument("--owner", default="")
    parser.add_argument("--bytes", type=int, default=GIB)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--walk", type=int, default=256 << 20)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--pids", default="", help="processes whose processor time counts too, separated by commas")
    arguments = parser.parse_args()
    if arguments.what == "owner":
        owner(arguments)
    print(json.dumps({"small": small, "large": large}[arguments.what](arguments)), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
