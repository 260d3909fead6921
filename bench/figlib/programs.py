# SPDX-License-Identifier: Apache-2.0
"""Runs the programs that measure, and reads the JSON that they print."""
import json
import os
import pathlib
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = pathlib.Path(os.environ.get("TIDEWIRE_BUILD", ROOT / "build"))
TIDEWIRE = BUILD / "bin" / "tidewire"
TIMEOUT = 300


class Missing(Exception):
    """A reference that can't be had here; the text says why and what would help."""


class Failed(Exception):
    """A measurement that ended with an error."""


def run(command, prefix=(), timeout=TIMEOUT):
    """Standard output of a command; Failed with its last lines otherwise."""
    command = [*prefix, *map(str, command)]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=timeout, check=False)
    except FileNotFoundError as error:
        raise Missing(f"{command[0]} is not there; scripts/setup.sh and scripts/build.sh provide it") from error
    except subprocess.TimeoutExpired as error:
        raise Failed(f"{' '.join(command)}: not done after {timeout} s") from error
    if done.returncode:
        last = " | ".join((done.stderr or done.stdout).strip().splitlines()[-2:])
        raise Failed(f"{' '.join(command[:8])}: exit status {done.returncode}: {last}")
    return done.stdout


def reference(name, *arguments, prefix=()):
    """One of our own reference programs; its last line is JSON."""
    return json.loads(run([BUILD / "bench" / name, *arguments], prefix).strip().splitlines()[-1])


def bench(what, *arguments, prefix=()):
    """`tidewire bench WHAT`; the figures that it writes as JSON."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        run([TIDEWIRE, "bench", what, *arguments, "--json", file.name], prefix)
        return json.load(file)


class Waiting:
    """A program that prints one JSON line when it is ready and ends when its input closes: a context manager that gives the line."""

    def __init__(self, command, prefix=()):
        self.command = [*prefix, *map(str, command)]
        self.process = None

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for line in self.process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        raise Failed(f"{' '.join(self.command)}: ended before it was ready")

    def __exit__(self, *_):
        self.process.stdin.close()
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


def target(*arguments, prefix=()):
    """`tidewire bench target` as a context manager."""
    return Waiting([TIDEWIRE, "bench", "target", *arguments], prefix)
