# SPDX-License-Identifier: Apache-2.0
"""Hosts that lack something: local ports, an address family, shared memory. B08, B11 and B22 of the scenarios."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys

import pytest
from both_transports import options, over_both
from test_links import initiator
from tidewire_testing import target, wait_until


def test_without_local_ports_requests_fail_by_name_and_go_on_when_ports_are_free_again(hosts, inside):
    """B08: every one of 64 local ports is held by others."""
    host = hosts()
    # The engines' own ports lie outside of the range.
    host.run("sysctl", "-qw", "net.ipv4.ip_local_port_range=40000 40063")
    passive = inside(host, target(1 << 20, f"'127.0.0.1:18801', {options('tcp')}"))
    active = inside(host, initiator(1 << 20, f"'127.0.0.1:18802', {options('tcp')}"))
    address, base = passive.eval("[engine.address, region.address]")
    active.run("""
import socket
holders = []
def hold():
    try:
        while True:
            holders.append(socket.socket())
            holders[-1].bind(("127.0.0.1", 0))
    except OSError as error:
        holders.pop().close()
        return error.strerror
""")
    assert "in use" in active.eval("hold()")
    assert active.eval("len(holders)") == 64
    for _ in range(3):
        with pytest.raises(RuntimeError, match="(?i)cannot assign requested address|local port|EADDRNOTAVAIL"):
            active.run(f"write({address!r}, {base}, deadline=5.0)")
    active.run("[holder.close() for holder in holders]")
    wanted = active.eval("fill(1)")

    def works() -> bool:
        try:
            active.run(f"write({address!r}, {base}, deadline=5.0)")
            return True
        except RuntimeError:
            return False

    wait_until(works, "a transfer once there are ports")
    assert passive.eval("digest()") == wanted


NAMES = {
    "only IPv4": (["127.0.0.1", "127.0.0.1:0", "localhost"], ["::1", "[::1]:18999"]),
    "only IPv6": (["::1", "[::1]", "[::1]:0"], ["127.0.0.1", "127.0.0.1:18999"]),
    "both": (["127.0.0.1", "::1", "[::1]:0", "localhost"], ["0.0.0.0", "::"]),
}


@over_both
@pytest.mark.parametrize("families", NAMES)
def test_hosts_of_one_family_and_of_both(hosts, inside, families, transport):
    """B11: what the host has works end to end as own name and peer name; what it lacks is refused with the name."""
    host = hosts()
    if families == "only IPv4":
        host.run("sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1", "net.ipv6.conf.lo.disable_ipv6=1")
    elif families == "only IPv6":
        host.ip("addr", "del", "127.0.0.1/8", "dev", "lo")
    good, bad = NAMES[families]
    passive = inside(host, "import tidewire")
    active = inside(host, "import tidewire, numpy as np, hashlib")
    for name in good:
        passive.run(target(4096, f"{name!r}, {options(transport)}"))
        active.run(initiator(4096, f"{name!r}, {options(transport)}"))
        address, base = passive.eval("[engine.address, region.address]")
        wanted = active.eval("fill(7)")
        active.run(f"write({address!r}, {base})")
        assert passive.eval("digest()") == wanted, name
        active.run("engine.close()")
        passive.run("engine.close()")
    for name in bad:
        with pytest.raises(RuntimeError) as failure:
            passive.run(f"tidewire.Engine({name!r}, {options(transport)})")
        assert name in str(failure.value).splitlines()[-1], failure.value


@pytest.mark.parametrize("name", ["0.0.0.0:18999", "[::]:18999"])
def test_a_refused_wildcard_is_named_as_it_was_given(name):
    """B11: the error holds the text, so that it can be found where it was set."""
    import tidewire

    with pytest.raises(tidewire.InvalidArgumentError) as failure:
        tidewire.Engine(name)
    assert f"bad address '{name}'" in str(failure.value)


@over_both
def test_a_tiny_dev_shm_is_no_limit(child_factory, tmp_path, transport):
    """B22: 64 MiB of pool memory on both sides where /dev/shm has 16 MiB: moved, or refused by name; no SIGBUS."""
    if os.geteuid() != 0 or not shutil.which("unshare"):
        pytest.skip("mount namespaces need root and util-linux")
    if subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode != 0:
        pytest.skip("no mount namespaces here")
    python = tmp_path / "python-tiny-shm"
    python.write_text(
        "#!/bin/sh\nexec unshare -m sh -c "
        f"'mount -t tmpfs -o size=16m tmpfs /dev/shm && exec {sys.executable} \"$@\"' sh \"$@\"\n"
    )
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    nbytes = 64 << 20
    setup = f"""
import hashlib, os, numpy as np, tidewire
engine = tidewire.Engine({options(transport)})
def room():
    facts = os.statvfs("/dev/shm")
    return facts.f_blocks * facts.f_frsize
def free():
    facts = os.statvfs("/dev/shm")
    return facts.f_bfree * facts.f_frsize
empty = free()
try:
    buffer = engine.allocate({nbytes})
except (tidewire.NoMemoryError, tidewire.NoResourcesError) as error:
    buffer, why = None, str(error)
"""
    passive, active = (child_factory(setup, python=str(python)) for _ in range(2))
    assert passive.eval("room()") == 16 << 20
    if not all(child.eval("buffer is not None") for child in (passive, active)):
        assert "shared memory" in (passive.eval("why") or active.eval("why"))
        return
    address, base = passive.eval("[engine.address, buffer.address]")
    active.run(f"data = np.random.default_rng(1).integers(0, 256, {nbytes}, dtype=np.uint8)")
    active.run("engine.copy_in(buffer, data)")
    active.run(f"engine.write({address!r}, buffer, {base}).wait()")
    digest = "hashlib.sha256(bytes(buffer.view())).hexdigest()"
    assert passive.eval(digest) == active.eval(digest) == active.eval("hashlib.sha256(data.tobytes()).hexdigest()")
    assert passive.eval("free() == empty") and active.eval("free() == empty")
