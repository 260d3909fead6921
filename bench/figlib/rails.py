# SPDX-License-Identifier: Apache-2.0
"""Measurements over shaped rails between two network namespaces."""
import threading
import time

from .netns import Rails
from .programs import BUILD, Waiting, bench, reference, target

TARGET_BYTES = "2GiB"


def _target(rails):
    return target("--local", rails.addresses[0], "--devices", rails.devices, "--protocol", "tcp", "--bytes", TARGET_BYTES,
                  prefix=rails.b.prefix)


def _initiator(rails, ready):
    return ["--target", ready["address"], "--local", "10.77.0.1", "--devices", rails.devices, "--protocol", "tcp"]


def goodput(_run):
    """All rails for ten seconds."""
    with Rails() as rails, _target(rails) as ready:
        row = bench("bulk", *_initiator(rails, ready), "--sizes", "4MiB", "--outstanding", 8, "--walk", "256MiB", "--seconds", 10,
                    "--skip", 0.2, prefix=rails.a.prefix)["rows"][0]
        return {"rails.goodput": row["bytes_per_s"] / rails.line_rate,
                "_detail": {"bytes_per_s": row["bytes_per_s"], "failed": row["failed"], "cpu_s_per_gb": row["cpu_s_per_gb"]}}


def _cut(kind, after=2.0, seconds=7.0):
    """Loses rail e1 after some seconds; what happened then."""
    with Rails() as rails, _target(rails) as ready:
        moment = []

        def cut():
            time.sleep(after)
            moment.append(time.monotonic())
            (rails.link_down if kind == "link down" else rails.black_hole)(1)

        thread = threading.Thread(target=cut)
        thread.start()
        row = bench("bulk", *_initiator(rails, ready), "--sizes", "2MiB", "--outstanding", 8, "--walk", "256MiB", "--seconds", seconds,
                    "--timeline", prefix=rails.a.prefix)["rows"][0]
        thread.join()
        start = row["start_monotonic_s"]
        cut_at = moment[0] - start
        times = [at for at, _ in row["completions"]]
        stalls = [b - a for a, b in zip(times, times[1:]) if b > cut_at]
        begin, end = cut_at + 1.0, times[-1] - 0.2
        moved = sum(size for at, size in row["completions"] if begin <= at < end)
        left = rails.line_rate * (rails.count - 1) / rails.count
        return {"errors": row["failed"], "stall": max(stalls), "share": moved / (end - begin) / left, "cut_at": cut_at,
                "first_error": row["first_error"]}


def loss(_run):
    """One rail lost in the middle, told (link down) and silently (black hole); the worse of the two counts."""
    cuts = {kind: _cut(kind) for kind in ("link down", "black hole")}
    return {
        "rails.loss_errors": max(cut["errors"] for cut in cuts.values()),
        "rails.loss_stall": max(cut["stall"] for cut in cuts.values()),
        "rails.loss_share": min(cut["share"] for cut in cuts.values()),
        "_detail": cuts,
    }


def requests(_run):
    """KV requests after an idle gap, against bare sockets and against the line."""
    gap, bytes_128 = 0.5, 128 * 48128
    with Rails() as rails:
        with Waiting([BUILD / "bench" / "socket_reference", "serve", "--bind", "0.0.0.0"], rails.b.prefix) as ready:
            bare = reference("socket_reference", "request", "--connect", ",".join(rails.addresses), "--port", ready["port"],
                             "--bytes", bytes_128, "--gap", gap, "--count", 12, prefix=rails.a.prefix)
        with _target(rails) as ready:
            common = [*_initiator(rails, ready), "--line-rate", int(rails.line_rate)]
            # The cache no larger than the longest prompt: the target's buffer must hold it.
            short = bench("kv", *common, "--page-size", 16, "--lengths", 128, "--cache-tokens", 8192, "--gap", gap, "--seconds", 7,
                          prefix=rails.a.prefix)["rows"][0]
            longer = bench("kv", *common, "--page-size", 16, "--lengths", "4096,8192,16384", "--seconds", 3,
                           prefix=rails.a.prefix)["rows"]
    return {
        "rails.request_128": bare["median_s"] / short["median_s"],
        "rails.request_4096": min(row["utilisation"] for row in longer),
        "_detail": {"bare": bare, "ours": short, "longer": [(row["tokens"], row["utilisation"]) for row in longer]},
    }
