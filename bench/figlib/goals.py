# SPDX-License-Identifier: Apache-2.0
"""The goals of bench/goals.toml."""
import pathlib
from dataclasses import dataclass

GOALS = pathlib.Path(__file__).resolve().parent.parent / "goals.toml"


@dataclass(frozen=True)
class Figure:
    """One figure to reach. `goal` is in `unit`; an empty unit is a ratio or a count."""

    id: str
    what: str
    goal: float
    direction: str
    group: str
    unit: str = ""

    def reached(self, value):
        """Whether a measured value satisfies the goal."""
        return value >= self.goal if self.direction == "at least" else value <= self.goal


def _parse(text):
    """[[figure]] tables of plain `key = value` lines: Python before 3.11 has no TOML of its own."""
    tables = []
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        if line == "[[figure]]":
            tables.append({})
            continue
        key, equals, value = line.partition("=")
        if not equals or not tables:
            raise ValueError(f"{GOALS}:{number}: expected `key = value` inside a [[figure]]")
        value = value.strip()
        tables[-1][key.strip()] = value[1:-1] if value.startswith('"') else float(value)
    return tables


def load(group=None):
    """The figures of a group (of all groups when None), in the file's order."""
    text = GOALS.read_text(encoding="utf-8")
    try:
        import tomllib

        tables = tomllib.loads(text)["figure"]
    except ImportError:
        tables = _parse(text)
    figures = [Figure(**table) for table in tables]
    for figure in figures:
        if figure.direction not in ("at least", "at most"):
            raise ValueError(f"{GOALS}: {figure.id}: direction must be 'at least' or 'at most', not '{figure.direction}'")
    chosen = [figure for figure in figures if group in (None, figure.group)]
    if not chosen:
        groups = ", ".join(sorted({figure.group for figure in figures}))
        raise ValueError(f"no group '{group}' in {GOALS}; there are: {groups}")
    return chosen
