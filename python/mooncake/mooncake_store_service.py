# SPDX-License-Identifier: Apache-2.0
"""A store client as a service, with a REST interface: ``python -m mooncake.mooncake_store_service --config FILE``.

    PUT    /api/put            {"key": K, "value": TEXT}
    GET    /api/get/K          the bytes; 404
    GET    /api/exist/K        {"exists": true or false}
    DELETE /api/remove/K       404 when there is no such key, 409 while readers have leases
    DELETE /api/remove_all     {"removed": count}
    POST   /api/mount_shm      {"path", "size", "offset" = 0, "protocol" = "tcp", "location" = ""}: lends a file
    POST   /api/mount          {"size", "protocol" = "tcp", "location" = ""}: allocates memory and lends it
    POST   /api/unmount_shm, /api/unmount   {"segment_ids": [...], "grace_period_seconds" = 0}
    GET    /health             200 in contact with the master, else 503

Successes, but for ``get``, are JSON with "status": "success"; failures have "error" and, of the store, "code".
/api/reconfigure and /api/unmount_local_disk answer 501. A body may have 100 MB.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from typing import Any, Dict, Optional, Sequence, Tuple

from ._http import Handler, Refusal, Server, to_json
from .http_metadata_server import serve
from .mooncake_config import MooncakeConfig

_log = logging.getLogger("mooncake")
_MAX_GRACE_SECONDS = 3600
_STATUS_OF = {-704: 404, -706: 409, -600: 400, -400: 400, -200: 507, -1012: 501}


class StoreHandler(Handler):
    """Answers one connection."""

    store: Any
    max_body = 100 * 1000 * 1000

    def refusal(self, status: int, text: str) -> Tuple[int, str, bytes]:
        return to_json({"error": text}, status)

    def answer(self, method: str, path: str, query: Dict[str, str], body: bytes) -> Tuple[int, str, bytes]:
        if (method, path) == ("GET", "/health"):
            state = self.store.health_check()
            return to_json({"status": "ok" if state == 0 else "unavailable", "code": state}, 200 if state == 0 else 503)
        head, _, key = path[len("/api/") :].partition("/") if path.startswith("/api/") else ("", "", "")
        route = _ROUTES.get(head)
        if route is None or bool(key) != route[2]:
            raise Refusal(404, f"{path} is not served here")
        if method != route[0]:
            raise Refusal(405, f"{path} takes {route[0]}, not {method}")
        return route[1](self, key if route[2] else _object(body) if method in ("PUT", "POST") else None)

    # -- objects --

    def put(self, given: Any) -> Tuple[int, str, bytes]:
        key, value = _field(given, "key", str), _field(given, "value", str)
        return _result(self.store.put(key, value.encode("utf-8", "surrogatepass")), f"put {key}")

    def get(self, key: Any) -> Tuple[int, str, bytes]:
        found = self.store.get_buffer(key)
        if found is None:
            raise Refusal(404, f"no object {key!r}")
        return 200, "application/octet-stream", bytes(found)

    def exist(self, key: Any) -> Tuple[int, str, bytes]:
        found = self.store.is_exist(key)
        return to_json({"exists": found == 1}) if found >= 0 else _result(found, f"exist {key}")

    def remove(self, key: Any) -> Tuple[int, str, bytes]:
        return _result(self.store.remove(key), f"remove {key}")

    def remove_all(self, _: Any) -> Tuple[int, str, bytes]:
        count = self.store.remove_all()
        return _result(min(count, 0), "remove_all", removed=max(count, 0))

    # -- segments --

    def mount_shm(self, given: Any) -> Tuple[int, str, bytes]:
        result = self.store.mount_segment(
            _field(given, "path", str),
            _field(given, "size", int),
            _field(given, "offset", int, 0),
            _field(given, "protocol", str, "tcp"),
            _field(given, "location", str, ""),
        )
        return _result(result["ret"], "mount_shm", segment_ids=result["segment_ids"])

    def mount(self, given: Any) -> Tuple[int, str, bytes]:
        result = self.store.allocate_and_mount_segment(
            _field(given, "size", int), _field(given, "protocol", str, "tcp"), _field(given, "location", str, "")
        )
        more = {name: result[name] for name in ("segment_ids", "allocated_size")}
        return _result(result["ret"], "mount", **more)

    def unmount_shm(self, given: Any) -> Tuple[int, str, bytes]:
        return _result(self.store.unmount_segment(*_segments(given)), "unmount_shm")

    def unmount(self, given: Any) -> Tuple[int, str, bytes]:
        return _result(self.store.unmount_and_free_segment(*_segments(given)), "unmount")

    def not_here(self, _: Any) -> Tuple[int, str, bytes]:
        raise Refusal(501, f"{self.path} is not supported")


# First part of the path after /api/ -> (method, function, whether a key follows).
_ROUTES: Dict[str, Tuple[str, Any, bool]] = {
    "put": ("PUT", StoreHandler.put, False),
    "get": ("GET", StoreHandler.get, True),
    "exist": ("GET", StoreHandler.exist, True),
    "remove": ("DELETE", StoreHandler.remove, True),
    "remove_all": ("DELETE", StoreHandler.remove_all, False),
    "mount_shm": ("POST", StoreHandler.mount_shm, False),
    "unmount_shm": ("POST", StoreHandler.unmount_shm, False),
    "mount": ("POST", StoreHandler.mount, False),
    "unmount": ("POST", StoreHandler.unmount, False),
    "reconfigure": ("POST", StoreHandler.not_here, False),
    "unmount_local_disk": ("POST", StoreHandler.not_here, False),
}


def _object(body: bytes) -> Dict[str, Any]:
    try:
        value = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        raise Refusal(400, "the body is no JSON") from None
    if not isinstance(value, dict):
        raise Refusal(400, "the body is no JSON object")
    return value


def _field(given: Dict[str, Any], name: str, kind: Any, default: Any = None) -> Any:
    value = given.get(name, default)
    if not isinstance(value, kind) or isinstance(value, bool) or (kind is int and not 0 <= value < 2**64):
        raise Refusal(400, f"{name!r} must be a {'number of 0 or more' if kind is int else 'text'}")
    return value


def _segments(given: Dict[str, Any]) -> Tuple[Sequence[str], int]:
    ids = given.get("segment_ids")
    if not isinstance(ids, list) or not all(isinstance(item, str) for item in ids):
        raise Refusal(400, "'segment_ids' must be a list of texts")
    grace = _field(given, "grace_period_seconds", int, 0)
    if grace > _MAX_GRACE_SECONDS:
        raise Refusal(400, f"'grace_period_seconds' may be {_MAX_GRACE_SECONDS} at most")
    return ids, grace


def _result(code: int, what: str, **more: Any) -> Tuple[int, str, bytes]:
    if code >= 0:
        return to_json({"status": "success", **more})
    from ._store_codes import code_name

    return to_json({"error": f"{what}: {code_name(code)}", "code": code}, _STATUS_OF.get(code, 500))


def make_server(store: Any, host: str = "0.0.0.0", port: int = 8080) -> Server:
    """A server over a store that is set up; port 0 = chosen by the kernel. ``serve_forever`` runs it."""
    return Server(host, port, type("StoreHandler", (StoreHandler,), {"store": store}))


def load_config(path: Optional[str], changes: Sequence[str]) -> MooncakeConfig:
    """The configuration of a file (None: of the environment), with ``changes`` of the form "key=value"."""
    values: Dict[str, Any] = {}
    if path:
        with open(path, encoding="utf-8") as file:
            values = _object(file.read().encode())
    for change in changes:
        name, equals, value = change.partition("=")
        if not equals or not name:
            raise ValueError(f"-D {change!r}: give key=value")
        values[name] = value
    if path or {"local_hostname", "metadata_server", "master_server_address"} <= set(values):
        return MooncakeConfig.from_mapping(values, path or "-D")
    base = MooncakeConfig.load_from_env()
    return MooncakeConfig.from_mapping({**base.__dict__, **values}, "the environment and -D")


def _set_up(config: MooncakeConfig, max_wait_seconds: float) -> Any:
    """The store, or None when the master did not answer within that time."""
    from .store import MooncakeDistributedStore

    store = MooncakeDistributedStore()
    end = time.monotonic() + max_wait_seconds
    while True:
        code = store.setup(**config.setup_arguments())
        if code == 0:
            return store
        if time.monotonic() >= end or code in (-600, -1012):
            _log.error("the store could not be set up: %d", code)
            return None
        time.sleep(1)


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """The program. 0 after SIGINT or SIGTERM, 1 when the store or the port can't be had, 2 for a bad configuration."""
    parser = argparse.ArgumentParser(prog="mc_store_rest_server", description="A store client with a REST interface.")
    parser.add_argument("--config", help="JSON file (default: the environment, see MooncakeConfig)")
    parser.add_argument("-D", dest="changes", action="append", default=[], metavar="KEY=VALUE", help="changes a value")
    parser.add_argument("--host", default="0.0.0.0", help="address to listen on (default: all)")
    parser.add_argument("--port", type=int, default=8080, help="port (default: 8080; 0 = any)")
    parser.add_argument("--max-wait-time", type=float, default=60, help="seconds to wait for the master (default: 60)")
    given = parser.parse_args(arguments)
    logging.basicConfig(level="WARNING", format="%(levelname)s %(message)s")
    try:
        config = load_config(given.config, given.changes)
    except (OSError, ValueError, Refusal) as error:
        print(f"mooncake_store_service: {error}", file=sys.stderr)
        return 2
    store = _set_up(config, given.max_wait_time)
    if store is None:
        return 1
    try:
        return serve("store service", lambda: make_server(store, given.host, given.port))
    finally:
        store.close()


if __name__ == "__main__":
    sys.exit(main())
