# SPDX-License-Identifier: Apache-2.0
"""scripts/test_summary.py: what counts as passed, failed and skipped."""

import pathlib
import subprocess
import sys

SCRIPT = pathlib.Path(__file__).resolve().parents[3] / "scripts" / "test_summary.py"

CTEST = """<testsuite name="all">
<testcase name="good_test" status="run"/><testcase name="bad_test" status="fail"><failure/></testcase>
<testcase name="plain" status="run"/><testcase name="crashed_test" status="fail"><failure/></testcase>
<testcase name="leaky_test" status="fail"><failure/></testcase></testsuite>"""
GTEST = """<testsuites><testsuite name="S"><testcase name="a" status="run" result="completed" classname="S"/>{}
<testcase name="off" status="notrun" result="suppressed" classname="S"/></testsuite></testsuites>"""
FAILED = '<testcase name="b" status="run" result="completed" classname="S"><failure message="x"/></testcase>'
PYTEST = """<testsuites><testsuite><testcase classname="t" name="x"/><testcase classname="t" name="y"><skipped/></testcase>
</testsuite></testsuites>"""


def run(folder, *arguments):
    result = subprocess.run([sys.executable, SCRIPT, folder, *arguments], capture_output=True, text=True, timeout=60)
    return result.returncode, result.stdout.strip().splitlines()


def reports(tmp_path, **files):
    folder = tmp_path / "build" / "test-results"
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / (name.replace("__", "-") + ".xml")).write_text(text)
    return folder


def test_programs_count_with_their_own_cases_and_crashes_as_failures(tmp_path):
    folder = reports(tmp_path, ctest__unit=CTEST, good_test=GTEST.format(""), bad_test=GTEST.format(FAILED),
                     leaky_test=GTEST.format(""), pytest=PYTEST)
    code, lines = run(folder)
    # good 1, bad 1 + 1 failed, plain 1, crashed 1 failed, leaky 1 + 1 failed, pytest 1; skipped 3 × off and 1 of pytest
    assert lines[-1] == "5 passed, 3 failed, 4 skipped"
    assert code == 1
    assert "build/bad_test: S.b" in lines
    assert any(line.startswith("build/crashed_test") for line in lines)
    assert any(line.startswith("build/leaky_test") for line in lines)


def test_all_good_is_zero(tmp_path):
    code, lines = run(reports(tmp_path, good_test=GTEST.format(""), pytest=PYTEST))
    assert (code, lines[-1]) == (0, "2 passed, 0 failed, 2 skipped")


def test_a_failed_stage_without_a_failed_case_still_fails(tmp_path):
    code, lines = run(reports(tmp_path, pytest=PYTEST), "--failed-stage=build_release")
    assert (code, lines[-1]) == (1, "1 passed, 1 failed, 1 skipped")


def test_a_truncated_report_is_a_failure(tmp_path):
    code, lines = run(reports(tmp_path, good_test="<testsuites><testsui", pytest=PYTEST))
    assert (code, lines[-1]) == (1, "1 passed, 1 failed, 1 skipped")


def test_nothing_run_is_no_success(tmp_path):
    code, lines = run(reports(tmp_path))
    assert (code, lines[-1]) == (1, "0 passed, 0 failed, 0 skipped")
