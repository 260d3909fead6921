# SPDX-License-Identifier: Apache-2.0
"""The programs around the store: the metadata server, the REST service, the configuration, and the pool of buffers."""

from __future__ import annotations

import gc
import http.client
import json
import re
import signal
import socket
import subprocess
import sys
import threading

import numpy as np
import pytest
from mooncake.buffer_pool import BufferPool
from mooncake.http_metadata_server import make_server
from mooncake.mooncake_config import MooncakeConfig
from mooncake.mooncake_store_service import load_config
from mooncake.mooncake_store_service import make_server as make_store_server
from store_cluster import HOST
from tidewire_testing import HARD_STOP, environment

pytest_plugins = ["store_fixtures"]


class Client:
    """Requests over one kept connection."""

    def __init__(self, address):
        self.connection = http.client.HTTPConnection(address, timeout=HARD_STOP)

    def __call__(self, method, path, body=None):
        self.connection.request(method, path, body)
        answer = self.connection.getresponse()
        return answer.status, answer.read()

    def json(self, method, path, body=None):
        status, text = self(method, path, None if body is None else json.dumps(body))
        return status, json.loads(text)


@pytest.fixture
def serve():
    """Runs a server in a thread; gives a client of it."""
    running = []

    def start(server):
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        client = Client(server.address)
        running.append((server, thread, client))
        return client

    yield start
    for server, thread, client in running:
        client.connection.close()
        server.shutdown()
        thread.join(HARD_STOP)
        server.server_close()


# -- metadata --


def test_metadata_is_put_got_and_deleted(serve):
    ask = serve(make_server(HOST, 0))
    assert ask("GET", "/metadata?key=a%2Fb") == (404, b"metadata not found")
    assert ask("PUT", "/metadata?key=a%2Fb", b'{"x": 1}')[0] == 200
    assert ask("GET", "/metadata?key=a%2Fb") == (200, b'{"x": 1}')
    assert ask("PUT", "/metadata?key=a%2Fb", b"2")[0] == 200
    assert ask("GET", "/metadata?key=a%2Fb") == (200, b"2")
    assert ask("DELETE", "/metadata?key=a%2Fb")[0] == 200
    assert ask("DELETE", "/metadata?key=a%2Fb") == (404, b"metadata not found")


def test_a_name_belongs_to_who_took_it_first(serve):
    ask = serve(make_server(HOST, 0))
    path = "/metadata?key=mooncake/rpc_meta/host:1"
    assert ask("PUT", path, b"first")[0] == 200
    assert ask("PUT", path, b"second") == (400, b"Duplicate rpc_meta key not allowed")
    assert ask("GET", path) == (200, b"first")
    assert ask("DELETE", path)[0] == 200 and ask("PUT", path, b"second")[0] == 200


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
@pytest.mark.parametrize("path", ["/metadata", "/metadata?key=", "/metadata?other=1"])
def test_a_request_without_a_key_is_refused(serve, method, path):
    assert serve(make_server(HOST, 0))(method, path, b"x" if method == "PUT" else None)[0] == 400


def test_the_metadata_server_says_that_it_lives(serve):
    ask = serve(make_server(HOST, 0))
    assert ask("GET", "/health")[0] == 200 and ask("GET", "/other")[0] == 404
    assert ask("POST", "/metadata?key=a", b"x")[0] == 405


@pytest.mark.parametrize("length", ["99999999999", "-1", "x", "1" * 5000])
def test_a_body_that_is_too_long_or_of_no_length_is_refused(serve, length):
    server = make_server(HOST, 0)
    serve(server)
    with socket.create_connection(server.server_address, HARD_STOP) as raw:
        raw.sendall(f"PUT /metadata?key=a HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n".encode())
        assert re.match(rb"HTTP/1.1 (400|413) ", raw.recv(1000))


def test_a_silent_connection_hinders_nobody(serve):
    server = make_server(HOST, 0)
    ask = serve(server)
    with socket.create_connection(server.server_address, HARD_STOP) as silent:
        silent.sendall(b"PUT /metadata?key=a HTTP/1.1\r\nContent-Length: 10\r\n\r\nab")
        assert ask("PUT", "/metadata?key=b", b"x")[0] == 200
    assert ask("GET", "/metadata?key=a")[0] == 404


