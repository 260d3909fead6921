# SPDX-License-Identifier: Apache-2.0
"""What ``MooncakeDistributedStore.setup`` takes, in both of its forms, and what it makes of it."""

from __future__ import annotations

import ctypes
from typing import Any, Dict, Mapping, Optional, Tuple

import tidewire
from tidewire._arguments import text_argument
from tidewire._store_native import StoreOptions

from . import _protocol
from ._arguments import to_string, to_unsigned
from ._store_codes import INVALID_PARAMS, NOT_SUPPORTED, refused
from ._store_sizes import parse_flag, parse_size

MISSING: Any = type("_Missing", (), {"__repr__": lambda self: "<required>"})()

REQUIRED = (
    "local_hostname",
    "metadata_server",
    "global_segment_size",
    "local_buffer_size",
    "protocol",
    "rdma_devices",
    "master_server_addr",
)

# The defaults of the form with a dict.
_DICT_DEFAULTS: Dict[str, Any] = {
    "local_hostname": MISSING,
    "metadata_server": MISSING,
    "global_segment_size": "16777216",
    "local_buffer_size": "16777216",
    "protocol": "tcp",
    "rdma_devices": "",
    "master_server_addr": "127.0.0.1:50051",
    "ipc_socket_path": "",
    "enable_ssd_offload": "false",
    "ssd_offload_path": "",
    "tenant_id": "default",
    "enable_client_http_server": "false",
    "client_http_port": "9300",
}


def from_dict(config: Mapping[str, Any]) -> Dict[str, Any]:
    """The arguments that a dict holds. ValueError names what is missing, unknown or malformed."""
    texts = dict(_DICT_DEFAULTS)
    for key, value in config.items():
        if key not in texts:
            raise ValueError(f"unknown key {key!r}; known are {', '.join(_DICT_DEFAULTS)}")
        texts[key] = str(value)
    for key, value in texts.items():
        if value is MISSING:
            raise ValueError(f"the key {key!r} is needed")
    for key in ("global_segment_size", "local_buffer_size", "client_http_port"):
        texts[key] = parse_size(texts[key], key)
    for key in ("enable_ssd_offload", "enable_client_http_server"):
        texts[key] = parse_flag(texts[key], key)
    return texts


def _flag(value: Any, name: str) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be a bool, not {type(value).__name__}")
    return value


def _borrowed_engine(engine: Any) -> Optional[tidewire.Engine]:
    """The engine inside of what ``TransferEngine.get_engine`` gave (or of a ``TransferEngine`` itself)."""
    if engine is None:
        return None
    inner = getattr(engine, "_engine", MISSING)
    if inner is MISSING or type(engine).__module__ != "mooncake.engine":
        raise TypeError(f"engine must be what TransferEngine.get_engine gives, or None, not {type(engine).__name__}")
    if inner is None:
        raise ValueError("engine: its initialize() has not succeeded")
    return inner


def _not_here(arguments: Mapping[str, Any]) -> str:
    """The first feature that is asked for and not supported, or "". What belongs to a feature that is off is unused."""
    if arguments["enable_ssd_offload"]:
        return "enable_ssd_offload=True"
    if arguments["enable_client_http_server"]:
        return "enable_client_http_server=True"
    if arguments["tenant_id"] not in ("", "default"):
        return f"tenant_id={arguments['tenant_id']!r}"
    if arguments.get("ipc_socket_path"):
        return f"ipc_socket_path={arguments['ipc_socket_path']!r}"
    return ""


def store_options(arguments: Mapping[str, Any]) -> Tuple[int, Optional[StoreOptions], Optional[tidewire.Engine]]:
    """(0, options, engine of others), or a negative code after a line in the log. Wrong types raise TypeError."""
    text = {
        name: to_string(arguments[name], name)
        for name in ("local_hostname", "metadata_server", "protocol", "rdma_devices", "master_server_addr", "tenant_id")
    }
    if arguments["ssd_offload_path"] is not None:
        to_string(arguments["ssd_offload_path"], "ssd_offload_path")
    sizes = [to_unsigned(arguments[name], name) for name in ("global_segment_size", "local_buffer_size")]
    to_unsigned(arguments["client_http_port"], "client_http_port")
    for name in ("enable_ssd_offload", "enable_client_http_server"):
        _flag(arguments[name], name)
    try:
        engine = _borrowed_engine(arguments["engine"])
        unsupported = _not_here(arguments)
        if unsupported:
            return refused("setup", f"{unsupported} is not supported ({NOT_SUPPORTED})", NOT_SUPPORTED), None, None
        if not text["protocol"]:
            raise ValueError("no protocol is named: use tcp, rdma or efa")
        options = StoreOptions(
            struct_size=ctypes.sizeof(StoreOptions),
            local_name=text_argument(_protocol.local_name(text["local_hostname"]), "local_hostname"),
            metadata=text_argument(_protocol.metadata_address(text["metadata_server"]), "metadata_server"),
            protocol=text_argument(text["protocol"], "protocol"),
            devices=text_argument(text["rdma_devices"], "rdma_devices"),
            master=text_argument(text["master_server_addr"], "master_server_addr"),
            segment_bytes=sizes[0],
            local_buffer_bytes=sizes[1],
            engine=engine._live() if engine is not None else 0,
        )
    except (ValueError, tidewire.Error) as error:
        return refused("setup", str(error), INVALID_PARAMS), None, None
    return 0, options, engine
