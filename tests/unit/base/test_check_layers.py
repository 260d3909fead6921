# SPDX-License-Identifier: Apache-2.0
"""scripts/check_layers.py: what it lets pass, what it stops, and what it says."""

import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "scripts" / "check_layers.py"


def run(root):
    return subprocess.run([sys.executable, SCRIPT, root], capture_output=True, text=True, timeout=60)


def tree(tmp_path, files):
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


@pytest.mark.parametrize("file, include", [
    ("engine/planner.cpp", "base/status.h"),
    ("engine/planner.cpp", "transport/transport.h"),
    ("transport/tcp/lane.cpp", "memory/region.h"),
    ("control/server.h", "metadata/directory.h"),
    ("cli/main.cpp", "topology/machine.h"),
    ("base/status.h", "tidewire/tidewire.h"),
    ("capi/capi.cpp", "tidewire/engine.hpp"),
])
def test_downward_and_sideways_includes_pass(tmp_path, file, include):
    result = run(tree(tmp_path, {file: f'#include "{include}"\n'}))
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("file, include, layer", [
    ("base/log.cpp", "memory/region.h", "memory"),
    ("transport/tcp/lane.cpp", "engine/batch.h", "engine"),
    ("engine/engine.h", "capi/handles.h", "capi"),
    ("capi/capi.cpp", "cli/main.h", "cli"),
    ("store/client/client.cpp", "transport/transport.h", "transport"),
    ("engine/engine.h", "store/master/master.h", "store"),
    ("transport/tcp/lane.cpp", "../../engine/batch.h", "engine"),
])
def test_upward_includes_are_named_with_file_line_and_what_is_allowed(tmp_path, file, include, layer):
    result = run(tree(tmp_path, {file: f'#pragma once\n\n  #  include "{include}"\n'}))
    assert result.returncode == 1
    assert f"{file}:3:" in result.stderr
    assert f'"{include}" of layer \'{layer}\'' in result.stderr
    assert "it may include: base" in result.stderr


def test_public_cpp_headers_are_for_the_outer_layers(tmp_path):
    result = run(tree(tmp_path, {"engine/engine.h": '#include "tidewire/engine.hpp"\n'}))
    assert result.returncode == 1
    assert "tidewire/tidewire.h" in result.stderr


def test_a_folder_without_a_layer_is_refused(tmp_path):
    result = run(tree(tmp_path, {"misc/x.h": "\n"}))
    assert result.returncode == 1
    assert "'misc'" in result.stderr


def test_all_breaches_are_listed(tmp_path):
    result = run(tree(tmp_path, {"base/a.h": '#include "engine/x.h"\n#include "cli/y.h"\n', "memory/b.h": '#include <capi/z.h>\n'}))
    assert result.returncode == 1
    assert len(result.stderr.strip().splitlines()) == 3


def test_system_and_library_includes_are_no_layers(tmp_path):
    result = run(tree(tmp_path, {"base/a.h": '#include <vector>\n#include <asio.hpp>\n#include "fmt/format.h"\n'}))
    assert result.returncode == 0


def test_a_missing_folder_is_an_error(tmp_path):
    assert run(tmp_path / "absent").returncode == 2


def test_the_project_itself_keeps_its_layers():
    result = run(ROOT / "src")
    assert result.returncode == 0, result.stderr
