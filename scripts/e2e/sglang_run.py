# SPDX-License-Identifier: Apache-2.0
"""SGLang's Mooncake classes on Tidewire: KV moved between prefill and decode processes, compared byte for byte.

scripts/e2e/sglang.sh sets up what this needs and calls it.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from checks import Checks
from processes import ServerError
from sglang_cluster import Outcome, Pair
from sglang_routed import Routed

SIZES = ((1, 1), (2, 2), (2, 1), (1, 2))  # tensor parallel ranks of prefill and decode
TCP_SIZES = ((1, 1), (2, 1))  # once more without the memory that processes of one host share
AT_ONCE = 4
EACH = 48  # requests for each pair of sizes
RESTARTS = 3
ABORTS = 12
SPOILED = 7
ROUTED = 48


class Run:
    """One run of this program."""

    def __init__(self, arguments: argparse.Namespace):
        self.directory: Path = arguments.directory
        self.requests: int = arguments.requests
        self.checks = Checks()
        self.figures: dict[str, Any] = {}
        self.logs = self.directory / "logs"
        self.logs.mkdir(parents=True, exist_ok=True)
        path = (self.directory / "tidewire", Path(__file__).parent)
        # The default protocol stays: this host may have no device for it, and nothing is set to say so.
        self.environment = {
            "PYTHONPATH": os.pathsep.join(str(part.resolve()) for part in path),
            "SGLANG_HOST_IP": "127.0.0.1",
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
        }

    def pair(self, prefill: int, decode: int, name: str, tcp: bool = False) -> Pair:
        folder = self.logs / name
        folder.mkdir(exist_ok=True)
        extra = {"TIDEWIRE_SAME_HOST": "false"} if tcp else {}
        return Pair(prefill, decode, folder, {**self.environment, **extra})

    def packages(self) -> None:
        """What is under test."""
        code = "import mooncake.engine as m, tidewire; print(m.__file__, tidewire.__version__)"
        environment = {**os.environ, **self.environment}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
        self.checks.check(
            "Tidewire stands in place of Mooncake's wheel",
            done.returncode == 0 and str(self.directory / "tidewire") in done.stdout,
            f"sglang {importlib.metadata.version('sglang')}, tidewire {(done.stdout.split() or ['?', '?'])[1]}"
            if done.returncode == 0
            else done.stderr.strip()[-300:],
        )

    def _moved(self, name: str, outcome: Outcome, wanted: int) -> bool:
        detail = f"{outcome.delivered} of {wanted} requests, {outcome.wrong} wrong bytes of "
        detail += f"{outcome.bytes / 1e6:,.0f} MB, {outcome.seconds:.1f} s"
        if outcome.lost:
            detail += f"; lost: {outcome.lost[0]}"
        return self.checks.check(name, outcome.delivered == wanted and outcome.wrong == 0, detail)

    def _stray(self, name: str, pair: Pair) -> int:
        stray = pair.stray()
        self.checks.check(f"{name}: nothing was written to free pages", stray == 0, f"{stray} bytes")
        return stray

    def sizes(self, prefill: int, decode: int, tcp: bool = False) -> None:
        """Requests and aborts between these tensor parallel sizes; for the first, whether the comparison notices."""
        name = f"TP {prefill} to TP {decode}{', TCP only' if tcp else ''}"
        with self.pair(prefill, decode, name.lower().replace(",", "").replace(" ", "-"), tcp) as pair:
            self._moved(f"{name}: bytes equal, {AT_ONCE} requests at a time", pair.run(EACH, AT_ONCE), EACH)
            if (prefill, decode, tcp) == (1, 1, False):
                room = pair.finish(pair.request(spoiled=SPOILED))
                wrong = sum(event.get("wrong", 0) for event in room.done["decode"])
                detail = f"{wrong} of {SPOILED}"
                self.checks.check(f"{name}: bytes made wrong on purpose are noticed", wrong == SPOILED, detail)
            self._aborts(name, pair)
            failed = pair.again()
            detail = failed[0] if failed else "none failed"
            self.checks.check(f"{name}: registrations, also of torn down and new managers", not failed, detail)
            self._moved(f"{name}: requests to new managers", pair.run(AT_ONCE * 2, AT_ONCE), AT_ONCE * 2)
            self._stray(name, pair)

    def _aborts(self, name: str, pair: Pair) -> None:
        """The decode side aborts before the prefill side has sent anything, and while it sends."""
        ended = 0
        for _ in range(ABORTS):
            number = pair.request(hold=True)
            room = pair.rooms[number]
            asked = 0
            while asked < pair.instances["decode"].ranks:
                asked += pair.event()["event"] == "asked"
            pair.instances["decode"].tell(do="abort", room=number)
            pair.finish(number)
            every = [event for events in room.done.values() for event in events]
            # The prefill side learns it from SGLang's own message.
            ended += not any(event["success"] for event in every)
        self.checks.check(f"{name}: aborted before sending, both sides end it", ended == ABORTS, f"{ended} of {ABORTS}")
        arrived, touched, wrong = 0, 0, 0
        for _ in range(ABORTS):
            number = pair.request(pages=32)
            room = pair.rooms[number]
            # All ranks: SGLang ignores an abort that comes before its prefill rank knows the request.
            while room.sending < pair.instances["prefill"].ranks:
                pair.event()
            pair.instances["decode"].tell(do="abort", room=number)
            pair.finish(number)
            arrived += all(event["success"] for event in room.done["decode"])
            touched += any(event.get("touched", False) for event in room.done["decode"])
            wrong += sum(event.get("wrong", 0) for event in room.done["decode"])
        detail = f"{ABORTS - arrived} of {ABORTS} aborted, {touched} of them with KV there, {arrived} had arrived"
        self.checks.check(f"{name}: aborted while sending, both sides end it", wrong == 0 and touched > 0, detail)
        self._moved(f"{name}: requests after aborts", pair.run(AT_ONCE * 2, AT_ONCE), AT_ONCE * 2)

    def router(self) -> None:
        """Requests through sglang-router, which gives them their rooms."""
        with self.pair(1, 1, "router") as pair:
            outcome = Routed(pair, self.logs / "router" / "router.log").run(ROUTED, AT_ONCE)
            version = importlib.metadata.version("sglang-router")
            self._moved(f"sglang-router {version} in front: bytes equal", outcome, ROUTED)
            self._stray("sglang-router", pair)

    def restarts(self) -> None:
        """The figure: many requests, and the decode instance killed and started again between them."""
        with self.pair(1, 1, "restarts") as pair:
            outcome = pair.run(self.requests, AT_ONCE, RESTARTS)
            stray = self._stray("restarts", pair)
        wrong = outcome.wrong + stray
        self.figures = {
            "requests": self.requests,
            "restarts": outcome.restarts,
            "delivered": outcome.delivered,
            "wrong_bytes": wrong,
            "lost": len(outcome.lost),
            "in_flight": outcome.in_flight,
        }
        detail = (
            f"{outcome.delivered} of {self.requests} requests ({outcome.bytes / 1e6:,.0f} MB, {outcome.seconds:.0f} s)"
        )
        detail += f", {outcome.restarts} restarts, {outcome.in_flight} in flight at one, {len(outcome.lost)} lost "
        detail += f"otherwise, {wrong} wrong bytes"
        good = wrong == 0 and not outcome.lost and outcome.restarts == RESTARTS
        good = good and outcome.delivered + outcome.in_flight == self.requests
        good = good and outcome.in_flight <= RESTARTS * AT_ONCE
        self.checks.check("restarts: the decode instance is killed and started again", good, detail, figure=True)
        for reason, count in outcome.ended.items():
            print(f"       restarts: the prefill side ended {count} in flight: {reason}", flush=True)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="sglang.sh", description=__doc__.splitlines()[0])
    parser.add_argument("--directory", type=Path, required=True, help="where sglang.sh has set up")
    parser.add_argument("--requests", type=int, default=500, help="how many with restarts; 0: none (default: 500)")
    parser.add_argument("--only-restarts", action="store_true", help="leave out everything but the restarts")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    arguments = parser.parse_args()
    if arguments.requests and arguments.requests < 16:
        parser.error(f"--requests {arguments.requests}: at least 16, four for each part between restarts")
    return arguments


def main() -> int:
    arguments = parse()
    # SIGTERM unwinds like Ctrl-C, so that the processes are ended too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    begin = time.monotonic()
    run = Run(arguments)
    try:
        run.packages()
        if not arguments.only_restarts:
            for prefill, decode in SIZES:
                run.sizes(prefill, decode)
            for prefill, decode in TCP_SIZES:
                run.sizes(prefill, decode, tcp=True)
            run.router()
        if arguments.requests:
            run.restarts()
    except ServerError as error:
        run.checks.check("processes run", False, str(error))
    except KeyboardInterrupt:
        print("interrupted; every process has been ended", file=sys.stderr)
        return 130
    if arguments.json:
        arguments.json.write_text(json.dumps({**run.figures, "broken": run.checks.broken}, indent=1))
    run.checks.note(f"{time.monotonic() - begin:.0f} s")
    return run.checks.summary()


if __name__ == "__main__":
    sys.exit(main())
