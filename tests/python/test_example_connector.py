# SPDX-License-Identifier: Apache-2.0
"""The connector of docs/extending.md moves pages between two processes, exactly those, and says what failed."""

from __future__ import annotations

import hashlib
import os
import signal
import sys

import numpy as np
import pytest
import tidewire
from tidewire_testing import ROOT, pattern, wait_until

FOLDER = ROOT / "examples" / "connector"
sys.path.insert(0, str(FOLDER))

from kv_connector import KvConnector  # noqa: E402

LAYERS, PAGES, PAGE_BYTES = 6, 64, 4096
SETTINGS = {"same host": {}, "tcp": {"settings": {"same_host": False}}}

DECODE = """
import hashlib, sys
sys.path.insert(0, {folder!r})
import numpy as np
from kv_connector import KvConnector
arrays = [np.full(({pages}, {page_bytes} // (1 + layer % 2)), 0xEE, np.uint8) for layer in range({layers})]
connector = KvConnector(arrays, {pages}, **{options})
seen = []
def digest(pages):
    return hashlib.sha256(b"".join(array[page].tobytes() for array in arrays for page in pages)).hexdigest()
def received(count):
    while len(seen) < count:
        news = connector.received(timeout=30)
        assert news, f"only {{seen}} came"
        seen.extend(news)
    return seen
def clean(pages):
    return all((array[page] == 0xEE).all() for array in arrays for page in pages)
"""


@pytest.fixture(params=SETTINGS)
def sides(request, child_factory):
    """(prefill connector, its arrays, decode process)."""
    options = SETTINGS[request.param]
    child = child_factory(
        DECODE.format(folder=str(FOLDER), pages=PAGES, page_bytes=PAGE_BYTES, layers=LAYERS, options=options)
    )
    # Arrays of two page sizes, as K and V of different width, or a state beside the KV, have them.
    arrays = [pattern(i, PAGES * PAGE_BYTES // (1 + i % 2)).reshape(PAGES, -1) for i in range(LAYERS)]
    connector = KvConnector(arrays, PAGES, **options)
    yield connector, arrays, child
    connector.close()


def digest(arrays, pages):
    return hashlib.sha256(b"".join(array[page].tobytes() for array in arrays for page in pages)).hexdigest()


def ended(connector, count):
    """What ``sent()`` says, until ``count`` requests have ended."""
    results = {}

    def all_there():
        results.update(connector.sent())
        return len(results) >= count

    wait_until(all_there, f"{count} requests end")
    return results


def test_requests_arrive_whole_and_nothing_else_is_touched(sides):
    connector, arrays, child = sides
    target = child.eval("connector.describe()")
    random = np.random.default_rng(1)
    local, remote = random.permutation(PAGES).tolist(), random.permutation(PAGES).tolist()
    requests = {f"request-{i}": (local[i * 10 : i * 10 + 10], remote[i * 10 : i * 10 + 10]) for i in range(4)}
    for request, (pages, target_pages) in requests.items():
        connector.send(request, target, pages, target_pages)
    assert ended(connector, 4) == dict.fromkeys(requests)
    assert sorted(child.eval("received(4)")) == sorted(requests)
    for pages, target_pages in requests.values():
        assert child.eval(f"digest({target_pages})") == digest(arrays, pages)
    assert child.eval(f"clean({remote[40:]})")
    assert connector.sent() == {}


def test_a_dead_decode_process_fails_the_request_by_name(sides):
    connector, _, child = sides
    target = child.eval("connector.describe()")
    child.kill()
    with pytest.raises(tidewire.UnreachableError, match=target["engine"]):
        connector.send("lost", target, [0], [0])
    assert connector.sent() == {}


def test_a_decode_process_that_dies_later_fails_its_requests(sides):
    connector, arrays, child = sides
    target = child.eval("connector.describe()")
    connector.send("first", target, [1], [2])
    assert ended(connector, 1) == {"first": None}
    child.kill()
    connector.send("second", target, [1], [2])
    error = ended(connector, 1)["second"]
    assert isinstance(error, (tidewire.PeerGoneError, tidewire.UnreachableError))


def test_an_abort_leaves_nothing_on_its_way(child_factory):
    options = {"settings": {"same_host": False, "lane.stall_timeout": "60s"}}
    child = child_factory(
        DECODE.format(folder=str(FOLDER), pages=PAGES, page_bytes=1 << 20, layers=1, options=SETTINGS["tcp"])
    )
    arrays = [np.ones((PAGES, 1 << 20), np.uint8)]
    connector = KvConnector(arrays, PAGES, **options)
    try:
        target = child.eval("connector.describe()")
        connector.send("warm", target, [0], [0])
        assert ended(connector, 1) == {"warm": None}
        os.kill(child.pid, signal.SIGSTOP)
        connector.send("aborted", target, range(PAGES), range(PAGES))
        connector.abort("aborted")
        assert connector.sent() == {}
        connector.abort("aborted")
        os.kill(child.pid, signal.SIGCONT)
        connector.send("next", target, [5], [5])
        assert ended(connector, 1) == {"next": None}
        assert child.eval("received(2)") == ["warm", "next"]
    finally:
        os.kill(child.pid, signal.SIGCONT)
        connector.close()


def test_pages_that_do_not_fit_are_refused_before_anything_moves(sides):
    connector, _, child = sides
    target = child.eval("connector.describe()")
    for pages, target_pages in [([PAGES], [0]), ([0], [PAGES]), ([-1], [0])]:
        with pytest.raises(ValueError, match="pages"):
            connector.send("bad", target, pages, target_pages)
    with pytest.raises(ValueError, match="bytes"):
        connector.send("bad", dict(target, page_bytes=[1] * LAYERS), [0], [0])
    with pytest.raises(tidewire.InvalidArgumentError, match="differ"):
        connector.send("bad", target, [0, 1], [0])
    assert connector.sent() == {} and child.eval(f"clean(range({PAGES}))")


def test_it_is_as_short_as_the_docs_say():
    lines = (FOLDER / "kv_connector.py").read_text().splitlines()
    assert len(lines) < 100
