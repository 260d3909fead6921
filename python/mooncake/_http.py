# SPDX-License-Identifier: Apache-2.0
"""What the package's small HTTP servers share: threads, limits, quiet logs."""

from __future__ import annotations

import json
import logging
import socket
import socketserver
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, Optional, Tuple
from urllib.parse import parse_qs, unquote, urlsplit

_log = logging.getLogger("mooncake")
MAX_CONNECTIONS = 1024
# An idle or slow connection is closed after so long.
_IDLE_SECONDS = 60.0


class Refusal(Exception):
    """An answer other than success: (status, text)."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


class Handler(BaseHTTPRequestHandler):
    """One connection. A subclass answers in ``answer`` and never sees a body above ``max_body`` bytes."""

    protocol_version = "HTTP/1.1"
    server_version = "Tidewire"
    sys_version = ""
    timeout = _IDLE_SECONDS
    disable_nagle_algorithm = True
    max_body = 1 << 20

    def answer(self, method: str, path: str, query: dict[str, str], body: bytes) -> Tuple[int, str, bytes]:
        """(status, content type, body). May raise :class:`Refusal`."""
        raise NotImplementedError

    def refusal(self, status: int, text: str) -> Tuple[int, str, bytes]:
        """The answer for a :class:`Refusal`."""
        return status, "text/plain; charset=utf-8", text.encode()

    def handle_request(self) -> None:
        try:
            body = self._read_body()
            if body is None:
                return
            path, query = _split(self.path)
            status, kind, data = self.answer(self.command, path, query, body)
        except Refusal as error:
            status, kind, data = self.refusal(error.status, error.text)
        except Exception:  # a defect here must not end the server
            _log.exception("%s %s", self.command, self.path)
            status, kind, data = self.refusal(500, "internal error")
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_request

    def _read_body(self) -> Optional[bytes]:
        """The body; None when the connection ended within it."""
        if self.headers.get("Transfer-Encoding"):
            self.close_connection = True
            raise Refusal(411, "a body needs a Content-Length")
        text = self.headers.get("Content-Length", "0")
        if not text.isascii() or not text.isdecimal() or len(text) > 18:
            self.close_connection = True
            raise Refusal(400, "bad Content-Length")
        length = int(text)
        if length > self.max_body:
            self.close_connection = True
            raise Refusal(413, f"a body may have {self.max_body} bytes at most")
        body = self.rfile.read(length)
        if len(body) < length:
            self.close_connection = True
            return None
        return body

    def log_message(self, format: str, *arguments: Any) -> None:
        _log.debug("%s " + format, self.address_string(), *arguments)


def _split(target: str) -> Tuple[str, dict[str, str]]:
    """(path, query) of what a request asks for; of a name that comes twice, the first."""
    try:
        split = urlsplit(target)
        query = parse_qs(split.query, keep_blank_values=True)
    except ValueError:
        raise Refusal(400, "bad request target") from None
    return unquote(split.path), {name: values[0] for name, values in query.items()}


class Server(socketserver.ThreadingMixIn, HTTPServer):
    """Serves each connection in a thread of its own, at most ``MAX_CONNECTIONS`` at once."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 512

    def __init__(self, host: str, port: int, handler: Any) -> None:
        self._room = threading.BoundedSemaphore(MAX_CONNECTIONS)
        if ":" in host:
            self.address_family = socket.AF_INET6
        super().__init__((host.strip("[]"), port), handler)

    def server_bind(self) -> None:
        # HTTPServer would look its own name up, which may take long.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[0], self.server_address[1]  # type: ignore[assignment]

    @property
    def address(self) -> str:
        """ "host:port" that it listens on."""
        host = str(self.server_name)
        return f"[{host}]:{self.server_port}" if ":" in host else f"{host}:{self.server_port}"

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._room.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._room.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        _log.debug("a connection from %s failed", client_address, exc_info=True)


def to_json(value: Any, status: int = 200) -> Tuple[int, str, bytes]:
    """An answer that holds ``value`` as JSON."""
    return status, "application/json", json.dumps(value).encode()
