# SPDX-License-Identifier: Apache-2.0
"""Instances of vLLM on this host: one by itself, or a prefill and a decode instance behind vLLM's router."""

from __future__ import annotations

import asyncio
import json
import re
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional, Sequence

import httpx
from processes import Server, ServerError, fetch, free_port
from vllm_statistic import Transfers, read_transfers

_HOST = "127.0.0.1"
_MODEL = "model"
_KV_GIB = 1


@dataclass(frozen=True)
class Setting:
    """What all instances of a run share."""

    python: Path
    router: Path
    logs: Path
    cache: Path
    shim: Path
    extra: dict[str, str] = field(default_factory=dict)

    def environment(self, mooncake: Optional[Path]) -> dict[str, str]:
        """``mooncake``: the folder that holds the package of that name: Tidewire's or Mooncake's own."""
        paths = [str(path) for path in (mooncake, self.shim) if path is not None]
        return {
            "PYTHONPATH": ":".join(paths),
            "PYTHONDONTWRITEBYTECODE": "1",
            "HF_HUB_OFFLINE": "1",
            "HF_HOME": str(self.cache),
            "VLLM_CACHE_ROOT": str(self.cache / "vllm"),
            "VLLM_NO_USAGE_STATS": "1",
            "VLLM_HOST_IP": _HOST,
            "VLLM_LOG_STATS_INTERVAL": "1",
            "VLLM_CPU_KVCACHE_SPACE": str(_KV_GIB),
            # One thread each: with two, this build of vLLM hangs in an OpenMP barrier when two instances share two
            # processors, before any transfer, whoever's package "mooncake" it is.
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "OMP_NUM_THREADS": "1",
            "NO_PROXY": _HOST,
            "NO_COLOR": "1",
            **self.extra,
        }


class Instance(Server):
    """One vLLM server. ``role``: "" for one without a connector, "kv_producer" or "kv_consumer"."""

    def __init__(
        self,
        setting: Setting,
        name: str,
        model: Path,
        dtype: str,
        mooncake: Optional[Path] = None,
        role: str = "",
        protocol: str = "",
        port: int = 0,
    ):
        self.port, self.bootstrap = port or free_port(), free_port()
        self.url = f"http://{_HOST}:{self.port}"
        command: list[str] = [str(setting.python), "-m", "vllm.entrypoints.openai.api_server"]
        command += ["--model", str(model), "--served-model-name", _MODEL, "--host", _HOST, "--port", str(self.port)]
        command += ["--dtype", dtype, "--max-model-len", "4096", "--max-num-seqs", "16", "--enforce-eager"]
        # A prompt that is sent again must be computed and moved again.
        command += ["--no-enable-prefix-caching"]
        if role:
            connector: dict[str, object] = {"kv_connector": "MooncakeConnector", "kv_role": role}
            if protocol:
                connector["kv_connector_extra_config"] = {"mooncake_protocol": protocol}
            command += ["--kv-transfer-config", json.dumps(connector)]
        environment = setting.environment(mooncake)
        environment["VLLM_MOONCAKE_BOOTSTRAP_PORT"] = str(self.bootstrap)
        super().__init__(name, command, setting.logs / f"{name}.log", environment)

    def wait(self) -> None:
        self.wait_ready(f"{self.url}/health")

    def prompt_tokens(self, source: str) -> int:
        """Prompt tokens whose KV came from ``source``: "local_compute" or "external_kv_transfer"."""
        pattern = rf'^vllm:prompt_tokens_by_source_total{{.*source="{source}".*}} ([\d.e+]+)$'
        found = re.search(pattern, fetch(f"{self.url}/metrics"), re.MULTILINE)
        if not found:
            raise ServerError(f"{self.name} has no metric vllm:prompt_tokens_by_source of {source}")
        return int(float(found[1]))

    def transfers(self, at_least: int = 0, seconds: float = 15.0) -> Transfers:
        """The statistic so far, once it knows of ``at_least`` transfers. It is logged once a second."""
        end = time.monotonic() + seconds
        while True:
            transfers = read_transfers(self.text())
            if transfers.count + transfers.failed >= at_least or time.monotonic() > end:
                return transfers
            time.sleep(0.1)


class Split:
    """A prefill and a decode instance with MooncakeConnector, and vLLM's router before them."""

    def __init__(self, setting: Setting, name: str, model: Path, dtype: str, mooncake: Path, protocol: str):
        def instance(kind: str, role: str, port: int = 0) -> Instance:
            return Instance(setting, f"{name}-{kind}", model, dtype, mooncake, role, protocol, port)

        with ExitStack() as stack:
            self._instance = instance
            self.prefill = stack.enter_context(instance("prefill", "kv_producer"))
            self.decode = stack.enter_context(instance("decode", "kv_consumer"))
            self.prefill.wait()
            self.decode.wait()
            port = free_port()
            self.url = f"http://{_HOST}:{port}"
            command = [setting.router, "--vllm-pd-disaggregation", "--kv-connector", "mooncake", "--host", _HOST]
            command += ["--port", port, "--prometheus-port", free_port()]
            command += ["--prefill", self.prefill.url, self.prefill.bootstrap, "--decode", self.decode.url]
            router = Server(f"{name}-router", command, setting.logs / f"{name}-router.log", {"NO_PROXY": _HOST})
            stack.enter_context(router)
            router.wait_ready(f"{self.url}/health")
            self._stack = stack.pop_all()

    def __enter__(self) -> Split:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def replace_decode(self) -> None:
        """Kills the decode instance, and starts another where the router looks for it."""
        self.decode.kill()
        self.decode = self._stack.enter_context(self._instance("decode-again", "kv_consumer", self.decode.port))
        self.decode.wait()


def generate(url: str, prompts: Sequence[Sequence[int]], new_tokens: int, at_once: int) -> list[list[int]]:
    """What a server generates for each prompt, greedily. An empty list for a request that failed."""

    async def every() -> list[list[int]]:
        turn = asyncio.Semaphore(at_once)
        async with httpx.AsyncClient(timeout=300, trust_env=False) as client:

            async def one(prompt: Sequence[int]) -> list[int]:
                body = {
                    "model": _MODEL,
                    "prompt": list(prompt),
                    "max_tokens": new_tokens,
                    "temperature": 0,
                    "ignore_eos": True,
                    "return_token_ids": True,
                }
                async with turn:
                    try:
                        answer = await client.post(f"{url}/v1/completions", json=body)
                    except httpx.HTTPError:
                        return []
                return answer.json()["choices"][0]["token_ids"] if answer.status_code == 200 else []

            return list(await asyncio.gather(*(one(prompt) for prompt in prompts)))

    return asyncio.run(every())
