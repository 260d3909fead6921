# SPDX-License-Identifier: Apache-2.0
"""Models for end-to-end runs, written as folders that serving frameworks load without a hub.

``tiny``  a Llama of 5 million weights, random ones of trained models' scale: with those that a framework's dummy loader
          makes, attention adds next to nothing, and tokens would be the same without any KV.
``wide``  the KV cache of Llama 3 8B (32 layers, 8 heads of 128, bfloat16: 128 KiB a token) on little else.
``gemma`` Gemma 3 270M with its real weights and its vocabulary.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Sequence

import numpy as np
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, pre_tokenizers

FORMAT = 1  # counts up whenever what stands in a folder changes
_SEED = 7

_LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 512,
    "hidden_size": 256,
    "intermediate_size": 512,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "attention_bias": False,
    "mlp_bias": False,
}
_SHAPES = {
    "tiny": {
        "num_hidden_layers": 8,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "dtype": "float32",
    },
    "wide": {
        "num_hidden_layers": 32,
        "num_attention_heads": 8,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "dtype": "bfloat16",
    },
}
NAMES = (*_SHAPES, "gemma")


def prepare(name: str, folder: Path) -> Path:
    """The folder of a model, written if it is not there yet."""
    target = folder / f"{name}-v{FORMAT}"
    if not (target / "tokenizer_config.json").exists():
        target.mkdir(parents=True, exist_ok=True)
        (_write_gemma if name == "gemma" else _write_llama)(name, target)
    return target


def prompts(name: str, lengths: Sequence[int]) -> list[list[int]]:
    """A prompt of each length, as tokens: text for Gemma, random tokens for the others. No two begin alike."""
    if name != "gemma":
        source = random.Random(_SEED)
        return [[source.randrange(3, _LLAMA["vocab_size"]) for _ in range(length)] for length in lengths]
    from demo import gemma_weights
    from demo.gemma_tokenizer import GemmaTokenizer
    from demo.prompt import FOLDER

    index, _ = gemma_weights.load()
    tokenizer = GemmaTokenizer(index["pieces"], index["scores"], index["types"], index["bos"])
    words = " ".join(path.read_text() for path in sorted(FOLDER.glob("*.txt"))).split()
    result = []
    for number, length in enumerate(lengths):
        start = (number * 29) % len(words)
        text = (words[start:] + words[:start]) * (1 + length // len(words))
        result.append(tokenizer.encode(f"Page {number}. {' '.join(text)}")[:length])
    return result


def _write_tokenizer(target: Path, pieces: Sequence[str], special: dict[str, str]) -> None:
    # Prompts come as tokens; this only gives each token a text.
    tokenizer = Tokenizer(models.WordLevel({p: n for n, p in enumerate(pieces)}, unk_token=special["unk_token"]))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(target / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", **special}
    (target / "tokenizer_config.json").write_text(json.dumps(config))


def _write_llama(name: str, target: Path) -> None:
    config = {**_LLAMA, **_SHAPES[name]}
    width, inner, vocabulary = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    queries = config["num_attention_heads"] * config["head_dim"]
    keys = config["num_key_value_heads"] * config["head_dim"]
    generator = torch.Generator().manual_seed(_SEED)

    def weights(rows: int, columns: int, scale: float) -> torch.Tensor:
        return (torch.randn(rows, columns, generator=generator) * scale).to(getattr(torch, config["dtype"]))

    one = torch.ones(width, dtype=getattr(torch, config["dtype"]))
    tensors = {
        "model.embed_tokens.weight": weights(vocabulary, width, 1.0),
        "model.norm.weight": one.clone(),
        "lm_head.weight": weights(vocabulary, width, 0.3),
    }
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        tensors[prefix + "input_layernorm.weight"] = one.clone()
        tensors[prefix + "post_attention_layernorm.weight"] = one.clone()
        tensors[prefix + "self_attn.q_proj.weight"] = weights(queries, width, 0.12)
        tensors[prefix + "self_attn.k_proj.weight"] = weights(keys, width, 0.12)
        tensors[prefix + "self_attn.v_proj.weight"] = weights(keys, width, 0.12)
        tensors[prefix + "self_attn.o_proj.weight"] = weights(width, queries, 0.12)
        tensors[prefix + "mlp.gate_proj.weight"] = weights(inner, width, 0.06)
        tensors[prefix + "mlp.up_proj.weight"] = weights(inner, width, 0.06)
        tensors[prefix + "mlp.down_proj.weight"] = weights(width, inner, 0.06)
    (target / "config.json").write_text(json.dumps(config, indent=1))
    save_file(tensors, target / "model.safetensors", metadata={"format": "pt"})
    pieces = ["<unk>", "<s>", "</s>", *(f"w{number}" for number in range(3, vocabulary))]
    _write_tokenizer(target, pieces, {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"})


# The names of a layer's tensors, in GGUF and in Hugging Face's layout.
_GEMMA_TENSORS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_output": "self_attn.o_proj",
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "post_ffw_norm": "post_feedforward_layernorm",
}


def _gemma_name(name: str) -> str:
    if name == "token_embd.weight":
        return "model.embed_tokens.weight"
    if name == "output_norm.weight":
        return "model.norm.weight"
    _, layer, rest = name.split(".", 2)
    return f"model.layers.{layer}.{_GEMMA_TENSORS[rest.removesuffix('.weight')]}.weight"


def _write_gemma(_: str, target: Path) -> None:
    from demo import gemma_weights
    from demo.gemma import GLOBAL_EVERY, LOCAL_ROPE_BASE

    index, arrays = gemma_weights.load()
    layers = range(index["layers"])
    tensors = {}
    for name, array in arrays.items():
        values = torch.from_numpy(np.array(array))
        # GGUF holds the factors of normalisation themselves, Hugging Face's layout what they exceed 1 by.
        tensors[_gemma_name(name)] = values - 1 if "norm" in name else values
    config = {
        "architectures": ["Gemma3ForCausalLM"],
        "model_type": "gemma3_text",
        "vocab_size": len(index["pieces"]),
        "hidden_size": index["width"],
        "intermediate_size": arrays["blk.0.ffn_up.weight"].shape[0],
        "num_hidden_layers": index["layers"],
        "num_attention_heads": index["heads"],
        "num_key_value_heads": index["kv_heads"],
        "head_dim": index["head_dim"],
        "query_pre_attn_scalar": index["head_dim"],
        "max_position_embeddings": 32768,
        "rms_norm_eps": index["epsilon"],
        "rope_theta": index["rope_base"],
        "rope_local_base_freq": LOCAL_ROPE_BASE,
        "sliding_window": index["window"],
        "layer_types": [
            "full_attention" if n % GLOBAL_EVERY == GLOBAL_EVERY - 1 else "sliding_attention" for n in layers
        ],
        "hidden_activation": "gelu_pytorch_tanh",
        "tie_word_embeddings": True,
        "attention_bias": False,
        "dtype": "float32",
        "bos_token_id": index["bos"],
        "eos_token_id": 1,
        "pad_token_id": 0,
    }
    (target / "config.json").write_text(json.dumps(config, indent=1))
    save_file(tensors, target / "model.safetensors", metadata={"format": "pt"})
    special = {"unk_token": "<unk>", "bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>"}
    _write_tokenizer(target, index["pieces"], special)
