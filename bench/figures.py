#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the figures of bench/goals.toml, each with its reference, several runs each, and says which are reached."""
import argparse
import json
import os
import statistics
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from figlib import accelerators, engine, frameworks, goals, quiet, rails, store  # noqa: E402
from figlib.programs import Failed, Missing  # noqa: E402

# What is measured for each group: (name, function of the run's number, ids that it gives).
MEASUREMENTS = {
    "engine": [
        ("same_host", engine.same_host, ["same_host.pool_4mb", "same_host.pool_64mb", "same_host.foreign"]),
        ("tcp", engine.tcp, ["tcp.walk_1mb", "tcp.walk_16mb"]),
        ("rails", rails.goodput, ["rails.goodput"]),
        ("loss", rails.loss, ["rails.loss_errors", "rails.loss_stall", "rails.loss_share"]),
        ("requests", rails.requests, ["rails.request_128", "rails.request_4096"]),
        ("fixed_cost", engine.fixed_cost, ["fixed_cost.same_host", "fixed_cost.tcp"]),
        ("wheel", engine.wheel, ["wheel.pieces", "wheel.write_1mb", "wheel.write_64mb"]),
        ("small", engine.small, ["small.same_host", "small.tcp"]),
        ("idle", engine.idle, ["idle.engine", "idle.waiters"]),
        ("peers", engine.peers, ["peers.add", "peers.threads", "peers.descriptors"]),
    ],
    "accelerators": [
        ("staging", accelerators.staging, ["accelerators.staging_write", "accelerators.staging_read"]),
        ("classification", accelerators.classification, ["accelerators.classification"]),
    ],
    "frameworks": [
        ("vllm", frameworks.vllm, ["frameworks.vllm_tokens", "frameworks.vllm_throughput"]),
        ("sglang", frameworks.sglang, ["frameworks.sglang_requests"]),
        ("list_conversion", frameworks.list_conversion, ["frameworks.list_conversion"]),
    ],
    "store": [
        ("small", store.small, ["store.small"]),
        ("same_host", store.same_host, ["store.same_host_1mb", "store.same_host_16mb"]),
        ("link", store.link, ["store.link_1mb", "store.link_16mb"]),
        ("lookups", store.lookups, ["store.exists", "store.get"]),
        ("commits", store.commits, ["store.commits"]),
        ("eviction", store.eviction, ["store.eviction_p99"]),
        ("trace", store.trace, ["store.trace_3000", "store.trace_5000", "store.trace_10000", "store.trace_30000"]),
        ("restart", store.restart, ["store.restart_lost", "store.restart_back", "store.restart_readable"]),
        ("init", store.init, ["store.init_rate", "store.first_put"]),
        ("memory", store.memory, ["store.memory"]),
    ],
}


def number(value):
    """Four digits, without an exponent."""
    return f"{value:.4g}" if abs(value) < 1e4 else f"{value:.0f}"


def line(figure, values, reason):
    """One line of the report, and the same as a dictionary."""
    result = {"id": figure.id, "what": figure.what, "goal": figure.goal, "direction": figure.direction, "unit": figure.unit,
              "values": values}
    if values:
        median = statistics.median(values)
        result.update(median=median, spread=[min(values), max(values)], verdict="reached" if figure.reached(median) else "short")
        text = f"{number(median):>9} {number(min(values)):>9} … {number(max(values)):<9}"
    else:
        result.update(verdict="short", reason=reason)
        text = f"{'-':>9} {'-':>9} … {'-':<9}"
    goal = f"{figure.direction} {number(figure.goal)}{' ' + figure.unit if figure.unit else ''}"
    print(f"{figure.id:<22} {text} {goal:<28} {result['verdict']}" + (f"  ({reason})" if not values else ""), flush=True)
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("group", nargs="?", default="engine", help="which figures (default: engine)")
    parser.add_argument("--runs", type=int, default=3, help="runs of each measurement (default: 3)")
    parser.add_argument("--json", help="also write the figures to this file")
    parser.add_argument("--patience", type=float, default=10, help="seconds to wait before each measurement for a quiet machine (default: 10)")
    parser.add_argument("--only", default="", help="comma list of measurements: " +
                        ", ".join(name for group in MEASUREMENTS.values() for name, _, _ in group))
    arguments = parser.parse_args()
    try:
        figures = goals.load(arguments.group)
    except ValueError as error:
        parser.error(str(error))
    only = {name for name in arguments.only.split(",") if name}
    measurements = [entry for entry in MEASUREMENTS.get(arguments.group, []) if not only or entry[0] in only]
    if not measurements:
        parser.error(f"nothing to measure: --only {arguments.only or arguments.group}")

    values, reasons, details = {}, {}, []
    for run in range(max(1, arguments.runs)):
        for name, measure, ids in measurements:
            idle = quiet.wait(arguments.patience)
            began = time.monotonic()
            try:
                result = measure(run)
                details.append({"run": run, "measurement": name, "idle_before": idle, **result.pop("_detail", {})})
                for key, value in result.items():
                    values.setdefault(key, []).append(value)
                note = ", ".join(f"{key} {number(value)}" for key, value in result.items())
            except (Missing, Failed, OSError, KeyError, ValueError) as error:
                note = f"{'no reference' if isinstance(error, Missing) else 'failed'}: {error}"
                # One failed run makes a figure short: an average over the rest would hide it.
                for key in ids:
                    reasons[key] = note
            noise = "" if idle >= quiet.ENOUGH else f" [others used {1 - idle:.0%} of the processors before it]"
            print(f"run {run + 1}, {name}, {time.monotonic() - began:.0f} s: {note}{noise}", file=sys.stderr, flush=True)

    print(f"{'figure':<22} {'median':>9} {'least':>9} … {'most':<9} {'goal':<28} verdict")
    results = []
    for figure in figures:
        if not any(figure.id in ids for _, _, ids in measurements):
            continue
        reason = reasons.get(figure.id)
        results.append(line(figure, [] if reason else values.get(figure.id, []), reason or "not measured"))
    short = sum(result["verdict"] == "short" for result in results)
    print(f"{len(results) - short} of {len(results)} reached")
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump({"group": arguments.group, "runs": arguments.runs, "figures": results, "details": details}, file, indent=1)
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
