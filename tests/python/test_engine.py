# SPDX-License-Identifier: Apache-2.0
"""Engines: their names, ports, settings, protocols and errors."""

from __future__ import annotations

import socket

import pytest
import tidewire
from tidewire import Code
from tidewire_testing import pattern


def test_engines_of_one_process_have_addresses_of_their_own(engine_factory):
    engines = [engine_factory() for _ in range(8)]
    assert len({engine.port for engine in engines}) == 8
    for engine in engines:
        host, port = engine.address.rsplit(":", 1)
        assert (host, int(port)) == ("127.0.0.1", engine.port)
        assert isinstance(engine.status(), dict)


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost", "::1", "[::1]", "[::1]:0", "127.0.0.1:0"])
def test_own_names_of_every_syntax(engine_factory, name):
    engine = engine_factory(name)
    region = engine.register(bytearray(64))
    other = engine_factory(name)
    source = other.register(bytearray(pattern(1, 64).tobytes()))
    assert other.write(engine.address, source, region.address, 64).wait().transferred_bytes == 64


@pytest.mark.parametrize("name", ["", "127.0.0.1:", ":80", "127.0.0.1:99999", "1:2:3", "no such host.invalid", "a\0b"])
def test_bad_own_names_are_named(name):
    with pytest.raises(tidewire.InvalidArgumentError) as failure:
        tidewire.Engine(name)
    assert repr(name)[1:-1] in str(failure.value) or name in str(failure.value)


def test_a_taken_port_is_named(engine_factory):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(tidewire.AddressInUseError, match=str(port)):
            tidewire.Engine(f"127.0.0.1:{port}")
    engine = engine_factory(f"127.0.0.1:{port}")
    assert engine.port == port


def test_a_bad_setting_names_itself(engine_factory):
    with pytest.raises(tidewire.InvalidArgumentError, match="threads.io"):
        tidewire.Engine(settings={"threads.io": "many"})
    with pytest.raises(tidewire.InvalidArgumentError, match="no.such"):
        tidewire.Engine(settings={"no.such": 1})
    with pytest.raises(TypeError):
        tidewire.Engine(5)


@pytest.mark.parametrize("protocol", ["nonsense", "efa"])
def test_a_protocol_that_this_machine_can_not_do_is_refused_by_name(protocol):
    with pytest.raises(tidewire.Error, match=protocol) as failure:
        tidewire.Engine(protocol=protocol)
    assert failure.value.code in (Code.UNSUPPORTED, Code.INVALID_ARGUMENT)


def test_settings_topology_and_version():
    rows = tidewire.settings()
    assert any(row["name"] == "transfer.timeout" for row in rows)
    assert isinstance(tidewire.topology(), dict)
    assert tidewire.__version__ == tidewire._native.lib.tw_version().decode()


def test_every_code_has_its_class():
    from tidewire.errors import error_class, make_error

    for code in Code:
        if code:
            assert make_error(code, "text").code == code
            assert error_class(code) is not tidewire.InternalError or code == Code.INTERNAL
            assert make_error(code).args[0] == code.name
    assert issubclass(tidewire.DeadlineError, TimeoutError)
    assert issubclass(tidewire.PeerGoneError, ConnectionError)
    assert error_class(999) is tidewire.InternalError
