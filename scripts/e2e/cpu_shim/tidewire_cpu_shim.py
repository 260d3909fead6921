# SPDX-License-Identifier: Apache-2.0
"""A vLLM plugin for its CPU build, for the test environment only.

MooncakeConnector asks PyTorch for the accelerator's index, and PyTorch refuses where there is no accelerator. That one
question is answered here. vLLM loads this through its own plugin mechanism in each of its processes.

With E2E_DROP_TRANSFERS=FILE, transfers are reported as done without being made while FILE exists: a run shows with it
that its comparison of tokens notices missing KV.
"""

import os


def register() -> None:
    import torch

    if not torch.accelerator.is_available():
        torch.accelerator.current_device_index = lambda: 0

    switch = os.environ.get("E2E_DROP_TRANSFERS")
    if switch:
        from mooncake.engine import TransferEngine

        write = TransferEngine.batch_transfer_sync_write

        def write_unless_dropped(engine, *arguments, **keywords):
            return 0 if os.path.exists(switch) else write(engine, *arguments, **keywords)

        TransferEngine.batch_transfer_sync_write = write_unless_dropped
