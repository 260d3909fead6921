# SPDX-License-Identifier: Apache-2.0
"""A metadata server for engines that find each other by name: ``python -m mooncake.http_metadata_server --port 8080``.

    GET    /metadata?key=K   200 and the value, 404 "metadata not found"
    PUT    /metadata?key=K   200; 400 for a key with "rpc_meta" in it that exists: a name is of whoever took it first
    DELETE /metadata?key=K   200, 404 "metadata not found"
    GET    /health           200

A request without a key gives 400. Values live in memory, as long as the server.
"""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import threading
from typing import Any, Dict, Optional, Sequence, Tuple

from ._http import Handler, Refusal, Server

_MAX_KEY = 4096
_MAX_BYTES = 1 << 30  # of all keys and values together
_TEXT = "text/plain; charset=utf-8"


class Metadata:
    """Keys and values, for many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: Dict[str, bytes] = {}
        self._bytes = 0

    def get(self, key: str) -> Optional[bytes]:
        with self._lock:
            return self._values.get(key)

    def put(self, key: str, value: bytes) -> None:
        """Refusal for a name that is taken, and when there is no more room."""
        with self._lock:
            old = self._values.get(key)
            if old is not None and "rpc_meta" in key:
                raise Refusal(400, "Duplicate rpc_meta key not allowed")
            grown = self._bytes + len(value) + (len(key) if old is None else -len(old))
            if grown > _MAX_BYTES:
                raise Refusal(507, f"more than {_MAX_BYTES} bytes of metadata")
            self._values[key] = value
            self._bytes = grown

    def delete(self, key: str) -> bool:
        """Whether there was such a key."""
        with self._lock:
            old = self._values.pop(key, None)
            if old is not None:
                self._bytes -= len(key) + len(old)
            return old is not None


class MetadataHandler(Handler):
    """Answers one connection."""

    metadata: Metadata
    max_body = 64 << 20

    def answer(self, method: str, path: str, query: Dict[str, str], body: bytes) -> Tuple[int, str, bytes]:
        if path == "/health" and method in ("GET", "HEAD"):
            return 200, _TEXT, b"OK"
        if path != "/metadata":
            raise Refusal(404, "not found")
        key = query.get("key", "")
        if not key or len(key) > _MAX_KEY:
            raise Refusal(400, "a key of 1 to 4096 characters is needed: /metadata?key=...")
        if method in ("GET", "HEAD"):
            value = self.metadata.get(key)
            if value is None:
                raise Refusal(404, "metadata not found")
            return 200, "application/json", value
        if method == "PUT":
            self.metadata.put(key, body)
            return 200, _TEXT, b"metadata updated"
        if method == "DELETE":
            if not self.metadata.delete(key):
                raise Refusal(404, "metadata not found")
            return 200, _TEXT, b"metadata deleted"
        raise Refusal(405, f"{method} is not served here")


def make_server(host: str = "0.0.0.0", port: int = 8080) -> Server:
    """A server with no entries, listening; port 0 = chosen by the kernel. ``serve_forever`` runs it."""
    handler = type("MetadataHandler", (MetadataHandler,), {"metadata": Metadata()})
    return Server(host, port, handler)


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """The program. 0 after SIGINT or SIGTERM, 1 when the port can't be had."""
    parser = argparse.ArgumentParser(prog="mooncake_http_metadata_server", description="Metadata server for engines.")
    parser.add_argument("--host", default="0.0.0.0", help="address to listen on (default: all)")
    parser.add_argument("--port", type=int, default=8080, help="port (default: 8080; 0 = any)")
    parser.add_argument(
        "--log-level",
        type=str.upper,
        default="WARNING",
        choices=["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"],
        help="what to log to standard error (default: WARNING)",
    )
    given = parser.parse_args(arguments)
    logging.basicConfig(level=given.log_level, format="%(levelname)s %(message)s")
    return serve("http metadata server", lambda: make_server(given.host, given.port))


def serve(name: str, make: Any) -> int:
    """Runs a server until a signal comes, and says on standard output where it listens."""
    try:
        server = make()
    except (OSError, OverflowError) as error:
        print(f"{name}: can't listen: {error}", file=sys.stderr)
        return 1
    # Not in the handler itself: shutdown() waits for serve_forever, which the handler interrupts.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: threading.Thread(target=server.shutdown, daemon=True).start())
    print(f"{name} listens on {server.address}", flush=True)
    server.serve_forever(poll_interval=0.1)
    server.server_close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
