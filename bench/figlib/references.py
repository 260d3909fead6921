# SPDX-License-Identifier: Apache-2.0
"""References that are not programs of ours: iperf3 and the Mooncake wheel."""
import json
import os
import shutil
import socket
import subprocess
import sys
import time

from .programs import BUILD, ROOT, Failed, Missing, run

WHEEL = "mooncake-transfer-engine-non-cuda"
ENVIRONMENT = BUILD / "bench-venv"
# Its own settings for many transfers at once; without the first two it refuses 50,000 pieces. Which number of connections is best
# depends on the machine, so several are tried and the best counts.
WHEEL_SETTINGS = {"MC_TCP_MAX_QUEUED_TRANSFERS_PER_PEER": "65535", "MC_TCP_MAX_PENDING_ADMISSIONS_PER_PEER": "65535"}
WHEEL_LANES = ("", "8")


def _iperf3_run(port, streams, seconds, prefix):
    for _ in range(30):
        try:
            text = run(["iperf3", "-c", "127.0.0.1", "-p", port, "-l", "1M", "-P", streams, "-t", seconds, "-O", "0.5", "-J"], prefix)
            return json.loads(text)["end"]["sum_received"]["bits_per_second"] / 8
        except (Failed, KeyError) as error:  # the server is not there yet, or not free again
            last = error
            time.sleep(0.2)
    raise Failed(f"iperf3 gave no result: {last}")


def iperf3(seconds=2, streams=(1, 2, 4, 8), prefix=()):
    """Bytes a second over loopback, the best of several numbers of streams with blocks of 1 MiB."""
    if not shutil.which("iperf3"):
        raise Missing("iperf3 is not installed (apt install iperf3)")
    with socket.socket() as free:  # a port of our own: other iperf3 servers may run here
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    server = subprocess.Popen([*prefix, "iperf3", "-s", "-p", port], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        best = 0.0
        for count in streams:
            best = max(best, _iperf3_run(port, count, seconds, prefix))
        return best
    finally:
        server.terminate()
        server.wait()


def interpreter():
    """The interpreter of an environment that has the wheel; made once."""
    python = ENVIRONMENT / "bin" / "python"
    if not python.exists():
        run([sys.executable, "-m", "venv", ENVIRONMENT])
    probe = [str(python), "-c", "import mooncake.engine"]
    if subprocess.run(probe, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0:
        return python
    try:
        run([python, "-m", "pip", "install", "-q", WHEEL])
    except Failed as error:
        raise Missing(f"{WHEEL} can't be installed: {error}") from error
    done = subprocess.run(probe, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, check=False)
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1]
        raise Missing(f"{WHEEL} can't be loaded: {last} (apt install libibverbs1 librdmacm1 libnuma1 libcurl4)")
    return python


def wheel():
    """Figures of the wheel, each the best over its settings."""
    python = interpreter()
    best = {}
    for lanes in WHEEL_LANES:
        settings = dict(WHEEL_SETTINGS, **({"MC_TCP_LANES_PER_PEER": lanes} if lanes else {}))
        text = subprocess.run([str(python), str(ROOT / "bench" / "mooncake_reference.py")], env={**os.environ, **settings},
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=300, check=False)
        lines = [line for line in text.stdout.splitlines() if line.startswith("{")]
        if text.returncode or not lines:
            raise Failed(f"the wheel's run ended with {text.returncode}: {text.stderr.strip().splitlines()[-1:]}")
        for name, value in json.loads(lines[-1]).items():
            best[name] = max(best.get(name, 0), value)
    return best
