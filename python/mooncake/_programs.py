# SPDX-License-Identifier: Apache-2.0
"""The console commands of the store. Each becomes the program ``tidewire``, with all flags passed on."""

from __future__ import annotations

import os
import sys


def _run(name: str, command: str) -> None:
    # Its own module outside of the package tidewire, so that a program starts where the library can't be loaded.
    from _tidewire_program import program_path

    try:
        os.execv(program_path(), [name, command, *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"{name}: {error}")


def master() -> None:
    """``mooncake_master``: the store's master, as ``tidewire master``. Exit status and streams are its own."""
    _run("mooncake_master", "master")


def client() -> None:
    """``mooncake_client``: a client that lends memory, as ``tidewire store-client``."""
    _run("mooncake_client", "store-client")
