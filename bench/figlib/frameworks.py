# SPDX-License-Identifier: Apache-2.0
"""Measurements with real frameworks, and of what the Python modules add to the C calls under them."""
import json
import subprocess
import sys
import tempfile

from .programs import BUILD, ROOT, Failed, run

# Installing vLLM, six starts of it, fifty prompts twice, three times 25 prompts.
VLLM_SECONDS = 3600
# Installing SGLang, five starts of its classes, 500 requests.
SGLANG_SECONDS = 1800


def _end_to_end(name, seconds, *arguments):
    """What a script of scripts/e2e writes with --json."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        command = [str(ROOT / "scripts/e2e" / name), *arguments, "--json", file.name]
        try:
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=seconds,
                                  check=False)
        except subprocess.TimeoutExpired as error:
            raise Failed(f"{name}: not done after {seconds} s") from error
        text = file.read()
    if not text:
        raise Failed(f"{name}: exit status {done.returncode}: {' | '.join(done.stdout.strip().splitlines()[-3:])}")
    return json.loads(text)


def vllm(_run):
    """scripts/e2e/vllm.sh: tokens of a split pair against a single instance, and vLLM's own statistic in turns."""
    return from_vllm(_end_to_end("vllm.sh", VLLM_SECONDS, "--models", "tiny", "--turns", "1"))


def sglang(_run):
    """scripts/e2e/sglang.sh: requests between SGLang's own classes while the decode instance restarts."""
    return from_sglang(_end_to_end("sglang.sh", SGLANG_SECONDS, "--only-restarts"))


def from_sglang(figures):
    """The figure out of what sglang.sh writes. A run with fewer requests or restarts than its goal speaks of gives none."""
    if figures["broken"]:
        raise Failed(f"sglang.sh: {'; '.join(figures['broken'])}")
    if (figures["requests"], figures["restarts"]) != (500, 3):
        raise Failed(f"sglang.sh: {figures['requests']} requests and {figures['restarts']} restarts; 500 and 3 are wanted")
    if figures["delivered"] + figures["in_flight"] + figures["lost"] != figures["requests"] or figures["in_flight"] > 12:
        raise Failed(f"sglang.sh: the requests do not add up: {figures}")
    return {"frameworks.sglang_requests": figures["wrong_bytes"] + figures["lost"], "_detail": figures}


def from_vllm(figures):
    """The figures out of what vllm.sh writes. A check that failed, other than of a figure itself, spoils all of them."""
    if figures["broken"]:
        raise Failed(f"vllm.sh: {'; '.join(figures['broken'])}")
    theirs = figures["throughput"]["mooncake"][0]
    ours = figures["throughput"]["tidewire"][0]
    return {
        "frameworks.vllm_tokens": figures["tokens"]["tiny"],
        "frameworks.vllm_throughput": ours / theirs,
        "_detail": figures,
    }


def list_conversion(_run):
    """Python's part of one call with 50,000 entries."""
    environment = [f"PYTHONPATH={ROOT / 'python'}", f"TIDEWIRE_LIBRARY={BUILD / 'lib' / 'libtidewire.so'}"]
    output = run([sys.executable, ROOT / "bench" / "list_conversion.py"], ["env", *environment])
    figures = json.loads(output.strip().splitlines()[-1])
    return {"frameworks.list_conversion": figures["above_s"] * 1e3, "_detail": figures}
