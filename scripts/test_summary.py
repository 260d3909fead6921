#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Adds up test reports: `test_summary.py FOLDER... [--failed-stage=NAME...]`.

Each folder holds JUnit files: ctest-*.xml (one case a program), NAME.xml of a GoogleTest program NAME, pytest.xml. A program
counts with its own cases; one without a report of its own (it is no GoogleTest, or it crashed) counts as one case, and one
that failed although its report shows no failure (a crash at exit, a sanitizer's finding) adds one failure. The last line is
"N passed, N failed, N skipped"; the exit code is 1 when something failed or nothing ran.
"""

import pathlib
import sys
import xml.etree.ElementTree as ElementTree


def cases_of(path):
    """(passed, failed, skipped, names of failed cases) of one JUnit file; None when it can't be read."""
    try:
        root = ElementTree.parse(path).getroot()
    except (ElementTree.ParseError, OSError):
        return None
    passed = failed = skipped = 0
    names = []
    for case in root.iter("testcase"):
        status = case.get("status", "")
        if case.find("failure") is not None or case.find("error") is not None or status == "fail":
            failed += 1
            names.append(f"{case.get('classname', '')}.{case.get('name', '')}".strip("."))
        elif case.find("skipped") is not None or status in ("notrun", "disabled") or case.get("result") == "suppressed":
            skipped += 1
        else:
            passed += 1
    return passed, failed, skipped, names


def add_folder(folder, totals, failures):
    programs = {}  # name -> failed, from ctest
    for path in sorted(folder.glob("ctest-*.xml")):
        try:
            root = ElementTree.parse(path).getroot()
        except ElementTree.ParseError:
            totals[1] += 1
            failures.append(f"{path.name}: unreadable report")
            continue
        for case in root.iter("testcase"):
            programs[case.get("name")] = case.get("status") == "fail" or case.find("failure") is not None
    reports = {path.stem: path for path in sorted(folder.glob("*.xml")) if not path.name.startswith("ctest-")}
    for name in sorted(programs.keys() | reports.keys()):
        counts = cases_of(reports[name]) if name in reports else None
        program_failed = programs.get(name, False)
        label = f"{folder.parent.name}/{name}"
        if counts is None:
            totals[1 if program_failed or name in reports else 0] += 1
            if program_failed or name in reports:
                failures.append(f"{label} (no readable report: it crashed, was stopped, or is a plain program)")
            continue
        for index in range(3):
            totals[index] += counts[index]
        failures += [f"{label}: {case}" for case in counts[3]]
        if program_failed and counts[1] == 0:
            totals[1] += 1
            failures.append(f"{label}: exited with failure although no case failed")


def main(arguments):
    stages = [argument.split("=", 1)[1] for argument in arguments if argument.startswith("--failed-stage=")]
    totals = [0, 0, 0]
    failures = []
    for folder in (pathlib.Path(argument) for argument in arguments if not argument.startswith("--")):
        add_folder(folder, totals, failures)
    if stages and not failures:
        totals[1] += len(stages)
        failures += [f"stage {stage}" for stage in stages]
    if failures:
        print("=== failures")
        print("\n".join(failures))
    if not any(totals):
        print("no test ran")
    print(f"{totals[0]} passed, {totals[1]} failed, {totals[2]} skipped")
    return 1 if totals[1] or stages or not totals[0] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
