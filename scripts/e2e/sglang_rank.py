# SPDX-License-Identifier: Apache-2.0
"""One rank of a prefill or decode instance: SGLang's manager, senders and receivers, and what its scheduler does."""

from __future__ import annotations

import argparse
import logging
import time
import warnings
from multiprocessing.connection import Client, Connection
from typing import Any, Optional

warnings.filterwarnings("ignore")  # of kernels that this build of torch has no accelerator for

import sglang_shim  # noqa: E402

sglang_shim.install()

import torch  # noqa: E402
from processes import fetch  # noqa: E402
from sglang.srt.disaggregation.base.conn import KVArgs, KVPoll  # noqa: E402
from sglang.srt.disaggregation.common.conn import KVTransferError  # noqa: E402
from sglang.srt.disaggregation.mooncake.conn import (  # noqa: E402
    MooncakeKVBootstrapServer,
    MooncakeKVManager,
    MooncakeKVReceiver,
    MooncakeKVSender,
)
from sglang.srt.disaggregation.utils import DisaggregationMode, MetadataBuffers  # noqa: E402
from sglang.srt.distributed.device_communicators.mooncake_transfer_engine import (  # noqa: E402
    maybe_init_shared_mooncake_transfer_engine,
)
from sglang.srt.runtime_context import SpawnRanks, get_parallel, publish  # noqa: E402
from sglang.srt.server_args import ServerArgs  # noqa: E402
from sglang_pool import HEADS, PAGE_TOKENS, SLOTS, Pool  # noqa: E402

HOST = "127.0.0.1"
BUSY_SECONDS = 0.0005  # between two looks at requests that are under way


class Request:
    """A request on one rank. ``step`` looks at it once and returns an event when something has come about."""

    def __init__(self, rank: Rank, room: int, pages: int):
        self.rank = rank
        self.room = room
        self.pages, self.slot = rank.pool.allocate(pages)
        self.sent = False

    def event(self, name: str, **more: Any) -> dict[str, Any]:
        return {"event": name, "room": self.room, **more}

    def finish(self) -> None:
        self.rank.pool.release(self.pages, self.slot)
        del self.rank.requests[self.room]

    def failure(self, side: Any) -> dict[str, Any]:
        try:
            side.failure_exception()
        except KVTransferError as error:
            return self.event("done", success=False, reason=str(error))
        raise AssertionError("failure_exception raises nothing")


class Prefill(Request):
    def __init__(self, rank: Rank, room: int, pages: int, hold: bool = False, spoiled: Optional[int] = None):
        super().__init__(rank, room, pages)
        self.hold = hold
        rank.pool.fill(room, self.pages, self.slot, spoiled)
        self.sender = MooncakeKVSender(rank.manager, rank.bootstrap, room)
        self.sender.init(len(self.pages), self.slot)

    def step(self) -> Optional[dict[str, Any]]:
        status = self.sender.poll()
        if status == KVPoll.WaitingForInput and not self.sent and not self.hold:
            self.sent = True
            self.sender.pop_decode_prefix_len()
            half = len(self.pages) // 2
            for chunk in (self.pages[:half], self.pages[half:]):  # as chunked prefill does
                if len(chunk):
                    self.sender.send(chunk)
            return self.event("sending")
        if status == KVPoll.Success:
            self.sender.clear()
            self.finish()
            return self.event("done", success=True)
        if status == KVPoll.Failed:
            result = self.failure(self.sender)
            self.finish()
            return result
        return None

    def abort(self) -> None:
        """An abort from the router. What has been handed to the transfer ends by itself."""
        if not self.sent:
            self.sender.abort()


class Decode(Request):
    def __init__(self, rank: Rank, room: int, pages: int):
        super().__init__(rank, room, pages)
        self.draining: Optional[dict[str, Any]] = None
        self.receiver = MooncakeKVReceiver(rank.manager, rank.bootstrap, room)
        if not rank.manager.try_ensure_parallel_info(rank.bootstrap):
            raise RuntimeError(f"no answer from the bootstrap server at {rank.bootstrap}")
        self.receiver.init(0)

    def step(self) -> Optional[dict[str, Any]]:
        manager = self.rank.manager
        if self.draining:
            # SGLang keeps an aborted request's pages until every prefill rank has said that nothing is on its way.
            acks = self.receiver.required_prefill_response_num if self.sent else 0
            if not manager.is_abort_release_safe(self.room, acks):
                return None
            manager.clear_deferred_abort_state(self.room)
            touched = self.rank.pool.touched(self.pages)
            self.finish()
            return {**self.draining, "touched": touched}
        status = self.receiver.poll()
        if status == KVPoll.WaitingForInput and not self.sent:
            self.sent = True
            self.receiver.send_metadata(self.pages, self.slot, decode_prefix_len=0)
            return self.event("asked")
        if status == KVPoll.Success:
            wrong = self.rank.pool.wrong(self.room, self.pages, self.slot)
            self.receiver.clear()
            self.finish()
            return self.event("done", success=True, wrong=wrong)
        if status == KVPoll.Failed:
            self.receiver.ensure_abort_notified(force_arm=True)
            self.draining = self.failure(self.receiver)
        return None

    def abort(self) -> None:
        self.receiver.abort()