def run_program(module, *arguments):
    return subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )


def listening(process):
    """host:port of a program once it listens."""
    timer = threading.Timer(HARD_STOP, process.kill)
    timer.start()
    line = process.stdout.readline()
    timer.cancel()
    found = re.search(r"listens on (\S+)", line)
    assert found, (line, process.stderr.read() if process.poll() is not None else "")
    return found[1].replace("0.0.0.0", HOST)


def test_the_metadata_server_is_a_program():
    process = run_program("mooncake.http_metadata_server", "--host", HOST, "--port", "0", "--log-level", "info")
    try:
        ask = Client(listening(process))
        assert ask("PUT", "/metadata?key=a", b"1")[0] == 200 and ask("GET", "/metadata?key=a") == (200, b"1")
        ask.connection.close()
        process.send_signal(signal.SIGTERM)
        assert process.wait(HARD_STOP) == 0
    finally:
        process.kill()
        process.communicate()


def test_a_port_that_is_taken_is_said():
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        process = run_program("mooncake.http_metadata_server", "--host", HOST, "--port", str(taken.getsockname()[1]))
        _, errors = process.communicate(timeout=HARD_STOP)
    assert process.returncode == 1 and "can't listen" in errors


def test_engines_find_each_other_through_it(serve, free_port):
    from mooncake.engine import TransferEngine

    server = make_server(HOST, 0)
    serve(server)
    engines = [TransferEngine() for _ in range(2)]
    for engine, name in zip(engines, (HOST, f"{HOST}:{free_port}")):
        assert engine.initialize(name, f"http://{server.address}/metadata", "tcp", "") == 0
    memory = np.arange(200, dtype=np.uint8)
    for engine in engines:
        assert engine.register_memory(memory.ctypes.data, 200) == 0
    assert engines[0].transfer_sync_write(f"{HOST}:{free_port}", memory.ctypes.data, memory.ctypes.data + 100, 100) == 0
    assert (memory[:100] == memory[100:]).all()


# -- the REST service --


def test_objects_through_rest(serve, store):
    ask = serve(make_store_server(store, HOST, 0))
    assert ask.json("PUT", "/api/put", {"key": "a/b c", "value": "wört"}) == (200, {"status": "success"})
    assert ask("GET", "/api/get/a/b%20c") == (200, "wört".encode())
    assert ask.json("GET", "/api/exist/a/b%20c") == (200, {"exists": True})
    assert ask.json("GET", "/api/exist/missing") == (200, {"exists": False})
    assert ask("GET", "/api/get/missing")[0] == 404
    assert ask.json("DELETE", "/api/remove/missing")[1]["code"] == -704
    assert ask.json("PUT", "/api/put", {"key": "empty", "value": ""})[0] == 400
    assert ask.json("PUT", "/api/put", {"key": "other", "value": "x"})[0] == 200
    assert ask.json("DELETE", "/api/remove/other") == (200, {"status": "success"})
    assert ask.json("GET", "/health")[0] == 200


def test_all_objects_are_removed_through_rest(serve, store):
    ask = serve(make_store_server(store, HOST, 0))
    assert store.put_batch(["a", "b"], [b"1", b"2"]) == 0
    assert ask.json("DELETE", "/api/remove_all") == (200, {"status": "success", "removed": 2})


@pytest.mark.parametrize(
    "method, path, body, status",
    [
        ("PUT", "/api/put", b"no json", 400),
        ("PUT", "/api/put", b"[1]", 400),
        ("PUT", "/api/put", b'{"key": 5, "value": "x"}', 400),
        ("PUT", "/api/put", b'{"value": "x"}', 400),
        ("PUT", "/api/put", b"[" * 100_000, 400),
        ("POST", "/api/put", b"{}", 405),
        ("GET", "/api/get", None, 404),
        ("GET", "/api/get/", None, 404),
        ("GET", "/nothing", None, 404),
        ("POST", "/api/mount", b'{"size": -1}', 400),
        ("POST", "/api/unmount", b'{"segment_ids": "1"}', 400),
        ("POST", "/api/unmount", b'{"segment_ids": [], "grace_period_seconds": 3601}', 400),
        ("POST", "/api/unmount", b'{"segment_ids": ["77"]}', 400),
        ("POST", "/api/mount_shm", b'{"path": "/missing", "size": 4096}', 400),
        ("POST", "/api/reconfigure", b'{"mode": "decode"}', 501),
        ("POST", "/api/unmount_local_disk", b"{}", 501),
    ],
)
def test_bad_requests_are_refused_with_a_reason(serve, store, method, path, body, status):
    found, text = serve(make_store_server(store, HOST, 0))(method, path, body)
    assert found == status and json.loads(text)["error"]


