# SPDX-License-Identifier: Apache-2.0
"""How the drop-in reads host names and metadata addresses."""

from __future__ import annotations

import ipaddress

P2P = "P2PHANDSHAKE"


def _is_ipv6(text: str) -> bool:
    try:
        return ipaddress.ip_address(text.split("%", 1)[0]).version == 6
    except ValueError:
        return False


def local_name(text: str) -> str:
    """An own name: an IPv6 literal may come without brackets and then has no port."""
    return f"[{text}]" if _is_ipv6(text) else text


def peer_name(text: str) -> str:
    """A session id "host:port": the last ":int" is the port, an IPv6 address before it may lack its brackets."""
    text = text.lstrip("/")
    head, colon, port = text.rpartition(":")
    if colon and port.isdigit() and not head.startswith("[") and _is_ipv6(head):
        return f"[{head}]:{port}"
    return text


def metadata_address(server: str, kind: str = "") -> str:
    """ "P2PHANDSHAKE" or an address with its scheme; one without a scheme is of ``kind``, else etcd."""
    if server == P2P or "://" in server:
        return server
    return f"{kind or 'etcd'}://{server}"
