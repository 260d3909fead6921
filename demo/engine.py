# SPDX-License-Identifier: Apache-2.0
"""What both processes do with Tidewire's engine: open it as the command line says, and talk in JSON lines.

A process of the demonstration reads one JSON object a line on its standard input and answers each with one line on its
standard output. Standard input's end ends the process, so nothing survives the program that started it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable

Handlers = dict[str, Callable[[dict], dict]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", choices=("tiny", "gemma"), default="tiny")
    parser.add_argument("--protocol", choices=("auto", "tcp", "shm"), default="auto",
                        help="tcp: no shared memory at all")
    parser.add_argument("--pool-tokens", type=int, default=8192, help="tokens that a process's KV pool holds")
    parser.add_argument("--host", default="127.0.0.1", help="the address that this process advertises")


def open_engine(arguments: argparse.Namespace):
    """A tidewire.Engine for these arguments; close it."""
    import tidewire

    # The protocol "tcp" would still take the short way between processes of one host.
    settings = {"same_host": "false"} if arguments.protocol == "tcp" else {}
    return tidewire.Engine(arguments.host, protocol=arguments.protocol, settings=settings)


def serve(hello: dict, handlers: Handlers) -> None:
    """Says hello, then answers requests until standard input ends. A request that fails is answered with its error."""
    _say(hello)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            _say(handlers[request["do"]](request))
        except Exception as error:  # the other side has to hear of it, whatever it is
            _say({"error": f"{type(error).__name__}: {error}"})


def _say(answer: dict) -> None:
    print(json.dumps(answer), flush=True)
