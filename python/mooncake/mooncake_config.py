# SPDX-License-Identifier: Apache-2.0
"""``MooncakeConfig``: the arguments of ``MooncakeDistributedStore.setup`` from a JSON file or the environment."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any, Mapping

from ._store_sizes import parse_flag, parse_size

DEFAULT_GLOBAL_SEGMENT_SIZE = 3_355_443_200
DEFAULT_LOCAL_BUFFER_SIZE = 1 << 30
DEFAULT_CLIENT_HTTP_PORT = 9300

_REQUIRED = ("local_hostname", "metadata_server", "master_server_address")


@dataclass
class MooncakeConfig:
    """How a client of the store is set up. Sizes are bytes."""

    local_hostname: str
    metadata_server: str
    global_segment_size: int
    local_buffer_size: int
    protocol: str
    device_name: str
    master_server_address: str
    enable_ssd_offload: bool = False
    ssd_offload_path: str = ""
    tenant_id: str = "default"
    enable_client_http_server: bool = False
    client_http_port: int = DEFAULT_CLIENT_HTTP_PORT

    @staticmethod
    def from_file(file_path: str) -> "MooncakeConfig":
        """Of a JSON file with an object of these names. ValueError names what is missing, unknown or malformed."""
        with open(file_path, encoding="utf-8") as file:
            values = json.load(file)
        if not isinstance(values, dict):
            raise ValueError(f"{file_path} must hold a JSON object, not a {type(values).__name__}")
        return MooncakeConfig.from_mapping(values, str(file_path))

    @staticmethod
    def from_mapping(values: Mapping[str, Any], origin: str = "the configuration") -> "MooncakeConfig":
        """Of these names and values; sizes may be texts such as "4GB". ValueError as for :meth:`from_file`."""
        missing = [name for name in _REQUIRED if not values.get(name)]
        if missing:
            raise ValueError(f"{origin} lacks {', '.join(missing)}")
        unknown = sorted(set(values) - set(MooncakeConfig.__dataclass_fields__))
        if unknown:
            raise ValueError(f"{origin} has unknown keys: {', '.join(unknown)}")
        get = values.get
        return MooncakeConfig(
            local_hostname=str(values["local_hostname"]),
            metadata_server=str(values["metadata_server"]),
            global_segment_size=parse_size(
                get("global_segment_size", DEFAULT_GLOBAL_SEGMENT_SIZE), "global_segment_size"
            ),
            local_buffer_size=parse_size(get("local_buffer_size", DEFAULT_LOCAL_BUFFER_SIZE), "local_buffer_size"),
            protocol=str(get("protocol") or "tcp"),
            device_name=str(get("device_name") or ""),
            master_server_address=str(values["master_server_address"]),
            enable_ssd_offload=parse_flag(get("enable_ssd_offload", False), "enable_ssd_offload"),
            ssd_offload_path=str(get("ssd_offload_path") or ""),
            tenant_id=str(get("tenant_id") or "default"),
            enable_client_http_server=parse_flag(get("enable_client_http_server", False), "enable_client_http_server"),
            client_http_port=parse_size(get("client_http_port", DEFAULT_CLIENT_HTTP_PORT), "client_http_port"),
        )

    @staticmethod
    def load_from_env() -> "MooncakeConfig":
        """Of the file that MOONCAKE_CONFIG_PATH names, else of MOONCAKE_MASTER and the other variables of the table
        below. ValueError when neither of the two is set."""
        path = os.environ.get("MOONCAKE_CONFIG_PATH")
        if path:
            return MooncakeConfig.from_file(path)
        if not os.environ.get("MOONCAKE_MASTER"):
            raise ValueError("neither MOONCAKE_CONFIG_PATH nor MOONCAKE_MASTER is set")
        variables = {
            "master_server_address": ("MOONCAKE_MASTER", ""),
            "local_hostname": ("MOONCAKE_LOCAL_HOSTNAME", "localhost"),
            "metadata_server": ("MOONCAKE_TE_META_DATA_SERVER", "P2PHANDSHAKE"),
            "global_segment_size": ("MOONCAKE_GLOBAL_SEGMENT_SIZE", str(DEFAULT_GLOBAL_SEGMENT_SIZE)),
            "local_buffer_size": ("MOONCAKE_LOCAL_BUFFER_SIZE", str(DEFAULT_LOCAL_BUFFER_SIZE)),
            "protocol": ("MOONCAKE_PROTOCOL", "tcp"),
            "device_name": ("MOONCAKE_DEVICE", ""),
            "enable_ssd_offload": ("MOONCAKE_OFFLOAD_ENABLED", "false"),
            "ssd_offload_path": ("MOONCAKE_OFFLOAD_FILE_STORAGE_PATH", ""),
            "tenant_id": ("MOONCAKE_TENANT_ID", "default"),
            "enable_client_http_server": ("MOONCAKE_ENABLE_CLIENT_HTTP_SERVER", "false"),
            "client_http_port": ("MOONCAKE_CLIENT_HTTP_PORT", str(DEFAULT_CLIENT_HTTP_PORT)),
        }
        values = {name: os.environ.get(variable, default) for name, (variable, default) in variables.items()}
        return MooncakeConfig.from_mapping(values, "the environment")

    def setup_arguments(self) -> dict[str, Any]:
        """The keyword arguments for ``MooncakeDistributedStore.setup``."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        values["rdma_devices"] = values.pop("device_name")
        values["master_server_addr"] = values.pop("master_server_address")
        return values
