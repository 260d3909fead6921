# SPDX-License-Identifier: Apache-2.0
"""Measurements of device memory, over the stand-in for the CUDA driver: its copies take the time of a set rate."""
import os

from .netns import Rails
from .programs import BUILD, Missing, bench, reference, target

COPY_RATE = 4_000_000_000  # bytes a second of each stream, four times the line
SIZE = "64MB"


def _devices():
    """Puts the stand-in where the linker finds it as libcuda.so.1."""
    folder = BUILD / "tests" / "fake_cuda"
    if not (folder / "libcuda.so.1").exists():
        raise Missing("the stand-in for libcuda is not built; scripts/build.sh builds it")
    return ("env", f"LD_LIBRARY_PATH={folder}", f"FAKE_CUDA_RATE={COPY_RATE}")


def _share(rails, devices, *arguments):
    with target("--local", rails.addresses[0], "--devices", rails.devices, "--protocol", "tcp", "--memory", "cuda", "--bytes",
                "512MB", prefix=(*rails.b.prefix, *devices)) as ready:
        row = bench("bulk", "--target", ready["address"], "--local", "10.77.0.1", "--devices", rails.devices, "--protocol", "tcp",
                    "--memory", "cuda", "--sizes", SIZE, "--outstanding", 2, "--walk", "256MB", "--seconds", 5, "--skip", 0.2, *arguments,
                    prefix=(*rails.a.prefix, *devices))["rows"][0]
    return row["bytes_per_s"] / rails.line_rate, row


def staging(_run):
    """Device memory on both sides, both directions."""
    devices = _devices()
    with Rails() as rails:
        write, write_row = _share(rails, devices)
        read, read_row = _share(rails, devices, "--read")
    return {"accelerators.staging_write": write, "accelerators.staging_read": read,
            "_detail": {"cpus": os.cpu_count(), "write": write_row, "read": read_row}}


def classification(_run):
    """Nanoseconds for one registered pointer."""
    library = BUILD / "tests" / "fake_cuda" / "libcuda.so.1"
    return {"accelerators.classification": reference("classification", library)["registered_ns"]}
