# SPDX-License-Identifier: Apache-2.0
"""How the drop-in reads host names, protocols and metadata addresses."""

from __future__ import annotations

import ipaddress
import logging
import os
from typing import NamedTuple, Optional

_log = logging.getLogger("mooncake")

INFINIBAND_CLASS = "/sys/class/infiniband"
P2P = "P2PHANDSHAKE"


class Transport(NamedTuple):
    """What the engine is asked for: its protocol and its device list."""

    protocol: str
    devices: str


def infiniband_devices() -> list[str]:
    """Names of this host's InfiniBand-class devices (InfiniBand, RoCE, EFA)."""
    try:
        return sorted(os.listdir(INFINIBAND_CLASS))
    except OSError:
        return []


def forced_tcp() -> bool:
    """Whether ``MC_FORCE_TCP`` asks for TCP."""
    return os.environ.get("MC_FORCE_TCP", "").strip().lower() in ("1", "true", "yes", "on")


def choose_transport(protocol: str, devices: str) -> Optional[Transport]:
    """The engine's protocol for one of Mooncake's. ``None`` (with a line in the log) for one that can't be served.

    "rdma" becomes TCP, with one warning, where there is no InfiniBand-class device or ``MC_FORCE_TCP`` is set; its
    device list then means nothing. Nothing else is ever replaced by something else.
    """
    protocol = protocol.strip().lower()
    devices = ",".join(name.strip() for name in devices.split(",") if name.strip())
    if not protocol or protocol == "xgmi":
        _log.error("initialize: protocol %r is not supported: use tcp, rdma or efa", protocol)
        return None
    if protocol != "rdma":
        return Transport(protocol, devices)
    present = infiniband_devices()
    if present and not forced_tcp():
        return Transport("rdma", devices)
    reason = "MC_FORCE_TCP is set" if forced_tcp() else "this host has no InfiniBand-class device"
    ignored = f"; the devices {devices} are ignored" if devices else ""
    _log.warning("protocol rdma: %s, so TCP IS USED INSTEAD%s", reason, ignored)
    return Transport("auto", "")


def refusal_hint(protocol: str) -> str:
    """What to add to the engine's refusal of a protocol."""
    if protocol != "rdma":
        return ""
    return (
        f" (InfiniBand-class devices of this host: {', '.join(infiniband_devices())}); "
        "set MOONCAKE_PROTOCOL=efa or MOONCAKE_PROTOCOL=tcp"
    )


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
