# SPDX-License-Identifier: Apache-2.0
"""The store in one go: a master, two clients that lend memory, puts and gets across them, and what ``tidewire status`` shows.

    python -m demo.store

Exits with 1 when a byte differs.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from mooncake.store import MooncakeDistributedStore

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = ROOT / "build" / "bin" / "tidewire"
SEGMENT = 256 << 20
BUFFER = 64 << 20


def start_master() -> tuple[subprocess.Popen[str], str, str]:
    """(process, address for clients, address of its pages)."""
    process = subprocess.Popen(
        [str(PROGRAM), "master", "--rpc_address=127.0.0.1", "--rpc_port=auto", "--metrics_host=127.0.0.1", "--metrics_port=auto"],
        stdout=subprocess.PIPE,
        text=True,
    )
    line = process.stdout.readline() if process.stdout else ""
    found = re.search(r"listens on (\S+), admin on (\S+)", line)
    if found is None:
        raise SystemExit(f"the master did not start: {line!r}")
    print(line.strip())
    return process, found[1], found[2]


def start_client(master: str) -> MooncakeDistributedStore:
    store = MooncakeDistributedStore()
    if store.setup("127.0.0.1", "P2PHANDSHAKE", SEGMENT, BUFFER, "tcp", "", master) != 0:
        raise SystemExit("a client could not be set up")
    print(f"client {store.get_hostname()} lends {SEGMENT >> 20} MiB")
    return store


def main() -> int:
    process, address, pages = start_master()
    try:
        writer, reader = start_client(address), start_client(address)
        blocks = {f"prompt-7/block-{i}": os.urandom(1 << 20) for i in range(64)}
        print("put_batch:", writer.put_batch(list(blocks), list(blocks.values())))
        print("is_exist:", sum(reader.batch_is_exist(list(blocks))), "of", len(blocks))
        equal = reader.get_batch(list(blocks)) == list(blocks.values())
        print("get_batch from the other client:", "every byte is the same" if equal else "BYTES DIFFER")
        subprocess.run([str(PROGRAM), "status", "--master", pages], check=True)
        print("removed:", writer.remove_all(force=True))
        for store in (writer, reader):
            store.close()
        return 0 if equal else 1
    finally:
        process.terminate()
        process.wait()


if __name__ == "__main__":
    sys.exit(main())
