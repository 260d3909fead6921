# SPDX-License-Identifier: Apache-2.0
"""Programs in C and Rust, built against the C interface alone, move data and notify between two processes.

Each program can be the peer of each: Mooncake's C names (with the calls and arguments of TensorRT-LLM) from C and from
Rust, and ``tidewire.h``.
"""

from __future__ import annotations

import pathlib
import subprocess

import pytest
from tidewire_testing import HARD_STOP

CONFORMANCE = pathlib.Path(__file__).resolve().parents[1]
ROOT = CONFORMANCE.parents[1]
LIBRARY = ROOT / "build" / "lib"

C = ["cc", "-std=c11", "-D_POSIX_C_SOURCE=200809L", "-O1", "-Wall", "-Wextra", "-Werror", "-pedantic"]
RUST = ["rustc", "--edition", "2021", "-O", "-D", "warnings", "-C", f"link-arg=-Wl,-rpath,{LIBRARY}"]

PROGRAMS = {
    "mooncake-c": [*C, "-I", ROOT / "include", CONFORMANCE / "c" / "transfer_with_notify.c"],
    "mooncake-rust": [*RUST, CONFORMANCE / "rust" / "transfer_with_notify.rs"],
    "tidewire-c": [*C, "-I", ROOT / "include", CONFORMANCE / "c" / "tidewire_transfer.c"],
}


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """Gives the program of that name, compiled at its first use."""
    folder = tmp_path_factory.mktemp("programs")
    made: dict[str, pathlib.Path] = {}

    def build(name):
        if name not in made:
            binary = folder / name
            links = [] if name == "mooncake-rust" else ["-ltidewire", f"-Wl,-rpath,{LIBRARY}"]
            command = [*PROGRAMS[name], "-o", binary, "-L", LIBRARY, *links]
            result = subprocess.run(command, capture_output=True, text=True, timeout=HARD_STOP)
            assert result.returncode == 0, result.stderr
            made[name] = binary
        return made[name]

    return build


@pytest.mark.parametrize("same_host", ["true", "false"])
@pytest.mark.parametrize("target_name", PROGRAMS)
@pytest.mark.parametrize("initiator_name", PROGRAMS)
def test_two_processes_transfer_and_notify(program, monkeypatch, initiator_name, target_name, same_host):
    monkeypatch.setenv("TIDEWIRE_SAME_HOST", same_host)
    target = subprocess.Popen([program(target_name), "target"], stdout=subprocess.PIPE, text=True)
    try:
        address, buffer = target.stdout.readline().split()
        initiator = [program(initiator_name), "initiator", address, buffer]
        result = subprocess.run(initiator, capture_output=True, text=True, timeout=HARD_STOP)
        assert result.returncode == 0, result.stderr
        assert target.stdout.readline() == "received\n"
        assert target.wait(timeout=HARD_STOP) == 0
    finally:
        target.kill()
        target.wait()
        target.stdout.close()
