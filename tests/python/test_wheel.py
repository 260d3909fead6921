# SPDX-License-Identifier: Apache-2.0
"""The wheels: their tags, what they export and need, and that they work in an empty environment."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import venv
import zipfile

import pytest
from tidewire_testing import ROOT

pytestmark = pytest.mark.timeout(600)

# The C names of Mooncake's interface, beside tw_*.
MOONCAKE_NAMES = {
    "createTransferEngine",
    "discoverTopology",
    "getLocalIpAndPort",
    "installTransport",
    "uninstallTransport",
    "openSegment",
    "openSegmentNoCache",
    "closeSegment",
    "warmupEfaSegment",
    "removeLocalSegment",
    "destroyTransferEngine",
    "registerLocalMemory",
    "unregisterLocalMemory",
    "registerLocalMemoryBatch",
    "unregisterLocalMemoryBatch",
    "allocateBatchID",
    "submitTransfer",
    "submitTransferWithNotify",
    "getNotifsFromEngine",
    "freeNotifsMsgBuf",
    "genNotifyInEngine",
    "getTransferStatus",
    "freeBatchID",
    "syncSegmentCache",
    "getNicLoadStats",
    "enableGracefulShutdown",
    "showLinks",
}

TRANSFER = """
import sys
import tidewire
from mooncake.engine import TransferEngine
assert {site!r} in tidewire.__file__ and {site!r} in str(tidewire._native.library_path())
with tidewire.Engine() as a, tidewire.Engine() as b:
    mine, theirs = a.register(bytearray(b"bytes" * 1000)), b.allocate(5000)
    assert a.write(b.address, mine, theirs.address).wait().completed == 1
    assert bytes(theirs.view()[:10]) == b"bytesbytes"
engine = TransferEngine()
assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
print("moved")
"""


def run(*command, **options):
    result = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=500, **options)
    assert result.returncode == 0, f"{command}: {result.stdout}{result.stderr}"
    return result.stdout


def clean_environment():
    """Nothing that would lead the packages to the sources."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "TIDEWIRE_LIBRARY")}


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    """(tidewire, tidewire-mooncake): freshly built."""
    out = tmp_path_factory.mktemp("dist")
    run(ROOT / "scripts" / "wheel.sh", "--out", out, env=dict(os.environ, PYTHON=sys.executable))
    (engine,) = out.glob("tidewire-*.whl")
    (mooncake,) = out.glob("tidewire_mooncake-*.whl")
    return engine, mooncake


