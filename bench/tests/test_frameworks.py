# SPDX-License-Identifier: Apache-2.0
"""What end-to-end runs of frameworks print and what is made of it. The runs themselves are not tests."""
import pathlib
import subprocess
import sys
import urllib.request

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "scripts" / "e2e")]

import checks  # noqa: E402
import processes  # noqa: E402
import vllm_statistic  # noqa: E402
from figlib import frameworks, programs  # noqa: E402

# Two lines as vLLM 0.32 writes them.
LOG = """\
(APIServer pid=7) INFO 12-01 00:01:02 [metrics.py:103] KV Transfer metrics: Num successful transfers=3, \
Avg xfer time (ms)=20.0, P90 xfer time (ms)=30.0, Avg MB per transfer=10.0, Throughput (MB/s)=500.0, Avg number of descriptors=80.0, \
Num failed transfers=0, Num failed recvs=0, Num KV expired reqs=0
INFO:     127.0.0.1:4242 - "POST /v1/completions HTTP/1.1" 200 OK
(APIServer pid=7) INFO 12-01 00:01:03 [metrics.py:103] KV Transfer metrics: Num successful transfers=1, \
Avg xfer time (ms)=40.0, P90 xfer time (ms)=40.0, Avg MB per transfer=50.0, Throughput (MB/s)=1250.0, Avg number of descriptors=16.0, \
Num failed transfers=1, Num failed recvs=2, Num KV expired reqs=0
"""


def test_the_statistic_of_a_run_is_the_sum_of_its_lines():
    every = vllm_statistic.read_transfers(LOG)
    assert (every.count, every.failed, every.descriptors) == (4, 3, 256.0)
    assert every.throughput == pytest.approx(80 / 0.1)


def test_what_came_before_is_left_out():
    first = vllm_statistic.read_transfers(LOG[: LOG.index("INFO:     ")])
    assert vllm_statistic.read_transfers(LOG).since(first).throughput == pytest.approx(1250)


def test_a_log_without_transfers_has_no_throughput():
    assert vllm_statistic.read_transfers("nothing").throughput == 0


def _figures(**changes):
    throughput = {"mooncake": [400.0], "tidewire": [1000.0]}
    return {"tokens": {"tiny": 50}, "throughput": throughput, "broken": [], **changes}


def test_the_ratio_is_ours_to_theirs():
    result = frameworks.from_vllm(_figures())
    assert result["frameworks.vllm_throughput"] == 2.5
    assert result["frameworks.vllm_tokens"] == 50


def test_a_broken_check_spoils_the_figures():
    with pytest.raises(programs.Failed, match="the decode instance computed no prompt"):
        frameworks.from_vllm(_figures(broken=["the decode instance computed no prompt"]))


def _sglang(**changes):
    counts = {"requests": 500, "restarts": 3, "delivered": 488, "in_flight": 12, "lost": 0, "wrong_bytes": 0}
    return {**counts, "broken": [], **changes}


def test_requests_in_flight_at_a_restart_may_be_lost_and_no_others():
    assert frameworks.from_sglang(_sglang())["frameworks.sglang_requests"] == 0
    assert frameworks.from_sglang(_sglang(delivered=486, lost=2))["frameworks.sglang_requests"] == 2
    assert frameworks.from_sglang(_sglang(wrong_bytes=5))["frameworks.sglang_requests"] == 5


@pytest.mark.parametrize(
    "changes", [{"broken": ["processes run"]}, {"restarts": 2}, {"delivered": 487}, {"delivered": 480, "in_flight": 20}]
)
def test_a_run_of_sglang_that_does_not_add_up_gives_no_figure(changes):
    with pytest.raises(programs.Failed, match="sglang.sh"):
        frameworks.from_sglang(_sglang(**changes))


def test_a_figure_that_is_short_is_failed_but_not_broken(capsys):
    run = checks.Checks()
    run.check("fast enough", False, "1.5 x", figure=True)
    run.check("no transfer failed", True)
    assert run.summary() == 1
    assert run.broken == []
    assert "FAILED fast enough: 1.5 x" in capsys.readouterr().out


def test_a_server_that_ends_early_is_reported_with_its_last_words(tmp_path):
    command = [sys.executable, "-c", "print('no such model'); raise SystemExit(3)"]
    with processes.Server("server", command, tmp_path / "log") as server:
        with pytest.raises(processes.ServerError, match="(?s)status 3.*no such model"):
            server.wait_ready(f"http://127.0.0.1:{processes.free_port()}/", seconds=60)


def test_nothing_of_a_server_is_left_even_where_it_ignores_the_request_to_end(tmp_path, monkeypatch):
    monkeypatch.setattr(processes.Server, "END_SECONDS", 0.2)
    port = processes.free_port()
    # A server in a child of the program that was started, both deaf to SIGTERM.
    program = (
        "import os, signal\n"
        "from http.server import HTTPServer, SimpleHTTPRequestHandler\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "if os.fork(): os.wait()\n"
        f"else: HTTPServer(('127.0.0.1', {port}), SimpleHTTPRequestHandler).serve_forever()\n"
    )
    with processes.Server("server", [sys.executable, "-c", program], tmp_path / "log") as server:
        server.wait_ready(f"http://127.0.0.1:{port}/", seconds=60)
        session = str(server._process.pid)
    with pytest.raises(OSError):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5)
    left = subprocess.run(["ps", "-s", session, "-o", "stat="], stdout=subprocess.PIPE, text=True, check=False)
    assert [state for state in left.stdout.split() if not state.startswith("Z")] == []


def test_the_lists_program_reports_less_above_the_c_call_than_in_all():
    figures = frameworks.list_conversion(0)
    detail = figures["_detail"]
    assert 0 < detail["above_s"] <= detail["worst_s"]
    assert detail["c_call_s"] > 0
    assert figures["frameworks.list_conversion"] == pytest.approx(1e3 * detail["above_s"])
