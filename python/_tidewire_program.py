# SPDX-License-Identifier: Apache-2.0
"""The console command ``tidewire``: replaces this process by the program that the wheel (or the build) holds.

Outside of the package, so that ``tidewire doctor`` starts even where the library can't be loaded.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def program_path() -> Path:
    """The program: in the package (a wheel), else ``build/bin`` of a source tree."""
    here = Path(__file__).resolve().parent
    candidates = [here / "tidewire" / "bin" / "tidewire", here.parent / "build" / "bin" / "tidewire"]
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    raise FileNotFoundError("the program tidewire is missing: looked at " + ", ".join(map(str, candidates)))


def main() -> None:
    """Entry point. Arguments, standard streams and the exit status are the program's own."""
    try:
        program = program_path()
        os.execv(program, ["tidewire", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"tidewire: {error}")


if __name__ == "__main__":
    main()
