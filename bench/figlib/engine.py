# SPDX-License-Identifier: Apache-2.0
"""Measurements of the engine on one host. Each function returns {figure id: value, …} of one run, reference and ours in turn."""
import tempfile

from . import references
from .netns import ManyAddresses, Rails
from .programs import bench, reference, target
from .turns import against


def _copy(threads):
    return reference("copy_reference", "--threads", threads, "--seconds", 0.2)["bytes_per_s"]


def _bulk(size, *arguments):
    return bench("bulk", "--protocol", "auto", "--sizes", size, "--outstanding", 1, "--seconds", 0.4, *arguments)["rows"][0]


def same_host(_run):
    """Pool memory against a plain copy, foreign memory against process_vm_writev."""
    pool = {size: against(lambda: _copy(2), lambda size=size: _bulk(size)["bytes_per_s"]) for size in ("4MiB", "64MiB")}
    first = _bulk("64MiB", "--memory", "foreign")
    # As many threads as the engine keeps busy.
    threads = max(1, round(first["cpu_s_per_gb"] * first["bytes_per_s"] / 1e9))
    foreign = against(lambda: reference("process_vm_reference", "--threads", threads, "--seconds", 0.4)["bytes_per_s"],
                      lambda: _bulk("64MiB", "--memory", "foreign")["bytes_per_s"])
    return {
        "same_host.pool_4mb": pool["4MiB"]["ratio"],
        "same_host.pool_64mb": pool["64MiB"]["ratio"],
        "same_host.foreign": foreign["ratio"],
        "_detail": {"pool": pool, "foreign": foreign, "process_vm_threads": threads},
    }


def tcp(_run):
    """TCP over loopback against iperf3."""
    best = references.iperf3()
    rows = bench("bulk", "--protocol", "tcp", "--sizes", "1MB,16MiB", "--outstanding", 8, "--walk", "256MB", "--seconds", 3)["rows"]
    best = max(best, references.iperf3(seconds=1))
    return {
        "tcp.walk_1mb": rows[0]["bytes_per_s"] / best,
        "tcp.walk_16mb": rows[1]["bytes_per_s"] / best,
        "_detail": {"iperf3": best, "ours": [row["bytes_per_s"] for row in rows], "cpu_s_per_gb": [row["cpu_s_per_gb"] for row in rows]},
    }


def fixed_cost(_run):
    """The intercept of time over bytes."""
    values, detail = {}, {}
    for name, protocol in (("same_host", "auto"), ("tcp", "tcp")):
        figures = bench("kv", "--protocol", protocol, "--page-size", 16, "--lengths", "128,256,512,1024,2048,4096", "--seconds", 2, "--rounds", 5,
                        "--cache-tokens", 8192)
        values[f"fixed_cost.{name}"] = figures["intercepts"][0]["seconds"] * 1e3
        detail[name] = [(row["tokens"], row["median_s"]) for row in figures["rows"]]
    return {**values, "_detail": detail}


def wheel(_run):
    """Mooncake's wheel and ours, over TCP, one call at a time."""
    theirs = references.wheel()
    lists = bench("small", "--protocol", "tcp", "--sizes", "64", "--pieces", 50000, "--piece", 256, "--seconds", 2)["lists"][0]
    rows = bench("bulk", "--protocol", "tcp", "--sizes", "1MB,64MB", "--outstanding", 1, "--walk", "256MB", "--seconds", 2)["rows"]
    ours = [rows[0]["bytes"] / rows[0]["median_s"], rows[1]["bytes"] / rows[1]["median_s"]]
    return {
        "wheel.pieces": lists["pieces_per_s"] / theirs["pieces_per_s"],
        "wheel.write_1mb": ours[0] / theirs["write_1mb_bytes_per_s"],
        "wheel.write_64mb": ours[1] / theirs["write_64mb_bytes_per_s"],
        "_detail": {"theirs": theirs, "pieces_per_s": lists["pieces_per_s"], "writes": ours},
    }


def small(_run):
    """Latency of 64 bytes."""
    before = reference("socket_reference", "pingpong", "--bytes", 64)["median_s"]
    tcp_median = bench("small", "--protocol", "tcp", "--sizes", "64", "--pieces", 1, "--seconds", 2)["latency"][0]["median_s"]
    after = reference("socket_reference", "pingpong", "--bytes", 64)["median_s"]
    same = bench("small", "--protocol", "auto", "--sizes", "64", "--pieces", 1, "--seconds", 2)["latency"][0]["median_s"]
    return {
        "small.same_host": same * 1e6,
        "small.tcp": tcp_median / ((before + after) / 2),
        "_detail": {"pingpong": [before, after], "tcp": tcp_median, "same_host": same},
    }


def idle(_run):
    """Processor use of an idle engine, and of 32 waiters on a slow link."""
    quiet = bench("idle", "--seconds", 5, "--waiters", 1, "--bytes", "64MiB")
    with Rails(count=1, megabits=200) as rails:
        with target("--local", "10.77.0.2", "--devices", "e0", "--protocol", "tcp", "--bytes", "1GiB", prefix=rails.b.prefix) as ready:
            busy = bench("idle", "--target", ready["address"], "--local", "10.77.0.1", "--devices", "e0", "--protocol", "tcp",
                         "--waiters", 32, "--bytes", "1GiB", "--seconds", 5, prefix=rails.a.prefix)
    return {
        "idle.engine": 100 * max(quiet["idle_initiator"], quiet["idle_target"]),
        "idle.waiters": 100 * busy["waiting_initiator"],
        "_detail": {"quiet": quiet, "busy": busy},
    }


def peers(_run):
    """10,000 records in one engine."""
    with ManyAddresses() as host, tempfile.NamedTemporaryFile("w", suffix=".txt") as names:
        with target("--local", "127.0.0.1", "--protocol", "tcp", "--bytes", "1MiB", prefix=host.prefix) as ready:
            port = ready["address"].rsplit(":", 1)[1]
            names.write("\n".join(host.names(10_000, port)) + "\n")
            names.flush()
            figures = bench("peers", "--names", names.name, "--local", "127.0.0.1", "--protocol", "tcp", prefix=host.prefix)
    return {
        "peers.add": figures["mean_s"] * 1e3,
        # From 5,000 to 10,000 peers: what an engine takes once, such as a bounded set of connections, is not a cost of each.
        "peers.threads": figures["threads_after"] - figures["threads_half"],
        "peers.descriptors": figures["descriptors_after"] - figures["descriptors_half"],
        "_detail": figures,
    }