class Rank:
    def __init__(self, arguments: argparse.Namespace, control: Connection):
        self.control = control
        self.bootstrap = f"{HOST}:{arguments.port}"
        self.requests: dict[int, Any] = {}
        self.kind = {"prefill": Prefill, "decode": Decode}[arguments.role]
        tp, rank = arguments.ranks, arguments.rank
        settings = ServerArgs(
            model_path="none",
            device="cpu",
            host=HOST,
            tp_size=tp,
            page_size=PAGE_TOKENS,
            disaggregation_mode=arguments.role,
            disaggregation_transfer_backend="mooncake",
            disaggregation_bootstrap_port=arguments.port,
            enable_pd_role_switch=True,  # managers are torn down, see "again"
        )
        publish(settings, role="scheduler", ranks=SpawnRanks(world_rank=rank, gpu_id=rank))
        # No process group is made, because no model runs; the manager asks for the one of pipeline stages.
        get_parallel().override_permanently(pp_group=None)
        if arguments.role == "prefill" and rank == 0:
            self.server = MooncakeKVBootstrapServer(HOST, arguments.port)
        maybe_init_shared_mooncake_transfer_engine(gpu_id=rank)
        # SGLang's own metadata rows.
        self.metadata = MetadataBuffers(SLOTS, 64, torch.float32, 0)
        pointers, lengths, rows = self.metadata.get_buf_infos()
        self.pool = Pool(rank, tp, list(zip(pointers, lengths, rows)))
        self._wait_bootstrap(60)
        self._regions = self._describe(rank, tp, pointers, lengths, rows)
        self._new_manager = lambda: MooncakeKVManager(self._regions, DisaggregationMode(arguments.role), settings)
        self.manager = self._new_manager()

    def _wait_bootstrap(self, seconds: float) -> None:
        """Until the bootstrap server answers: managers of prefill ranks register with it once, when they are made."""
        end = time.monotonic() + seconds
        while True:
            try:
                fetch(f"http://{self.bootstrap}/health", timeout=2.0)
                return
            except OSError:
                if time.monotonic() > end:
                    raise
            time.sleep(0.05)

    def _describe(self, rank: int, tp: int, pointers: list[int], lengths: list[int], rows: list[int]) -> KVArgs:
        args = KVArgs()
        args.engine_rank = args.gpu_id = rank
        args.kv_data_ptrs = [tensor.data_ptr() for tensor in self.pool.tensors]
        args.kv_data_lens = [tensor.nbytes for tensor in self.pool.tensors]
        args.kv_item_lens = [tensor[0].nbytes for tensor in self.pool.tensors]
        args.kv_layer_ids = []
        args.kv_cache_dtype_str = "auto"
        args.aux_data_ptrs, args.aux_data_lens, args.aux_item_lens = pointers, lengths, rows
        args.state_types = []
        args.state_data_ptrs, args.state_data_lens, args.state_item_lens = [], [], []
        args.state_layer_ids, args.state_dim_per_tensor = [], []
        args.state_slice_outer_counts, args.state_conv_shard_groups = [], []
        args.is_hybrid_mla_backend = False
        args.swa_kv_cache_layout = None
        args.ib_device = ""
        args.kv_head_num, args.total_kv_head_num = HEADS // tp, HEADS
        args.page_size = PAGE_TOKENS
        args.system_dp_rank = args.pp_rank = args.prefill_start_layer = 0
        args.prefill_end_layer = args.mla_compression_ratios = args.rust_http_port = None
        return args

    def run(self) -> None:
        """Until the other end of the control connection closes."""
        self._ready()
        try:
            while True:
                while self.control.poll(BUSY_SECONDS if self.requests else None):
                    self._command(**self.control.recv())
                for request in list(self.requests.values()):
                    event = request.step()
                    if event:
                        self.control.send(event)
        except (EOFError, ConnectionError):
            return

    def _ready(self) -> None:
        self.control.send({"event": "ready", "session": self.manager.get_session_id()})

    def _command(self, do: str, room: int = 0, **more: Any) -> None:
        if do == "request":
            self.requests[room] = self.kind(self, room, **more)
        elif do == "abort":
            if room in self.requests:
                self.requests[room].abort()
        elif do == "check_free":
            self.control.send({"event": "checked", "stray": self.pool.check_free()})
        elif do == "again":
            # As for a change of roles: the memory is unregistered and registered again while the engine stays.
            self.manager.teardown()
            MooncakeKVReceiver.close_all_sockets()
            self.manager = self._new_manager()
            self._ready()
        else:
            raise ValueError(f"command {do!r}: there are request, abort, check_free and again")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--role", choices=("prefill", "decode"), required=True)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--port", type=int, required=True, help="of the bootstrap server")
    parser.add_argument("--control", required=True, help="path of the socket that commands come from")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    # It tells of a failed registration at this level only.
    logging.getLogger("sglang.srt.distributed.device_communicators.mooncake_transfer_engine").setLevel(logging.DEBUG)
    with Client(arguments.control) as control:
        control.send({"event": "hello", "role": arguments.role, "rank": arguments.rank})
        Rank(arguments, control).run()


if __name__ == "__main__":
    main()
