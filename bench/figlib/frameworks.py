# SPDX-License-Identifier: Apache-2.0
"""Measurements with real frameworks, and of what the Python modules add to the C calls under them."""
import json
import subprocess
import sys
import tempfile

from .programs import BUILD, ROOT, Failed, run

# Installing vLLM, six starts of it, fifty prompts twice, three times 25 prompts.
VLLM_SECONDS = 3600


def vllm(_run):
    """scripts/e2e/vllm.sh: tokens of a split pair against a single instance, and vLLM's own statistic in turns."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        command = [str(ROOT / "scripts/e2e/vllm.sh"), "--models", "tiny", "--turns", "1", "--json", file.name]
        try:
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=VLLM_SECONDS,
                                  check=False)
        except subprocess.TimeoutExpired as error:
            raise Failed(f"vllm.sh: not done after {VLLM_SECONDS} s") from error
        text = file.read()
    if not text:
        raise Failed(f"vllm.sh: exit status {done.returncode}: {' | '.join(done.stdout.strip().splitlines()[-3:])}")
    return from_vllm(json.loads(text))


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