def test_memory_is_lent_through_rest(serve, store, tmp_path):
    ask = serve(make_store_server(store, HOST, 0))
    file = tmp_path / "memory"
    file.write_bytes(bytes(16 << 20))
    status, mounted = ask.json("POST", "/api/mount_shm", {"path": str(file), "size": 16 << 20})
    assert status == 200 and len(mounted["segment_ids"]) == 1
    status, allocated = ask.json("POST", "/api/mount", {"size": 16 << 20})
    assert status == 200 and allocated["allocated_size"] == 16 << 20
    for path, given in (("/api/unmount_shm", mounted), ("/api/unmount", allocated)):
        assert ask.json("POST", path, {"segment_ids": given["segment_ids"]}) == (200, {"status": "success"})


def test_the_rest_service_is_a_program(master, tmp_path):
    file = tmp_path / "config.json"
    values = {"local_hostname": HOST, "metadata_server": "P2PHANDSHAKE", "master_server_address": master.address}
    file.write_text(json.dumps({**values, "global_segment_size": "16MB", "local_buffer_size": "1TB"}))
    process = run_program(
        "mooncake.mooncake_store_service", "--config", str(file), "-D", "local_buffer_size=16MB", "--port", "0"
    )
    try:
        ask = Client(listening(process))
        assert ask.json("PUT", "/api/put", {"key": "k", "value": "v"})[0] == 200
        assert ask("GET", "/api/get/k") == (200, b"v")
        ask.connection.close()
        process.send_signal(signal.SIGINT)
        assert process.wait(HARD_STOP) == 0
    finally:
        process.kill()
        process.communicate()


def test_a_service_without_a_configuration_says_what_is_missing():
    process = subprocess.run(
        [sys.executable, "-m", "mooncake.mooncake_store_service"],
        env={name: value for name, value in environment().items() if not name.startswith("MOONCAKE_")},
        capture_output=True,
        text=True,
        timeout=HARD_STOP,
    )
    assert process.returncode == 2 and "MOONCAKE_MASTER" in process.stderr


# -- configuration --

BASE = {"local_hostname": "a", "metadata_server": "P2PHANDSHAKE", "master_server_address": "m:1"}


def test_a_configuration_file_is_read(tmp_path, monkeypatch):
    file = tmp_path / "config.json"
    file.write_text(
        json.dumps({**BASE, "global_segment_size": "4GB", "device_name": "ib0", "enable_ssd_offload": True})
    )
    monkeypatch.setenv("MOONCAKE_CONFIG_PATH", str(file))
    config = MooncakeConfig.load_from_env()
    assert config == MooncakeConfig.from_file(str(file))
    assert (config.global_segment_size, config.local_buffer_size) == (4 << 30, 1 << 30)
    assert (config.device_name, config.protocol, config.enable_ssd_offload, config.tenant_id) == (
        "ib0",
        "tcp",
        True,
        "default",
    )


def test_the_environment_has_the_documented_defaults(monkeypatch):
    monkeypatch.delenv("MOONCAKE_CONFIG_PATH", raising=False)
    monkeypatch.setenv("MOONCAKE_MASTER", "m:1")
    assert MooncakeConfig.load_from_env() == MooncakeConfig(
        local_hostname="localhost",
        metadata_server="P2PHANDSHAKE",
        global_segment_size=3355443200,
        local_buffer_size=1 << 30,
        protocol="tcp",
        device_name="",
        master_server_address="m:1",
    )
    monkeypatch.delenv("MOONCAKE_MASTER")
    with pytest.raises(ValueError, match="MOONCAKE_MASTER"):
        MooncakeConfig.load_from_env()


