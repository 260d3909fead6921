# SPDX-License-Identifier: Apache-2.0
"""sglang-router in front of a pair: it gives each request its room and sends it to both instances over HTTP."""

from __future__ import annotations

import json
import sys
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from processes import Server, free_port
from sglang_cluster import MOST_PAGES, Outcome, Pair, Room


class _Front(ThreadingHTTPServer):
    """The HTTP side of an instance: takes requests from the router and answers when the ranks have done with them."""

    daemon_threads = True

    def __init__(self, router: Routed, role: str):
        self.router = router
        self.role = role
        super().__init__(("127.0.0.1", 0), _Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Front

    def do_GET(self) -> None:  # health and what the router asks about a server
        self._answer({})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self._answer(self.server.router.take(self.server.role, body))

    def _answer(self, what: dict[str, Any]) -> None:
        data = json.dumps(what).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        pass


class Routed:
    """Requests through sglang-router to a pair."""

    def __init__(self, pair: Pair, log: Path):
        self._pair = pair
        self._log = log
        self._lock = threading.Lock()
        self._waiting: dict[tuple[str, int], threading.Event] = {}

    def take(self, role: str, body: dict[str, Any]) -> dict[str, Any]:
        """A request from the router, to the ranks of one instance."""
        room, pages = body["bootstrap_room"], len(body["text"])
        over = threading.Event()
        with self._lock:
            self._waiting[role, room] = over
            self._pair.rooms.setdefault(room, Room(pages))
            self._pair.instances[role].tell(do="request", room=room, pages=pages)
        over.wait(60)
        return {"text": str(room), "meta_info": {}}

    def run(self, count: int, at_once: int) -> Outcome:
        outcome = Outcome()
        fronts = {role: _Front(self, role) for role in ("prefill", "decode")}
        port = free_port()
        command = [sys.executable, "-m", "sglang_router.launch_router", "--pd-disaggregation", "--host", "127.0.0.1"]
        command += ["--port", str(port), "--prometheus-port", str(free_port()), "--disable-retries"]
        command += ["--prefill", f"http://127.0.0.1:{fronts['prefill'].server_port}", str(self._pair.port)]
        command += ["--decode", f"http://127.0.0.1:{fronts['decode'].server_port}"]
        try:
            with Server("sglang-router", command, self._log) as server, ThreadPoolExecutor(at_once) as clients:
                # Not /health, which answers before the router knows both instances.
                server.wait_ready(f"http://127.0.0.1:{port}/readiness", 60)
                url = f"http://127.0.0.1:{port}/generate"
                begin = time.monotonic()
                answers = [clients.submit(self._post, url, "x" * (4 + n % (MOST_PAGES - 3))) for n in range(count)]
                open_rooms = count
                while open_rooms and not any(answer.done() and answer.exception() for answer in answers):
                    self._pair.event()
                    with self._lock:
                        open_rooms -= self._answer_finished(outcome)
                if open_rooms:
                    clients.shutdown(wait=False, cancel_futures=True)
                    outcome.lost.append("the router refused a request")
                    return outcome
                outcome.seconds = time.monotonic() - begin
                rooms = {answer.result() for answer in answers}
                if len(rooms) != count:
                    outcome.lost.append(f"the router answered with {len(rooms)} rooms")
        finally:
            for front in fronts.values():
                front.shutdown()
                front.server_close()
        return outcome

    def _answer_finished(self, outcome: Outcome) -> int:
        for role, room in [key for key in self._waiting if self._pair.ended(key[1], key[0])]:
            self._waiting.pop((role, room)).set()
        finished = [number for number in self._pair.rooms if self._pair.ended(number)]
        for number in finished:
            outcome.enter(self._pair.rooms.pop(number))
        return len(finished)

    @staticmethod
    def _post(url: str, text: str) -> str:
        body = json.dumps({"text": text, "sampling_params": {"max_new_tokens": 1}}).encode()
        request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=90) as answer:
            return json.loads(answer.read())["text"]
