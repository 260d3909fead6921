# SPDX-License-Identifier: Apache-2.0
"""The program tidewire as a user runs it: built, started, asked, ended."""

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
PROGRAM = ROOT / "build" / "bin" / "tidewire"
TIMEOUT = 60

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason="scripts/build.sh has not run")


def environment(**extra):
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("TIDEWIRE_", "MC_"))}
    return {**plain, **extra}


def run(*arguments, **extra):
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=TIMEOUT, env=environment(**extra))


class Server:
    """`tidewire serve`, ended at the end of the block."""

    def __init__(self, *arguments, **extra):
        self.process = subprocess.Popen([PROGRAM, "serve", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                        env=environment(**extra))
        line = self.process.stdout.readline()
        assert line, self.process.communicate(timeout=TIMEOUT)
        self.ready = json.loads(line)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate(timeout=TIMEOUT)

    def end(self, number):
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=TIMEOUT)
        return self.process.returncode, out, err


def test_help_and_version_name_the_program():
    assert "serve" in run("--help").stdout
    assert run("--version").stdout.strip()[0].isdigit()


@pytest.mark.parametrize("arguments", [[], ["nonsense"], ["status", "x"], ["serve", "--nonsense"], ["doctor", "--markdown"]])
def test_wrong_arguments_are_refused(arguments):
    result = run(*arguments)
    assert result.returncode not in (0, -11)
    assert result.stderr


def test_topology_lists_the_loopback_interface():
    machine = json.loads(run("topology", "--json").stdout)
    loopback = [nic for nic in machine["nics"] if nic["name"] == "lo"]
    assert loopback and loopback[0]["kind"] == "loopback"
    assert "Network interfaces" in run("topology").stdout


def test_doctor_says_what_to_do():
    result = run("doctor", "--json")
    findings = json.loads(result.stdout)["findings"]
    assert {"settings", "tcp", "same host", "fabric", "verbs", "cuda", "neuron"} == {finding["area"] for finding in findings}
    assert all(finding["remedy"] for finding in findings if finding["severity"] in ("warning", "problem"))
    problems = [finding for finding in findings if finding["severity"] == "problem"]
    assert result.returncode == (1 if problems else 0), problems


def test_doctor_names_a_bad_setting_and_a_misspelled_one():
    result = run("doctor", "--json", TIDEWIRE_CONNECT_TIMEOUT="soon", TIDEWIRE_CONECT_TIMEOUT="1")
    assert result.returncode == 1
    texts = {finding["id"]: finding["text"] for finding in json.loads(result.stdout)["findings"]}
    assert "connect.timeout" in texts["settings"] and "'soon'" in texts["settings"]
    assert "TIDEWIRE_CONECT_TIMEOUT" in texts["unknown_variables"]


def test_settings_show_value_and_origin():
    rows = {row["name"]: row for row in json.loads(run("doctor", "--settings", "--json", MC_TRANSFER_TIMEOUT="40").stdout)}
    assert rows["transfer.timeout"]["value"] == "40"
    assert rows["transfer.timeout"]["origin"] == "environment MC_TRANSFER_TIMEOUT"
    assert rows["connect.timeout"]["origin"] == "default"
    assert "transfer.timeout" in run("doctor", "--settings").stdout


def test_the_secret_is_never_shown(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("correct horse battery staple")
    secret.chmod(0o600)
    for arguments in (["doctor"], ["doctor", "--settings"], ["doctor", "--settings", "--json"]):
        result = run(*arguments, TIDEWIRE_SECRET_FILE=str(secret))
        assert "battery" not in result.stdout + result.stderr


def test_the_settings_page_is_up_to_date():
    page = (ROOT / "docs" / "settings.md").read_text()
    assert run("doctor", "--settings", "--markdown", TIDEWIRE_CONNECT_TIMEOUT="7").stdout == page, \
        "run: build/bin/tidewire doctor --settings --markdown > docs/settings.md"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_serve_waits_and_ends_with_zero(number):
    with Server("--buffer", "1M") as server:
        host, port = server.ready["address"].rsplit(":", 1)
        assert host == "127.0.0.1" and server.ready["length"] == 1 << 20 and server.ready["buffer"] % 4096 == 0
        assert server.ready["pid"] == server.process.pid
        socket.create_connection((host, int(port)), timeout=TIMEOUT).close()
        code, out, err = server.end(number)
        assert code == 0, (out, err)


def test_serve_takes_the_port_that_is_named():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with Server("--listen", f"127.0.0.1:{port}", "--buffer", "0") as server:
        assert server.ready["address"] == f"127.0.0.1:{port}"
        assert server.ready["buffer"] == 0


@pytest.mark.parametrize("arguments, part", [
    (["--listen", "host:99999"], "host:99999"),
    (["--protocol", "carrier-pigeon"], "carrier-pigeon"),
    (["--devices", "nosuch0"], "nosuch0"),
    (["--set", "connect.timeout=soon"], "connect.timeout"),
    (["--buffer", "1Q"], "1Q"),
])
def test_serve_refuses_bad_values_by_name(arguments, part):
    result = run("serve", *arguments)
    assert result.returncode not in (0, -11), result.stdout
    assert part in result.stderr


def test_serve_refuses_a_taken_port():
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        result = run("serve", "--listen", f"127.0.0.1:{port}")
    assert result.returncode not in (0, -11)
    assert str(port) in result.stderr


def test_status_shows_the_engine_of_a_process():
    with Server("--buffer", "1M") as server:
        pid = str(server.process.pid)
        text = run("status", pid)
        assert text.returncode == 0, text.stderr
        assert server.ready["address"] in text.stdout and "Rails" in text.stdout
        engines = json.loads(run("status", pid, "--json").stdout)["engines"]
        assert len(engines) == 1 and engines[0]["address"] == server.ready["address"]
        assert pid in run("status").stdout


def test_status_of_a_process_without_engine_says_so():
    # A process of its own: in this one other tests have had engines.
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        result = run("status", str(process.pid))
        process.stdin.close()
    assert result.returncode == 1
    assert str(process.pid) in result.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
def test_status_is_for_the_same_user_only():
    with Server("--buffer", "0") as server:
        try:
            result = subprocess.run([PROGRAM, "status", str(server.process.pid)], capture_output=True, text=True,
                                    timeout=TIMEOUT, env=environment(), user=65534)
        except PermissionError:
            pytest.skip("another user may not run the program where it lies")
        assert result.returncode != 0
        assert server.ready["address"] not in result.stdout


def test_metrics_are_served_where_asked():
    with Server("--buffer", "0", TIDEWIRE_METRICS="127.0.0.1:0") as server:
        engines = json.loads(run("status", str(server.process.pid), "--json").stdout)["engines"]
        host, port = engines[0]["metrics_address"].rsplit(":", 1)
        with socket.create_connection((host, int(port)), timeout=TIMEOUT) as connection:
            connection.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
            answer = b""
            while chunk := connection.recv(65536):
                answer += chunk
    assert answer.startswith(b"HTTP/1.1 200") and b"# TYPE tidewire_" in answer


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
