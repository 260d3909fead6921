# SPDX-License-Identifier: Apache-2.0
"""``mooncake`` served by Tidewire: programs written for Mooncake's Python modules run unchanged.

The distribution ``tidewire-mooncake`` and Mooncake's own wheel hold a package of the same name, so only one of them can
be installed. Beside the other, this one refuses to be imported and says how to switch and how to go back.
"""

from __future__ import annotations

import os
import re
import sys

__version__ = "0.1.0"


def _installed_mooncake() -> str:
    """The name of an installed distribution of Mooncake's wheel, or "". Reads directory names only, so it is quick."""
    for path in sys.path:
        try:
            names = os.listdir(path or ".")
        except OSError:
            continue
        for name in names:
            if name.endswith((".dist-info", ".egg-info")):
                distribution = re.sub(r"[-_.]+", "-", name.rsplit(".", 1)[0].split("-", 1)[0]).lower()
                if distribution.startswith("mooncake-transfer-engine"):
                    return distribution
    return ""


def _refuse_beside_mooncake() -> None:
    other = _installed_mooncake()
    if other:
        install = "pip install --force-reinstall --no-deps"
        raise ImportError(
            f"both tidewire-mooncake and {other} are installed, and each brings the package 'mooncake'.\n"
            f"  to use Tidewire:  pip uninstall -y {other} && {install} tidewire-mooncake\n"
            f"  to roll back:     pip uninstall -y tidewire-mooncake && {install} {other}"
        )


_refuse_beside_mooncake()
