"""Small models of transformers with random weights, one for each family."""

from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache

from lengthwise.huggingface.attention import NO_POSITION_IDS
from lengthwise.transformers_versions import own_cache_name

COMMON = {
    "vocab_size": 61,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "initializer_range": 0.25,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 60,
}
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}  # fmt: skip
YARN = {"rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0, "original_max_position_embeddings": 16}
GPT_OSS = {**YARN, "truncate": False}
GEMMA3_LAYERS = ["sliding_attention", "full_attention", "sliding_attention"]
GEMMA3 = {
    "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
    "full_attention": {"rope_type": "linear", "rope_theta": 1000.0, "factor": 4.0},
}
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}},
    "llama, llama3": {"rope_parameters": LLAMA3},
    "llama, yarn": {"rope_parameters": YARN},
    "mistral": {"sliding_window": 5},
    "mistral, no window": {"sliding_window": None},
    "qwen2": {"use_sliding_window": True, "sliding_window": 6, "max_window_layers": 1},
    "qwen3": {"head_dim": 12},
    "gemma": {"head_dim": 8},
    "gemma3_text": {"head_dim": 8, "sliding_window": 6, "layer_types": GEMMA3_LAYERS, "rope_parameters": GEMMA3},
    "smollm3": {"no_rope_layers": [1, 1, 0]},
    "gpt_oss": {"head_dim": 8, "sliding_window": 6, "num_local_experts": 4, "num_experts_per_tok": 2,
                "rope_parameters": GPT_OSS},
    "bloom": {},
    "bloom, 6 heads": {"n_head": 6, "hidden_size": 36},
    "mpt": {"max_seq_len": 64},
    "mpt, 6 heads": {"n_heads": 6, "d_model": 36, "max_seq_len": 64},
    "gpt_neox": {"rotary_pct": 0.5, "rope_parameters": {"rope_type": "default", "rope_theta": 500.0,
                                                        "partial_rotary_factor": 0.5}},
}  # fmt: skip


ATTENTION = {
    "bloom": "eager",
    "mpt": "eager",
    "gpt_oss": "eager",
}  # the only ones that they have, apart from flash attention


def model_of(family: str, **settings: Any) -> Any:
    kind = family.partition(",")[0]
    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, **{**COMMON, **FAMILIES[family], **settings})
    model = AutoModelForCausalLM.from_config(config, attn_implementation=ATTENTION.get(kind, "sdpa")).eval()
    for name, parameter in model.named_parameters():
        if name.endswith(".sinks"):
            torch.nn.init.normal_(parameter)
    return model


def tokens(rows: int = 2, length: int = 17) -> torch.Tensor:
    return torch.randint(2, 60, (rows, length), generator=torch.Generator().manual_seed(1))


def with_cache(cache: Any) -> dict[str, Any]:
    """The argument of a model for a cache, by the name that the installed transformers gives it."""
    return {own_cache_name(): cache}


def cache_in(output: Any) -> Any:
    return output[own_cache_name()]


def answers(model: Any) -> dict[str, torch.Tensor]:
    """The logits of a model for plain, padded, packed and cached input, and generated tokens."""
    x, found = tokens(), {}
    mask = torch.ones_like(x)
    left, right = mask.clone(), mask.clone()
    left[0, :5], right[1, -4:] = 0, 0
    with torch.no_grad():
        found["plain"] = model(x).logits
        found["without a cache"] = model(x, use_cache=False).logits
        found["left padding, counted"] = model(x, attention_mask=left).logits[left.bool()]
        found["right padding"] = model(x, attention_mask=right).logits[right.bool()]
        if model.config.model_type not in NO_POSITION_IDS:
            found |= with_positions(model, x, left)
        cache = DynamicCache(config=model.config)
        parts = [model(x[:, a:b], use_cache=True, **with_cache(cache)).logits for a, b in ((0, 7), (7, 8), (8, 17))]
        found["cached"] = torch.cat(parts, 1)
        options = {"max_new_tokens": 8, "do_sample": False, "output_logits": True, "return_dict_in_generate": True}
        for name, more in {"greedy": {}, "beams": {"num_beams": 3}}.items():
            generated = model.generate(x, attention_mask=left, **options, **more)
            found[f"generated, {name}"] = generated.sequences
            found[f"logits, {name}"] = torch.stack(generated.logits)
    return found


def with_positions(model: Any, x: torch.Tensor, left: torch.Tensor) -> dict[str, torch.Tensor]:
    found = {}
    found["positions"] = model(x, position_ids=torch.arange(3, 20)[None], use_cache=False).logits
    padded = (left.cumsum(1) - 1).clamp(min=0)
    found["left padding"] = model(x, attention_mask=left, position_ids=padded).logits[left.bool()]
    if model.config.model_type != "gpt_oss":  # its class does not hide documents from each other
        packed = torch.cat([torch.arange(6), torch.arange(7), torch.arange(4)])[None]
        found["packed"] = model(x, position_ids=packed, use_cache=False).logits
    return found
