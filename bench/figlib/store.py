# SPDX-License-Identifier: Apache-2.0
"""Measurements of the store. Each function returns {figure id: value, …} of one run, reference and ours in turn."""
import json
import pathlib
import tempfile

from . import store_cluster
from .netns import Rails
from .programs import BUILD, ROOT, TIDEWIRE, Failed, Missing, bench, reference, run
from .turns import against

TRACE = ROOT.parent / "shared" / "data" / "conversation_trace.jsonl"
MB = 1_000_000
LARGE = ((MB, 16), (16 * MB, 1))  # bytes of an object, objects of a batch


def small(_run):
    """Objects of 4 KB in the other client's segment, over TCP, against Mooncake's wheel; ours with shared memory beside it."""
    figures = {}
    for name, kind in (("theirs", store_cluster.wheel()), ("ours", store_cluster.tidewire(False)), ("same_host", store_cluster.tidewire(True))):
        with store_cluster.Cluster(kind, 4 << 30) as cluster:
            figures[name] = cluster.measure("small")
    return {"store.small": figures["ours"]["keys_per_s"] / figures["theirs"]["keys_per_s"], "_detail": figures}


def same_host(_run):
    """Gets into registered buffers, against the fastest plain copy with as many threads as were busy."""
    values, detail = {}, {}
    with store_cluster.Cluster(store_cluster.tidewire(True), 6 << 30) as cluster:
        for size, batch in LARGE:
            def gets(size=size, batch=batch):
                return cluster.measure("large", "--bytes", size, "--batch", batch, "--pids", cluster.owner["pid"], "--seconds", 0.6, "--walk", 128 << 20)

            threads = max(1, round(gets()["busy"]))
            measured = against(lambda threads=threads: reference("copy_reference", "--threads", threads, "--seconds", 0.2)["bytes_per_s"],
                               lambda gets=gets: gets()["bytes_per_s"])
            values[f"store.same_host_{size // MB}mb"] = measured["ratio"]
            detail[size] = {**measured, "threads": threads}
    return {**values, "_detail": detail}


def link(_run):
    """The same over a link of 8 Gbit/s, against what of its rate is payload."""
    values, detail = {}, {}
    with Rails(count=1, megabits=8000) as rails:
        with store_cluster.Cluster(store_cluster.tidewire(False), 1 << 30, host=rails.addresses[0], client_host="10.77.0.1", prefix=rails.b.prefix,
                                   client_prefix=rails.a.prefix, devices=rails.devices) as cluster:
            for size, batch in LARGE:
                ours = cluster.measure("large", "--bytes", size, "--batch", batch)
                values[f"store.link_{size // MB}mb"] = ours["bytes_per_s"] / rails.line_rate
                detail[size] = ours
    return {**values, "_detail": detail}


def _master(what, *arguments):
    return reference("store_master", what, "--program", TIDEWIRE, *arguments)


def lookups(_run):
    """A master on one processor: objects looked up."""
    figures = _master("lookups")
    return {"store.exists": figures["exists"]["keys_per_s"], "store.get": figures["get"]["keys_per_s"], "_detail": figures}


def commits(_run):
    """A master on one processor: objects put."""
    figures = _master("commits")
    return {"store.commits": figures["keys_per_s"], "_detail": figures}


def eviction(_run):
    """Look-ups while the master evicts."""
    figures = _master("eviction", "--seconds", 10)
    return {"store.eviction_p99": figures["p99_ratio"], "_detail": figures}


def trace(_run):
    """What eviction keeps on a recorded hour of requests, against LRU."""
    if not TRACE.exists():
        raise Missing(f"{TRACE} is not there: a trace of Mooncake's FAST 2025 paper (lines with timestamp and hash_ids)")
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        run([BUILD / "bench" / "eviction_trace", TRACE, "--json", file.name])
        figures = json.loads(pathlib.Path(file.name).read_text(encoding="utf-8"))
    return {**{f"store.trace_{room['room']}": room["ratio"] for room in figures["rooms"]}, "_detail": figures}


def restart(_run):
    """A master that is killed and started again."""
    figures = _master("restart")
    if figures["objects"] < 990_000:
        raise Failed(f"only {figures['objects']} objects were there")
    return {"store.restart_lost": figures["lost"], "store.restart_back": figures["back"], "store.restart_readable": figures["readable_s"],
            "_detail": figures}


def init(_run):
    """A pool of 8 GB: pages against the machine's best, and the first put."""
    figures = bench("init", "--bytes", "8GB")
    return {"store.init_rate": figures["share"], "store.first_put": figures["first_put_s"], "_detail": figures}


def memory(_run):
    """What the master takes for an object."""
    figures = _master("memory")
    return {"store.memory": figures["bytes_per_object"], "_detail": figures}
