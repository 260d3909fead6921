# SPDX-License-Identifier: Apache-2.0
"""``tidewire master`` as a process: its flags, its pages, who may see them, how it ends."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from tidewire_testing import HARD_STOP, ROOT, wait_until

PROGRAM = Path(os.environ.get("TIDEWIRE_TEST_PROGRAM", ROOT / "build" / "bin" / "tidewire"))
READY = re.compile(r"tidewire master listens on (\S+), admin on (\S+?)(?:, metadata on (\S+))?$")
FREE_PORTS = ("--rpc_address=127.0.0.1", "--rpc_port=auto", "--metrics_host=127.0.0.1", "--metrics_port=auto")

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason="scripts/build.sh has not run")


def environment(**extra: str) -> dict[str, str]:
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("TIDEWIRE_", "MC_"))}
    return {**plain, **extra}


def run(*arguments, **extra):
    command = [PROGRAM, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=HARD_STOP, env=environment(**extra))


class Master:
    def __init__(self, *arguments, **extra):
        self.process = subprocess.Popen(
            [PROGRAM, "master", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(**extra),
        )
        line = self.process.stdout.readline()
        assert line, self.process.communicate(timeout=HARD_STOP)
        ready = READY.match(line.strip())
        assert ready, line
        self.address, self.admin, self.metadata = ready.groups()

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def ask(self, path, method="GET", body=None, server=None, **headers):
        """(code, text) of a page."""
        request = urllib.request.Request(f"http://{server or self.admin}{path}", data=body, method=method)
        for name, value in headers.items():
            request.add_header(name.replace("_", "-"), value)
        try:
            with urllib.request.urlopen(request, timeout=HARD_STOP) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def json(self, path):
        code, text = self.ask(path)
        assert code == 200, text
        return json.loads(text)

    def end(self, number=signal.SIGTERM):
        """(exit status, rest of stdout, stderr) after a signal."""
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=HARD_STOP)
        return self.process.returncode, out, err

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate(timeout=HARD_STOP)


@pytest.fixture
def start():
    made = []

    def make(*arguments, **extra):
        master = Master(*FREE_PORTS, *arguments, **extra)
        made.append(master)
        return master

    yield make
    for master in made:
        master.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_says_where_it_listens_and_ends_in_silence(start, number):
    master = start()
    socket.create_connection(("127.0.0.1", master.port), timeout=HARD_STOP).close()
    assert master.end(number) == (0, "", "")


def test_its_port_can_be_had_again_at_once(start):
    first = start()
    with socket.create_connection(("127.0.0.1", first.port), timeout=HARD_STOP):
        assert first.end()[0] == 0
    second = start(f"--rpc_port={first.port}", f"--metrics_port={first.admin.rpartition(':')[2]}")
    assert (second.address, second.admin) == (first.address, first.admin)


def test_help_lists_the_flags_and_what_is_missing():
    text = run("master", "--help").stdout
    assert "--rpc_port" in text and "enable_offload" in text and "--journal" in text
    assert "master" in run("--help").stdout


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--no_such_flag=1"], "no_such_flag"),
        (["--rpc_port=99999"], "rpc_port"),
        (["--enable_ha"], "enable_ha"),
        (["--enable_offload=true"], "enable_offload"),
        (["--default_kv_lease_ttl=soon"], "default_kv_lease_ttl"),
        (["--config_path=/no/such/file.json"], "/no/such/file.json"),
        (["--rpc_interface=nosuch0"], "nosuch0"),
        (["stray"], "stray"),
    ],
)
def test_wrong_flags_are_refused_by_name(arguments, named):
    result = run("master", *FREE_PORTS, *arguments)
    assert result.returncode == 2, result.stderr
    assert named in result.stderr
    assert not result.stdout


def test_flags_of_mooncake_master_in_its_spellings(start):
    master = start(
        "--enable_metric_reporting=false", "-max_threads=64", "--default_kv_lease_ttl", "5s", "--noenable_ha", "--logtostderr",
        "--cluster_id=mine", "--eviction_high_watermark_ratio=0.95", "--eviction_ratio", "0.1", "--client_ttl=30",
    )  # fmt: skip
    assert master.json("/health")["role"] == "leader"


def test_a_file_gives_flags_and_the_command_line_goes_first(start, tmp_path):
    file = tmp_path / "master.json"
    file.write_text(json.dumps({"rpc_port": 1, "metrics_port": 1, "enable_http_metadata_server": True, "http_metadata_server_port": "auto"}))
    master = start(f"--config_path={file}")
    assert master.metadata and master.port != 1
    file.write_text(json.dumps({"enable_snapshot": True}))
    refused = run("master", *FREE_PORTS, f"--config_path={file}")
    assert refused.returncode == 2 and "enable_snapshot" in refused.stderr and str(file) in refused.stderr
    yaml = tmp_path / "master.yaml"
    yaml.write_text("# flags\nenable_http_metadata_server: true\nhttp_metadata_server_port: auto\n")
    assert start("--config_path", str(yaml)).metadata


def test_a_second_master_on_the_port_is_told_so(start):
    first = start()
    second = run("master", *FREE_PORTS, f"--rpc_port={first.port}")
    assert second.returncode == 1
    assert str(first.port) in second.stderr and not second.stdout
    pages = first.admin.rpartition(":")[2]
    third = run("master", *FREE_PORTS, f"--metrics_port={pages}")
    assert third.returncode == 1 and pages in third.stderr


def test_a_journal_has_one_master_and_outlives_it(start, tmp_path):
    folder = str(tmp_path / "journal")
    first = start("--journal", folder)
    term = first.json("/status")["term"]
    second = run("master", *FREE_PORTS, "--journal", folder)
    assert second.returncode == 1
    assert folder in second.stderr and f"process {first.process.pid}" in second.stderr
    first.process.kill()
    first.process.wait(HARD_STOP)
    assert start("--journal", folder).json("/status")["term"] == term + 1


def test_a_damaged_journal_is_kept_and_reported(start, tmp_path):
    (tmp_path / "journal").write_bytes(b"this is no journal, whatever else it may be")
    master = start("--journal", str(tmp_path))
    assert (tmp_path / "journal.bad-1").read_bytes().startswith(b"this is no journal")
    code, _, err = master.end()
    assert code == 0 and len(err.splitlines()) == 1 and "journal.bad-1" in err


def test_pages_of_an_empty_store(start):
    master = start()
    wait_until(lambda: master.json("/health")["service_ready"], "the master is ready")
    assert master.json("/health")["leader_address"] == master.address
    assert master.ask("/role") == (200, "leader\n")
    assert "tidewire_store_objects 0" in master.ask("/metrics")[1]
    assert "objects: 0" in master.ask("/metrics/summary")[1]
    assert master.ask("/get_all_keys") == (200, "")
    assert master.ask("/query_key?key=a")[0] == 404
    assert master.ask("/query_segment?segment=a")[0] == 404
    assert master.ask("/kv_events/status")[0] == 501
    assert master.ask("/nothing")[0] == 404
    assert json.loads(master.ask("/api/v1/remove_all", "POST", b"")[1]) == {"removed": 0}


def test_who_is_elsewhere_needs_the_secret(start, tmp_path):
    secret = "0123456789abcdef0123456789abcdef"
    file = tmp_path / "secret"
    file.write_text(secret + "\n")
    file.chmod(0o600)
    master = start(TIDEWIRE_SECRET_FILE=str(file))
    # A request that came through a proxy is not one of this machine.
    elsewhere = {"X_Forwarded_For": "192.0.2.1"}
    assert master.ask("/health", **elsewhere)[0] == 200
    assert master.ask("/metrics", **elsewhere)[0] == 200
    for path, method in (("/status", "GET"), ("/get_all_keys", "GET"), ("/api/v1/remove_all", "POST")):
        assert master.ask(path, method, **elsewhere)[0] == 403
        assert master.ask(path, method, Authorization="Bearer wrong", **elsewhere)[0] == 403
        assert master.ask(path, method, Authorization=f"Bearer {secret}", **elsewhere)[0] == 200
        assert master.ask(path, method)[0] == 200
    assert secret not in "".join(str(part) for part in master.end())


def test_the_metadata_server_keeps_values(start):
    master = start("--enable_http_metadata_server", "--http_metadata_server_host=127.0.0.1", "--http_metadata_server_port=auto")

    def ask(method, query, body=None):
        return master.ask(f"/metadata{query}", method, body, server=master.metadata)

    assert ask("GET", "?key=ram%2Fa")[0] == 404
    assert ask("PUT", "?key=ram%2Fa", b"{}")[0] == 200
    assert ask("GET", "?key=ram/a") == (200, "{}")
    assert ask("GET", "")[0] == 400
    assert ask("DELETE", "?key=ram/a")[0] == 200
    assert ask("DELETE", "?key=ram/a") == (404, "metadata not found")


def test_status_shows_a_master(start):
    master = start()
    result = run("status", "--master", master.admin)
    assert result.returncode == 0, result.stderr
    assert master.address in result.stdout and "no clients" in result.stdout
    assert json.loads(run("status", "--master", master.admin, "--json").stdout)["address"] == master.address
    unreachable = run("status", "--master", "127.0.0.1:1")
    assert unreachable.returncode == 1 and "127.0.0.1:1" in unreachable.stderr
    assert run("status", "--watch").returncode == 2


def test_watching_goes_on_until_the_master_ends(start):
    master = start()
    watch = subprocess.Popen([PROGRAM, "status", "--master", master.admin, "--watch"], stdout=subprocess.PIPE, text=True, env=environment())
    try:
        seen = 0
        while seen < 2:
            line = watch.stdout.readline()
            assert line
            seen += line.startswith("master ")
        master.end()
        watch.communicate(timeout=HARD_STOP)
        assert watch.returncode == 1
    finally:
        watch.kill()
        watch.wait(HARD_STOP)


def test_pipes_that_nobody_reads_hold_up_nothing(start):
    """Both outputs are full pipes before it starts: it serves and ends all the same."""
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    try:
        while True:
            os.write(write_end, b"x" * 4096)
    except BlockingIOError:
        pass
    os.set_blocking(write_end, True)
    probe = socket.create_server(("127.0.0.1", 0))
    port = probe.getsockname()[1]
    probe.close()
    process = subprocess.Popen(
        [PROGRAM, "master", *FREE_PORTS, f"--rpc_port={port}", "--set", "log.level=debug"],
        stdout=write_end,
        stderr=write_end,
        env=environment(),
    )
    try:
        wait_until(lambda: _answers(port), "the master listens")
        for _ in range(200):  # each is worth a line in its log: no hello comes
            with socket.create_connection(("127.0.0.1", port), timeout=HARD_STOP) as stranger:
                stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
        process.terminate()
        assert process.wait(HARD_STOP) == 0
    finally:
        process.kill()
        process.wait(HARD_STOP)
        os.close(read_end)
        os.close(write_end)


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=HARD_STOP).close()
        return True
    except ConnectionRefusedError:
        return False
