# SPDX-License-Identifier: Apache-2.0
"""The driver of the figures: goals, verdicts, and what happens without a reference."""
import json
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import figures  # noqa: E402
from figlib import goals, netns, programs, turns  # noqa: E402


def test_every_goal_is_measured_and_every_measurement_has_a_goal():
    for group, measurements in figures.MEASUREMENTS.items():
        measured = [key for _, _, ids in measurements for key in ids]
        assert sorted(measured) == sorted(figure.id for figure in goals.load(group))


def test_goals_read_alike_with_and_without_the_toml_module():
    text = goals.GOALS.read_text(encoding="utf-8")
    assert [goals.Figure(**table) for table in goals._parse(text)] == goals.load()


def test_an_unknown_group_names_those_that_exist():
    with pytest.raises(ValueError, match="there are: .*engine"):
        goals.load("nonsense")


@pytest.mark.parametrize(("direction", "value", "reached"), [("at least", 0.9, True), ("at least", 0.89, False),
                                                             ("at most", 0.9, True), ("at most", 0.91, False)])
def test_a_goal_is_met_at_its_own_value(direction, value, reached):
    assert goals.Figure("x", "what", 0.9, direction, "engine").reached(value) is reached


def _run(monkeypatch, tmp_path, measure):
    monkeypatch.setitem(figures.MEASUREMENTS, "engine", [("tcp", measure, ["tcp.walk_1mb", "tcp.walk_16mb"])])
    monkeypatch.setattr(figures.quiet, "wait", lambda patience: 1.0)
    monkeypatch.setattr(sys, "argv", ["figures.py", "engine", "--runs", "3", "--json", str(tmp_path / "out.json")])
    status = figures.main()
    return status, {figure["id"]: figure for figure in json.loads((tmp_path / "out.json").read_text())["figures"]}


def test_the_median_over_the_runs_decides(monkeypatch, tmp_path):
    values = [0.99, 0.5, 0.96]
    status, result = _run(monkeypatch, tmp_path, lambda run: {"tcp.walk_1mb": values[run], "tcp.walk_16mb": values[run]})
    assert status == 0
    assert result["tcp.walk_16mb"]["median"] == 0.96
    assert result["tcp.walk_16mb"]["spread"] == [0.5, 0.99]
    assert result["tcp.walk_16mb"]["verdict"] == "reached"


def test_a_missing_reference_is_said_and_counts_as_short(monkeypatch, tmp_path, capsys):
    def missing(_run):
        raise programs.Missing("iperf3 is not installed")

    status, result = _run(monkeypatch, tmp_path, missing)
    assert status == 1
    assert result["tcp.walk_1mb"]["verdict"] == "short"
    assert "iperf3 is not installed" in capsys.readouterr().out


def test_one_failed_run_makes_a_figure_short(monkeypatch, tmp_path):
    def second_fails(run):
        if run == 1:
            raise programs.Failed("a transfer failed")
        return {"tcp.walk_1mb": 2.0, "tcp.walk_16mb": 2.0}

    status, result = _run(monkeypatch, tmp_path, second_fails)
    assert status == 1
    assert result["tcp.walk_1mb"]["verdict"] == "short"


def test_ten_thousand_names_are_different_and_well_formed():
    names = netns.ManyAddresses.names(10_000, 7000)
    assert len(set(names)) == 10_000
    assert all(all(0 <= int(part) <= 255 for part in name.split(":")[0].split(".")) for name in names)


def _references(values):
    given = iter(values)
    return lambda: next(given)


def test_a_round_in_which_the_machine_changed_does_not_count():
    # Before and after each of ours: 10, 10 | 10, 20 | 20, 20 | …
    reference = _references([10, 10, 20, 20, 20, 20, 20])
    ours = _references([9, 5, 18, 18, 18, 18])
    assert turns.against(reference, ours) == {"ratio": 0.9, "reference": 20, "ours": 18, "rounds": 5}


def test_a_machine_that_always_changes_gives_no_figure():
    with pytest.raises(programs.Failed, match="changed by more than 7%"):
        turns.against(_references([10, 20] * turns.TRIES), lambda: 10)
