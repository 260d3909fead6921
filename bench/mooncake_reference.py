#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Mooncake wheel as a reference: writes over its "tcp" protocol between two processes.

Run it with the interpreter of an environment that has `mooncake-transfer-engine-non-cuda` (bench/references.py makes
one under build/). It prints one JSON line: pieces a second for 50,000 writes of 256 bytes in one call, and bytes a
second for writes of 1 MB and 64 MB. Only the public Python interface is used, and everything is warmed first.
"""
import ctypes
import json
import mmap
import os
import statistics
import subprocess
import sys
import time

PIECES = 50_000
PIECE = 256
MB = 1_000_000
WALK = 256 * MB


def buffer_of(length):
    """Populated memory and its address."""
    memory = mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_POPULATE", 0))
    return memory, ctypes.addressof(ctypes.c_char.from_buffer(memory))


def engine_with(length, host="127.0.0.1"):
    from mooncake.engine import TransferEngine

    engine = TransferEngine()
    if engine.initialize(host, "P2PHANDSHAKE", "tcp", ""):
        raise RuntimeError("mooncake: initialize failed")
    memory, address = buffer_of(length)
    if engine.register_memory(address, length):
        raise RuntimeError("mooncake: register_memory failed")
    return engine, memory, address


def serve():
    engine, memory, address = engine_with(WALK)
    print(json.dumps({"port": engine.get_rpc_port(), "address": address}), flush=True)
    sys.stdin.read()  # until the initiator closes the pipe
    os._exit(0)


def timed_writes(engine, target, local, remote, length, seconds):
    """Bytes a second of synchronous writes that walk the whole buffer."""
    walk = WALK // length
    times, index, end = [], 0, time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 5:
        offset = (index % walk) * length
        start = time.perf_counter()
        if engine.transfer_sync_write(target, local + offset, remote + offset, length):
            raise RuntimeError(f"mooncake: a write of {length} bytes failed")
        times.append(time.perf_counter() - start)
        index += 1
    return length / statistics.median(times), len(times)


def timed_batched(engine, target, local, remote, length, outstanding, seconds):
    """Bytes a second of batches of `outstanding` writes that walk the whole buffer."""
    walk = WALK // length
    times, index, end = [], 0, time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 5:
        offsets = [((index + i) % walk) * length for i in range(outstanding)]
        start = time.perf_counter()
        if engine.batch_transfer_sync_write(target, [local + o for o in offsets], [remote + o for o in offsets],
                                            [length] * outstanding):
            raise RuntimeError(f"mooncake: a batch of {outstanding} writes of {length} bytes failed")
        times.append(time.perf_counter() - start)
        index += outstanding
    return outstanding * length / statistics.median(times)


def scattered(engine, target, local, remote, rounds):
    sources = [local + 2 * PIECE * i for i in range(PIECES)]
    destinations = [remote + 2 * PIECE * i for i in range(PIECES)]
    lengths = [PIECE] * PIECES
    times = []
    for _ in range(rounds + 1):  # the first one warms
        start = time.perf_counter()
        if engine.batch_transfer_sync_write(target, sources, destinations, lengths):
            raise RuntimeError(f"mooncake: a batch of {PIECES} pieces failed")
        times.append(time.perf_counter() - start)
    return PIECES / statistics.median(times[1:])


def main():
    if "--serve" in sys.argv:
        serve()
    what = [a for a in sys.argv[1:] if not a.startswith("-")] or ["pieces", "1mb", "64mb"]
    child = subprocess.Popen([sys.executable, os.path.abspath(__file__), "--serve"], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, text=True)
    try:
        peer = None
        for line in child.stdout:
            if line.startswith("{"):
                peer = json.loads(line)
                break
        if peer is None:
            raise RuntimeError("mooncake: the target did not start")
        engine, memory, local = engine_with(WALK)
        target, remote = f"127.0.0.1:{peer['port']}", peer["address"]
        timed_writes(engine, target, local, remote, 64 * MB, 0.5)
        result = {}
        if "1mb" in what:
            result["write_1mb_bytes_per_s"], result["write_1mb_count"] = timed_writes(engine, target, local, remote, MB, 2)
        if "64mb" in what:
            result["write_64mb_bytes_per_s"], _ = timed_writes(engine, target, local, remote, 64 * MB, 2)
        if "batched" in what:
            result["write_1mb_x8_bytes_per_s"] = timed_batched(engine, target, local, remote, MB, 8, 2)
        if "pieces" in what:
            result["pieces_per_s"] = scattered(engine, target, local, remote, 3)
        print(json.dumps(result), flush=True)
    finally:
        child.stdin.close()
        try:
            child.wait(timeout=5)
        except subprocess.TimeoutExpired:
            child.kill()
    os._exit(0)


if __name__ == "__main__":
    main()
