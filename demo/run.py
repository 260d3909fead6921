# SPDX-License-Identifier: Apache-2.0
"""Prefill and decode in two processes, checked against one.

    python -m demo.run --model tiny --lengths 128,256,512,1024,2048,4096
    python -m demo.run --model gemma

Computes each prompt in this process, then with the split, and compares the tokens. Prints a table, saves a plot, and
exits with 1 when a token or a byte of KV differs, 2 when a process fails.
"""

from __future__ import annotations

import argparse
import signal
import statistics
import sys
from pathlib import Path

from demo import engine as demo_engine
from demo.children import Child, ChildError
from demo.kv import PageAllocator, PagedKvCache
from demo.model import Model, generate, load_model
from demo.prompt import prompt_tokens
from demo.report import Progress, Row, plot, table

LENGTHS = {"tiny": [128, 256, 512, 1024, 2048, 4096], "gemma": [128, 256, 512, 1024, 2048]}
PLOTS = Path(__file__).resolve().parent.parent / "build" / "demo"
REPEATS = 7  # of the transfer in one go


def reference(model: Model, tokens: list[int], new_tokens: int) -> list[int]:
    """What one process generates."""
    pages = model.geometry.pages_for(len(tokens) + new_tokens)
    cache = PagedKvCache(model.geometry, pages, bytearray(model.geometry.pool_bytes(pages)))
    page_table = PageAllocator(pages).take(pages)
    first = model.prefill(tokens, cache, page_table)
    return generate(model, first, len(tokens), new_tokens, cache, page_table)


def split(prefill: Child, decode: Child, hello: dict, request: int, tokens: list[int], new_tokens: int):
    """The same through both processes: (answer of prefill, answer of decode, seconds of each transfer in one go)."""
    pages = decode.ask("reserve", id=request, length=len(tokens), new_tokens=new_tokens)["table"]
    decode.send("generate", id=request)
    sent = prefill.ask("prefill", id=request, tokens=tokens, decoder=hello, table=pages)
    made = decode.receive()
    seconds = prefill.ask("repeat", times=REPEATS)["seconds"]
    decode.ask("release", id=request)
    return sent, made, seconds


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m demo.run", description=__doc__.splitlines()[0])
    demo_engine.add_arguments(parser)
    parser.add_argument("--lengths", help="prompt lengths in tokens, with commas (default: by model)")
    parser.add_argument("--new-tokens", type=int, default=24, help="tokens to generate for each prompt")
    parser.add_argument("--plot", type=Path, help="where to save the plot (default: build/demo/demo-MODEL.png)")
    arguments = parser.parse_args()
    try:
        given = arguments.lengths.split(",") if arguments.lengths else LENGTHS[arguments.model]
        arguments.lengths = [int(length) for length in given]
    except ValueError:
        parser.error(f"--lengths {arguments.lengths!r}: whole numbers with commas between them, e.g. 128,1024")
    if min(arguments.lengths) < 2 or arguments.new_tokens < 1:
        parser.error("a prompt needs at least 2 tokens, and at least 1 has to be generated")
    arguments.pool_tokens = max(arguments.pool_tokens, max(arguments.lengths) + arguments.new_tokens)
    arguments.plot = arguments.plot or PLOTS / f"demo-{arguments.model}.png"
    return arguments


def run(arguments: argparse.Namespace) -> bool:
    """True when everything agrees."""
    rows, texts = [], []
    options = [f"--model={arguments.model}", f"--protocol={arguments.protocol}"]
    options += [f"--pool-tokens={arguments.pool_tokens}", f"--host={arguments.host}"]
    start_cost = 300  # loading and starting take about as long as computing so many tokens
    with Progress(2 * start_cost + 2 * sum(arguments.lengths)) as progress:
        progress.step(f"loading the model {arguments.model}", start_cost)
        model = load_model(arguments.model)
        progress.step("starting the decode and the prefill process", start_cost)
        with Child("demo.decode", options) as decode, Child("demo.prefill", options) as prefill:
            hello = decode.receive()
            prefill.receive()
            # First contact, first use of each page: not what the table is about.
            split(prefill, decode, hello, 0, prompt_tokens(model, min(64, max(arguments.lengths))), 2)
            for number, length in enumerate(arguments.lengths):
                tokens = prompt_tokens(model, length, number)
                progress.step(f"{length:,} tokens in one process", length)
                expected = reference(model, tokens, arguments.new_tokens)
                progress.step(f"{length:,} tokens in two processes", length)
                sent, made, seconds = split(prefill, decode, hello, number + 1, tokens, arguments.new_tokens)
                rows.append(
                    Row(
                        length=length,
                        kv_bytes=length * model.geometry.token_bytes,
                        operations=sent["operations"],
                        prefill=sent["computed"] - sent["begin"],
                        after=made["arrival"] - sent["computed"],
                        alone=statistics.median(seconds),
                        tokens_equal=made["tokens"] == expected,
                        bytes_equal=made["digest"] == sent["digest"],
                    )
                )
                texts.append((length, tokens[-24:], expected, made["tokens"]))

    title = f"{arguments.model}, protocol {arguments.protocol}: prefill in one process, decode in another"
    print(f"\n{title}\n\n{table(rows)}\n")
    for length, tail, expected, got in texts:
        if arguments.model == "gemma":
            print(f"{length:,} tokens: … {model.decode(tail)!r}\n    -> {model.decode(got)!r}\n")
        if got != expected:
            print(f"{length:,} tokens: one process generates {expected}\n    two generate {got}")
    plot(rows, title, arguments.plot)
    print(f"plot: {arguments.plot}")
    return all(row.tokens_equal and row.bytes_equal for row in rows)


def main() -> int:
    arguments = parse()
    # SIGTERM unwinds like Ctrl-C, so that the children are ended too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        equal = run(arguments)
    except ChildError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 2
    if equal:
        print("every token is the same as in one process")
        return 0
    print("demo: tokens or KV bytes differ, see the table", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