@pytest.mark.parametrize(
    "changes, word",
    [
        ({"local_hostname": ""}, "local_hostname"),
        ({"global_segment_size": "50%"}, "50%"),
        ({"colour": 1}, "colour"),
        ({"enable_ssd_offload": "perhaps"}, "perhaps"),
    ],
)
def test_a_configuration_that_is_wrong_says_what(changes, word):
    with pytest.raises(ValueError, match=word):
        MooncakeConfig.from_mapping({**BASE, **changes})


def test_the_service_takes_changes_as_raw_texts(tmp_path):
    file = tmp_path / "config.json"
    file.write_text(json.dumps(BASE))
    config = load_config(str(file), ["local_buffer_size=32 MB", "tenant_id=a=b"])
    assert (config.local_buffer_size, config.tenant_id, config.local_hostname) == (32 << 20, "a=b", "a")
    with pytest.raises(ValueError, match="key=value"):
        load_config(str(file), ["local_buffer_size"])


# -- the pool of buffers --


def test_a_pool_lends_registered_memory_again_and_again(store):
    with BufferPool(store, min_size_class=4096, alignment=4096) as pool:
        with pool.acquire(3000) as lease:
            first = lease.ptr
            assert lease.size == 3000 and lease.ptr % 4096 == 0 and len(lease.buffer) == 3000
            np.frombuffer(lease.buffer, np.uint8)[:] = 5
            assert store.put_from("pooled", lease.ptr, 3000) == 0
        assert store.get("pooled") == b"\5" * 3000
        with pool.buffer(4096) as lease:
            assert lease.ptr == first
            assert store.get_into("pooled", lease.ptr, 4096) == 3000
        with pytest.raises(RuntimeError, match="released"):
            lease.ptr  # noqa: B018


def test_a_pool_has_a_limit(store):
    pool = BufferPool(store, max_bytes=8192, min_size_class=4096, alignment=4096, block_on_exhaustion=False)
    leases = [pool.acquire(4096), pool.acquire(1)]
    with pytest.raises(RuntimeError, match="no buffer"):
        pool.acquire(1)
    with pytest.raises(RuntimeError, match="no buffer"):
        pool.acquire(1, block=True, timeout=0.01)
    leases[0].release()
    leases[0].release()
    assert pool.acquire(1).size == 1
    for size in (0, -1, 8193):
        with pytest.raises(RuntimeError):
            pool.acquire(size)
    pool.close()
    with pytest.raises(RuntimeError, match="closed"):
        pool.acquire(1)


def test_who_waits_for_a_buffer_gets_the_one_that_comes_back(store):
    pool = BufferPool(store, max_regions=1, min_size_class=4096, alignment=4096)
    lease, got = pool.acquire(10), []
    waiter = threading.Thread(target=lambda: got.append(pool.acquire(20, timeout=HARD_STOP).size))
    waiter.start()
    lease.release()
    waiter.join(HARD_STOP)
    assert got == [20]
    pool.close()


def test_a_buffer_with_a_view_is_lent_to_nobody_else(store):
    pool = BufferPool(store, min_size_class=4096, alignment=4096, prewarm_size=4096, prewarm_count=1)
    lease = pool.acquire(4096)
    array, address = np.frombuffer(lease.buffer, np.uint8), lease.ptr
    lease.release()
    other = pool.acquire(4096)
    assert other.ptr != address
    array[:] = 1  # still this one's memory
    del array, lease
    assert pool.acquire(4096).ptr == address
    pool.close()


def test_a_lease_that_is_forgotten_comes_back(store):
    pool = BufferPool(store, max_regions=1, min_size_class=4096, alignment=4096, block_on_exhaustion=False)
    for _ in range(3):
        assert pool.acquire(100).size == 100
    pool.close()


def test_a_pool_that_is_forgotten_unregisters_its_memory(store):
    pool = BufferPool(store, min_size_class=4096, alignment=4096)
    address = pool.acquire(4096).ptr
    del pool
    gc.collect()
    assert store.unregister_buffer(address) < 0


def test_a_pool_may_outlive_its_store(store_factory):
    store = store_factory()
    pool = BufferPool(store, min_size_class=4096, alignment=4096)
    lease = pool.acquire(4096)
    assert store.close() == 0
    lease.release()
    pool.close()
    with pytest.raises(RuntimeError):
        BufferPool(store, prewarm_size=4096, prewarm_count=1)
