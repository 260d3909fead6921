# SPDX-License-Identifier: Apache-2.0
"""A C program, compiled against the C header alone, moves data and notifies between two processes."""
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    binary = tmp_path_factory.mktemp("c") / "transfer_with_notify"
    library = ROOT / "build" / "lib"
    subprocess.run(
        ["cc", "-std=c11", "-D_POSIX_C_SOURCE=200809L", "-Wall", "-Werror", "-pedantic", "-I", ROOT / "include",
         ROOT / "tests/conformance/c/transfer_with_notify.c", "-o", binary, "-L", library, "-ltidewire", f"-Wl,-rpath,{library}"],
        check=True, timeout=60)
    return binary


def test_two_c_processes_transfer_and_notify(program):
    target = subprocess.Popen([program, "target"], stdout=subprocess.PIPE, text=True)
    try:
        address, buffer = target.stdout.readline().split()
        subprocess.run([program, "initiator", address, buffer], check=True, timeout=60)
        assert target.stdout.readline() == "received\n"
        assert target.wait(timeout=60) == 0
    finally:
        target.kill()
        target.wait()