@pytest.fixture(scope="module")
def installed(wheels, tmp_path_factory):
    """The folder of an environment that holds nothing but the two wheels."""
    folder = tmp_path_factory.mktemp("venv")
    venv.create(folder, with_pip=True)
    run(folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--no-index", *wheels, env=clean_environment())
    return folder


@pytest.fixture(scope="module")
def unpacked(wheels, tmp_path_factory):
    folder = tmp_path_factory.mktemp("unpacked")
    with zipfile.ZipFile(wheels[0]) as archive:
        archive.extractall(folder)
    return folder


def test_tags_fit_every_python_and_glibc_2_34(wheels):
    engine, mooncake = wheels
    assert re.fullmatch(r"tidewire-[\d.]+-py3-none-manylinux_2_34_x86_64\.whl", engine.name)
    assert re.fullmatch(r"tidewire_mooncake-[\d.]+-py3-none-any\.whl", mooncake.name)
    with zipfile.ZipFile(engine) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/WHEEL")]
        assert "Tag: py3-none-manylinux_2_34_x86_64" in archive.read(name).decode().splitlines()


def test_auditwheel_agrees(wheels):
    own = ROOT / "build" / "wheel-tools" / "bin" / "python"
    python = sys.executable if importlib.util.find_spec("auditwheel") else own
    shown = " ".join(run(python, "-m", "auditwheel", "show", wheels[0]).split())
    assert '"manylinux_2_34_x86_64"' in shown


def test_only_the_c_names_are_exported(unpacked):
    lines = run("nm", "-D", "--defined-only", unpacked / "tidewire" / "libtidewire.so").splitlines()
    names = {line.split()[-1].split("@")[0] for line in lines}
    engine_names = {name for name in names if name.startswith("tw_")}
    assert engine_names == set(declared_in("tidewire.h")) | set(declared_in("store.h"))
    others = names - engine_names
    assert others == MOONCAKE_NAMES, f"unexpected {others - MOONCAKE_NAMES}, missing {MOONCAKE_NAMES - others}"


def declared_in(header):
    """Number of arguments of each function of a header, by name."""
    text = re.sub(r"/\*.*?\*/", "", (ROOT / "include" / "tidewire" / header).read_text(), flags=re.S)
    found = re.findall(r"TW_API\s[\w\s*]*?\b(tw_\w+)\(([^)]*)\)", text)
    return {name: 0 if arguments.strip() in ("", "void") else arguments.count(",") + 1 for name, arguments in found}


def test_the_prototypes_are_those_of_the_headers():
    from tidewire._native import PROTOTYPES
    from tidewire._store_native import PROTOTYPES as STORE_PROTOTYPES

    assert declared_in("tidewire.h") == {name: len(arguments) for name, arguments in PROTOTYPES.items()}
    # A master is a program; Python does not embed one.
    of_clients = {name: count for name, count in declared_in("store.h").items() if not name.startswith("tw_master_")}
    assert of_clients == {name: len(arguments) for name, arguments in STORE_PROTOTYPES.items()}


def test_no_device_library_is_needed_or_bundled(unpacked):
    needed = set()
    for path in unpacked.rglob("*"):
        if path.is_file() and path.read_bytes()[:4] == b"\x7fELF":
            needed.update(re.findall(r"Shared library: \[(.+?)\]", run("readelf", "-d", path)))
    names = needed | {path.name for path in unpacked.rglob("*.so*")}
    for part in ["cuda", "cudart", "libfabric", "ibverbs", "rdma", "efa", "nrt", "etcd"]:
        assert not [name for name in names if part in name.lower()]


def test_an_empty_environment_transfers(installed, tmp_path):
    site = str(installed)
    out = run(installed / "bin" / "python", "-c", TRANSFER.format(site=site), cwd=tmp_path, env=clean_environment())
    assert out == "moved\n"


def test_the_command_is_the_program(installed, tmp_path):
    command = installed / "bin" / "tidewire"
    out = run(command, "topology", "--json", cwd=tmp_path, env=clean_environment())
    assert out.lstrip().startswith("{")
    failed = subprocess.run([command, "no-such-command"], capture_output=True, cwd=tmp_path, env=clean_environment())
    assert failed.returncode not in (0, 127)
    by_module = [installed / "bin" / "python", "-m", "tidewire", "--help"]
    assert "doctor" in run(*by_module, cwd=tmp_path, env=clean_environment())


@pytest.mark.parametrize("order", ["import torch, tidewire", "import tidewire, torch"])
def test_beside_torch(unpacked, order, tmp_path):
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed")
    source = (
        f"{order}\n"
        "a, b = tidewire.Engine(), tidewire.Engine()\n"
        "mine, theirs = torch.arange(1000, dtype=torch.bfloat16), torch.zeros(1000, dtype=torch.bfloat16)\n"
        "a.write(b.address, a.register(mine), b.register(theirs).address).wait()\n"
        "assert torch.equal(mine, theirs) and (torch.ones(50, 50) @ torch.ones(50, 50)).sum() == 125000\n"
        "import ssl, hashlib; ssl.create_default_context(); print('both')\n"
    )
    environment = dict(clean_environment(), PYTHONPATH=str(unpacked))
    assert run(sys.executable, "-c", source, cwd=tmp_path, env=environment) == "both\n"


def test_uninstalling_leaves_nothing(installed, wheels, tmp_path):
    pip = [installed / "bin" / "python", "-m", "pip"]
    run(*pip, "uninstall", "--quiet", "-y", "tidewire-mooncake", "tidewire", env=clean_environment())
    (site,) = (installed / "lib").glob("python*/site-packages")
    left = [path.name for path in site.iterdir() if "tidewire" in path.name or "mooncake" in path.name]
    assert left == []
    run(*pip, "install", "--quiet", "--no-index", *wheels, env=clean_environment())
