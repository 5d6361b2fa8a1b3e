"""Settings of model folders: sound ones, modelled on known releases with fewer layers; and ones with a mistake."""

import copy
import json
from pathlib import Path
from typing import Any

Settings = dict[str, Any]

SHAPE = {
    "hidden_size": 256,
    "num_attention_heads": 4,
    "num_hidden_layers": 4,
    "intermediate_size": 64,
    "vocab_size": 64,
}
LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", **SHAPE, "use_cache": True}
PAIRS = 32  # of a head of 64 dimensions
LLAMA3_SCALING = {
    "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192,
    "rope_type": "llama3",
}  # fmt: skip
LLAMA_3_1 = {
    **LLAMA, "num_key_value_heads": 2, "max_position_embeddings": 131072, "rope_theta": 500000.0,
    "rope_scaling": LLAMA3_SCALING, "torch_dtype": "bfloat16", "transformers_version": "4.42.3",
}  # fmt: skip
QWEN_YARN = {
    "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", **SHAPE, "num_key_value_heads": 2,
    "max_position_embeddings": 32768, "max_window_layers": 4, "sliding_window": 131072, "use_sliding_window": False,
    "rope_theta": 1000000.0, "torch_dtype": "bfloat16", "transformers_version": "4.43.1",
    "rope_scaling": {"factor": 4.0, "original_max_position_embeddings": 32768, "type": "yarn"},
}  # fmt: skip
DYNAMIC = {
    **LLAMA, "max_position_embeddings": 2048, "use_cache": False, "rope_theta": 10000.0,
    "rope_scaling": {"type": "dynamic", "factor": 2.0}, "torch_dtype": "float16", "transformers_version": "4.36.0",
}  # fmt: skip
GEMMA_3 = {
    "architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", **SHAPE, "num_hidden_layers": 6,
    "head_dim": 64, "num_key_value_heads": 2, "query_pre_attn_scalar": 64, "max_position_embeddings": 32768,
    "sliding_window": 1024, "layer_types": [*["sliding_attention"] * 5, "full_attention"], "dtype": "bfloat16",
    "transformers_version": "5.0.0",
    "rope_parameters": {
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0},
    },
}  # fmt: skip
PHI_3 = {
    "architectures": ["Phi3ForCausalLM"], "model_type": "phi3", **SHAPE, "num_key_value_heads": 4, "pad_token_id": 0,
    "eos_token_id": 1, "max_position_embeddings": 131072, "original_max_position_embeddings": 4096,
    "rope_theta": 10000.0,
    "rope_scaling": {
        "type": "longrope", "short_factor": [1.0 + 0.01 * p for p in range(PAIRS)],
        "long_factor": [1.0 + 1.5 * p for p in range(PAIRS)],
    },
    "sliding_window": 262144, "torch_dtype": "bfloat16", "transformers_version": "4.40.2",
}  # fmt: skip
MISTRAL = {
    "architectures": ["MistralForCausalLM"], "model_type": "mistral", **SHAPE, "num_key_value_heads": 2,
    "max_position_embeddings": 32768, "sliding_window": 4096, "rope_theta": 10000.0, "torch_dtype": "bfloat16",
    "transformers_version": "4.34.0.dev0",
}  # fmt: skip
MPT = {
    "architectures": ["MPTForCausalLM"], "model_type": "mpt", "d_model": 256, "n_heads": 4, "n_layers": 4,
    "max_seq_len": 2048, "vocab_size": 64, "attn_config": {"alibi": True, "alibi_bias_max": 8},
    "torch_dtype": "bfloat16",
    "auto_map": {"AutoConfig": "configuration_mpt.MPTConfig", "AutoModelForCausalLM": "modeling_mpt.MPTForCausalLM"},
}  # fmt: skip


def changed(settings: Settings, **changes: Any) -> Settings:
    """Settings with some changed. Those changed to ... are left out, and the dictionaries of RoPE are merged."""
    result = copy.deepcopy(settings)
    for key, value in changes.items():
        if isinstance(value, dict) and isinstance(result.get(key), dict):
            value = {k: v for k, v in (result[key] | value).items() if v is not ...}
        result[key] = value
    return {key: value for key, value in result.items() if value is not ...}


GEMMA_3_WITH_IMAGES = {
    "model_type": "gemma3", "architectures": ["Gemma3ForConditionalGeneration"], "text_config": GEMMA_3,
    "vision_config": {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 1, "intermediate_size": 32,
                      "image_size": 8, "patch_size": 4},
}  # fmt: skip
SOUND: dict[str, Settings] = {
    "Llama 3.1 with the length before scaling outside, where transformers reads it too": {
        **LLAMA_3_1, "rope_scaling": {k: v for k, v in LLAMA3_SCALING.items()
                                      if k != "original_max_position_embeddings"},
        "original_max_position_embeddings": 8192,
    },
    "Llama 2": {
        **LLAMA, "max_position_embeddings": 4096, "rope_scaling": None, "torch_dtype": "float16",
        "transformers_version": "4.31.0.dev0",
    },
    "Vicuna 1.5, 16K": {
        **LLAMA, "max_position_embeddings": 4096, "rope_scaling": {"factor": 4.0, "type": "linear"},
        "torch_dtype": "float16", "transformers_version": "4.31.0",
    },
    "Llama 3.1": LLAMA_3_1,
    "Llama 3.1, saved by transformers 5": {
        **{k: v for k, v in LLAMA_3_1.items() if k not in ("rope_theta", "rope_scaling", "torch_dtype")},
        "dtype": "bfloat16", "rope_parameters": {**LLAMA3_SCALING, "rope_theta": 500000.0},
        "transformers_version": "5.23.0",
    },
    "Qwen 2.5 with YaRN": QWEN_YARN,
    "Qwen 3 with YaRN": {**QWEN_YARN, "max_position_embeddings": 40960},
    "Mistral": MISTRAL,
    "Gemma 3": GEMMA_3,
    "SmolLM3": {
        "architectures": ["SmolLM3ForCausalLM"], "model_type": "smollm3", **SHAPE, "num_key_value_heads": 2,
        "pad_token_id": 0, "eos_token_id": 1, "max_position_embeddings": 65536, "no_rope_layers": [1, 1, 1, 0],
        "no_rope_layer_interval": 4, "rope_theta": 5000000.0, "rope_scaling": None, "torch_dtype": "bfloat16",
        "transformers_version": "4.54.0",
    },
    "Phi-3": PHI_3,
    "GPT-NeoX": {
        "architectures": ["GPTNeoXForCausalLM"], "model_type": "gpt_neox", **SHAPE, "max_position_embeddings": 2048,
        "rotary_emb_base": 10000, "rotary_pct": 0.25, "torch_dtype": "float16", "transformers_version": "4.24.0",
    },
    "BLOOM": {
        "architectures": ["BloomForCausalLM"], "model_type": "bloom", "hidden_size": 256, "n_head": 6,
        "num_attention_heads": 6, "n_layer": 4, "seq_length": 2048, "vocab_size": 64, "torch_dtype": "bfloat16",
        "head_dim": None,
    } | {"hidden_size": 252},
    "MPT": MPT,
    "dynamic NTK without a cache": DYNAMIC,
    "DeepSeek V3": {
        "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", **SHAPE, "num_key_value_heads": 4,
        "first_k_dense_replace": 4, "kv_lora_rank": 32, "q_lora_rank": 32, "qk_nope_head_dim": 32,
        "qk_rope_head_dim": 16, "v_head_dim": 32, "max_position_embeddings": 163840, "rope_theta": 10000,
        "torch_dtype": "bfloat16",
        "rope_scaling": {"beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0,
                         "original_max_position_embeddings": 4096, "type": "yarn"}, "transformers_version": "4.33.1",
    },
    "gpt-oss": {
        "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", **SHAPE, "head_dim": 64,
        "num_key_value_heads": 2, "num_local_experts": 2, "num_experts_per_tok": 1, "max_position_embeddings": 131072,
        "rope_theta": 150000, "sliding_window": 128, "layer_types": ["sliding_attention", "full_attention"] * 2,
        "torch_dtype": "bfloat16",
        "rope_scaling": {"beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0, "original_max_position_embeddings": 4096,
                         "rope_type": "yarn", "truncate": False}, "transformers_version": "4.55.0",
    },
    "GPT-2": {
        "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_embd": 64, "n_head": 4, "n_layer": 2,
        "n_positions": 1024, "n_ctx": 1024, "vocab_size": 64,
    },
    "Phi-4 mini": changed(PHI_3, num_key_value_heads=2, partial_rotary_factor=0.5, full_attn_mod=1,
                          interpolate_factor=1,
                          rope_scaling={"short_factor": [1.0] * 16, "long_factor": [1.0 + p for p in range(16)]}),
    "Qwen 2.5 with a window that is switched off": changed(QWEN_YARN, rope_scaling=..., sliding_window=4096),
    "Gemma 2": {
        **GEMMA_3, "architectures": ["Gemma2ForCausalLM"], "model_type": "gemma2", "attn_logit_softcapping": 50.0,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}, "max_position_embeddings": 8192,
        "layer_types": ["sliding_attention", "full_attention"] * 3, "sliding_window_size": 1024,
    },
    "OLMo 3": {
        "architectures": ["Olmo3ForCausalLM"], "model_type": "olmo3", **SHAPE, "max_position_embeddings": 65536,
        "rope_theta": 500000, "sliding_window": 4096, "layer_types": [*["sliding_attention"] * 3, "full_attention"],
        "rope_scaling": {"attention_factor": 1.2079441541679836, "beta_fast": 32, "beta_slow": 1, "factor": 8.0,
                         "original_max_position_embeddings": 8192, "rope_type": "yarn"},
        "torch_dtype": "bfloat16", "transformers_version": "4.57.0", "eos_token_id": 1, "pad_token_id": 0,
    },
    "Llama 4": {
        "architectures": ["Llama4ForConditionalGeneration"], "model_type": "llama4", "torch_dtype": "bfloat16",
        "text_config": {
            "model_type": "llama4_text", **SHAPE, "head_dim": 64, "num_key_value_heads": 2, "intermediate_size_mlp": 64,
            "num_local_experts": 2, "num_experts_per_tok": 1, "max_position_embeddings": 10485760,
            "rope_theta": 500000.0, "attention_chunk_size": 8192, "no_rope_layers": [], "attn_temperature_tuning": True,
            "rope_scaling": {"factor": 16.0, "high_freq_factor": 1.0, "low_freq_factor": 1.0,
                             "original_max_position_embeddings": 8192, "rope_type": "llama3"},
        },
        "vision_config": {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 1, "intermediate_size": 64},
        "transformers_version": "4.51.0.dev0",
    },
    "Falcon 7B": {
        "architectures": ["FalconForCausalLM"], "model_type": "falcon", "hidden_size": 256, "num_attention_heads": 4,
        "num_hidden_layers": 2, "multi_query": True, "parallel_attn": True, "alibi": False, "vocab_size": 64,
        "transformers_version": "4.27.4", "torch_dtype": "bfloat16",
    },
    "Yarn-Llama-2 64K, of before rope_theta": {
        **LLAMA, "max_position_embeddings": 65536, "torch_dtype": "bfloat16", "transformers_version": "4.31.0",
        "rope_scaling": {"factor": 16.0, "original_max_position_embeddings": 4096, "type": "yarn", "finetuned": True},
    },
    "LLaMA-2-7B-32K": {
        **LLAMA, "max_position_embeddings": 32768, "rope_scaling": {"factor": 8.0, "type": "linear"},
        "torch_dtype": "float16", "transformers_version": "4.31.0",
    },
    "MiniCPM3": {
        "architectures": ["MiniCPM3ForCausalLM"], "model_type": "minicpm3", **SHAPE, "max_position_embeddings": 32768,
        "q_lora_rank": 32, "qk_nope_head_dim": 64, "qk_rope_head_dim": 32, "kv_lora_rank": 32, "rope_scaling": {
            "type": "longrope", "long_factor": [1.0 + p for p in range(16)],
            "short_factor": [1.0 + p for p in range(16)], "original_max_position_embeddings": 32768,
        },
        "auto_map": {"AutoConfig": "configuration_minicpm.MiniCPM3Config"}, "transformers_version": "4.41.2",
    },
    "ModernBERT's decoder": {
        "architectures": ["ModernBertDecoderForCausalLM"], "model_type": "modernbert-decoder", **SHAPE,
        "local_attention": 128, "max_position_embeddings": 7999, "global_rope_theta": 160000.0,
        "local_rope_theta": 160000.0, "pad_token_id": 0, "global_attn_every_n_layers": 3, "bos_token_id": 1,
        "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2, "transformers_version": "4.55.0",
    },
    "RecurrentGemma": {
        "architectures": ["RecurrentGemmaForCausalLM"], "model_type": "recurrent_gemma", **SHAPE,
        "num_hidden_layers": 3, "num_key_value_heads": 1, "attention_window_size": 2048, "lru_width": 256,
        "partial_rotary_factor": 0.5, "rope_theta": 10000.0, "block_types": ["recurrent", "recurrent", "attention"],
        "transformers_version": "4.40.0",
    },
    "EXAONE 3.5": {
        **LLAMA, "architectures": ["ExaoneForCausalLM"], "model_type": "exaone", "max_position_embeddings": 32768,
        "rope_theta": 1000000, "rope_scaling": {**LLAMA3_SCALING}, "transformers_version": "4.43.0",
    },
    "StarCoder": {
        "architectures": ["GPTBigCodeForCausalLM"], "model_type": "gpt_bigcode", "n_embd": 6144, "n_head": 48,
        "n_inner": 24576, "n_layer": 2, "n_positions": 8192, "multi_query": True, "vocab_size": 64,
        "transformers_version": "4.28.1",
    },
}  # fmt: skip


PLANTED: dict[str, tuple[Settings, str]] = {
    "YaRN for half of the length": (
        changed(QWEN_YARN, max_position_embeddings=131072, rope_scaling={"factor": 2.0}), "factor-and-lengths",
    ),
    "YaRN for twice the length": (
        changed(QWEN_YARN, max_position_embeddings=131072, rope_scaling={"factor": 8.0}), "factor-and-lengths",
    ),
    "a scaling for a length that was reached before": (
        changed(LLAMA_3_1, max_position_embeddings=8192), "factor-and-lengths",
    ),
    "old and new scaling": (
        changed(LLAMA_3_1, rope_parameters={**LLAMA3_SCALING, "factor": 32.0, "rope_theta": 500000.0}),
        "contradicting-keys",
    ),
    "two thetas": (
        changed(LLAMA_3_1, rope_scaling=..., rope_parameters={**LLAMA3_SCALING, "rope_theta": 10000.0}),
        "contradicting-keys",
    ),
    "rope_type and type": (changed(QWEN_YARN, rope_scaling={"rope_type": "linear"}), "contradicting-keys"),
    "two numbers of layers": (changed(SOUND["GPT-2"], num_hidden_layers=3), "contradicting-keys"),
    "lost theta": (changed(LLAMA_3_1, rope_theta=...), "missing-theta"),
    "lost theta, plain RoPE of today": (changed(MISTRAL, rope_theta=...), "missing-theta"),
    "theta under another name": (changed(LLAMA_3_1, rope_theta=..., rotary_emb_base=500000.0), "missing-theta"),
    "lost rope_type": (changed(LLAMA_3_1, rope_scaling={"rope_type": ...}), "missing-rope-type"),
    "rope_type default": (changed(QWEN_YARN, rope_scaling={"type": "default"}), "missing-rope-type"),
    "lost length before scaling": (
        changed(QWEN_YARN, max_position_embeddings=131072, rope_scaling={"original_max_position_embeddings": ...}),
        "missing-original-length",
    ),
    "attention factor outside": (changed(QWEN_YARN, attention_factor=1.2), "ignored-keys"),
    "misspelt attention factor": (changed(QWEN_YARN, rope_scaling={"atention_factor": 1.2}), "ignored-keys"),
    "mscale alone": (changed(QWEN_YARN, rope_scaling={"mscale": 0.707}), "missing-attention-factor"),
    "DeepSeek's mscales in a Qwen": (
        changed(QWEN_YARN, rope_scaling={"mscale": 1.0, "mscale_all_dim": 1.0}), "missing-attention-factor",
    ),
    "attention factor of linear scaling": (
        changed(LLAMA_3_1, rope_scaling={"type": "linear", "rope_type": ..., "attention_factor": 1.2,
                                         "low_freq_factor": ..., "high_freq_factor": ...,
                                         "original_max_position_embeddings": ...}),
        "missing-attention-factor",
    ),
    "dynamic NTK with a cache": (changed(DYNAMIC, use_cache=True), "scaling-with-cache"),
    "LongRoPE in a Llama with a cache": (
        changed(LLAMA_3_1, rope_scaling={**PHI_3["rope_scaling"], "original_max_position_embeddings": 4096,
                                         "factor": 32.0, "rope_type": ..., "low_freq_factor": ...,
                                         "high_freq_factor": ...}),
        "scaling-with-cache",
    ),
    "sliding layers without a window": (changed(GEMMA_3, sliding_window=None), "window-without-size"),
    "other slopes": (changed(MPT, attn_config={"alibi_bias_max": 16}), "ignored-slopes"),
    "other kinds of layers": (
        changed(GEMMA_3, rope_parameters={"sliding_attention": ..., "full_attention": ..., "rope_type": "linear",
                                          "factor": 8.0, "rope_theta": 1e6}),
        "ignored-keys",
    ),
    "an unknown rope type that is only read for kinds of layers": (
        changed(GEMMA_3, rope_parameters=None, rope_scaling={"type": "lineer", "factor": 8.0}), "ignored-keys",
    ),
    "misspelt rope_type": (changed(QWEN_YARN, rope_scaling={"type": ..., "rope_typ": "yarn"}), "ignored-keys"),
    "misspelt theta": (changed(LLAMA_3_1, rope_theta=..., rope_thta=500000.0), "ignored-keys"),
    "misspelt scaling": (changed(LLAMA_3_1, rope_scaling=..., rope_scalling=LLAMA3_SCALING), "ignored-keys"),
    "misspelt length": (changed(MISTRAL, max_position_embeddings=..., max_positions_embeddings=32768), "ignored-keys"),
    "misspelt fraction": (changed(SOUND["GPT-NeoX"], rotary_pct=..., rotary_pc=0.25), "ignored-keys"),
    "misspelt slopes": (changed(MPT, attn_config={"alibi_bias_max": ..., "alibi_bias_maxx": 8}), "ignored-keys"),
    "settings of Llama 3 for YaRN": (
        changed(LLAMA_3_1, rope_scaling={"rope_type": "yarn", "factor": 16.0}), "ignored-keys",
    ),
    "a misspelt kind of layers": (
        changed(GEMMA_3, rope_parameters={"full_attention": ...,
                                          "full_atention": GEMMA_3["rope_parameters"]["full_attention"]}),
        "ignored-keys",
    ),
    "kinds of layers with other names": (
        changed(GEMMA_3, rope_parameters={"full_attention": ..., "sliding_attention": ...,
                                          "local": GEMMA_3["rope_parameters"]["sliding_attention"],
                                          "global": GEMMA_3["rope_parameters"]["full_attention"]}),
        "ignored-keys",
    ),
    "settings of the text outside of text_config": (GEMMA_3_WITH_IMAGES | {"sliding_window": 512}, "ignored-keys"),
    "a scaling outside of text_config": (
        GEMMA_3_WITH_IMAGES | {"rope_scaling": {"rope_type": "linear", "factor": 4.0}}, "ignored-keys",
    ),
    "a scaling outside of rope_parameters": (
        changed(QWEN_YARN, rope_scaling=..., rope_type="yarn", factor=4.0), "ignored-keys",
    ),
    "an old name of the factor": (changed(MISTRAL, rope_scaling_factor=4.0), "ignored-keys"),
    "a window inside of rope_parameters": (
        changed(MISTRAL, sliding_window=..., rope_theta=..., rope_parameters={"rope_theta": 1e4, "rope_type": "default",
                                                                             "sliding_window": 2048}),
        "ignored-keys",
    ),
    "the length inside of rope_scaling": (changed(QWEN_YARN, rope_scaling={"max_position_embeddings": 131072}),
                                          "ignored-keys"),
    "a window under the name of other classes": (changed(MISTRAL, sliding_window=..., window_size=2048),
                                                 "ignored-keys"),
    "a length under the name of other classes": (changed(MISTRAL, max_position_embeddings=..., max_seq_len=65536),
                                                 "ignored-keys"),
    "a fraction under another name": (changed(SOUND["GPT-NeoX"], rotary_pct=..., rotary_percent=0.5), "ignored-keys"),
    "two fractions": (changed(SOUND["GPT-NeoX"], partial_rotary_factor=0.5), "contradicting-keys"),
    "two bases": (changed(SOUND["GPT-NeoX"], rope_theta=50000.0), "contradicting-keys"),
    "two local thetas": (changed(GEMMA_3, rope_local_base_freq=20000.0), "contradicting-keys"),
    "an old scaling that replaces a theta": (
        changed(LLAMA_3_1, rope_theta=..., rope_parameters={**LLAMA3_SCALING, "rope_theta": 500000.0}),
        "contradicting-keys",
    ),
    "misspelt tuning of the temperature": (
        {**SOUND["Llama 4"], "text_config": changed(SOUND["Llama 4"]["text_config"], attn_temperature_tuning=...,
                                                    attn_temperature_tunning=False)}, "ignored-keys",
    ),
    "misspelt attn_config": (changed(MPT, attn_config=..., attn_conf={"alibi": True}), "ignored-keys"),
    "a fraction of 0": (changed(SOUND["GPT-NeoX"], rotary_pct=0.0), "degenerate-rotation"),
    "a fraction of less than one pair": (
        changed(PHI_3, rope_scaling=..., max_position_embeddings=4096, partial_rotary_factor=0.01),
        "degenerate-rotation",
    ),
    "a theta of 1": (changed(MISTRAL, rope_theta=1.0), "degenerate-rotation"),
    "sliding layers with a window that is switched off": (
        changed(QWEN_YARN, rope_scaling=..., sliding_window=4096,
                layer_types=["sliding_attention", "full_attention"] * 2),
        "window-without-size",
    ),
    "Ministral 3 without the growth of its temperature": (
        {"architectures": ["Ministral3ForCausalLM"], "model_type": "ministral3", **SHAPE, "num_key_value_heads": 2,
         "head_dim": 64, "max_position_embeddings": 262144, "dtype": "bfloat16",
         "rope_parameters": {"rope_type": "yarn", "factor": 16.0, "rope_theta": 1e6, "mscale": 1.0,
                             "mscale_all_dim": 1.0, "original_max_position_embeddings": 16384}},
        "failing-layers",
    ),
    "a window without use_sliding_window": (
        changed(QWEN_YARN, rope_scaling=..., sliding_window=2048, use_sliding_window=...), "ignored-window",
    ),
    "a window for no layers": (
        changed(QWEN_YARN, rope_scaling=..., sliding_window=2048, use_sliding_window=True, max_window_layers=28),
        "ignored-window",
    ),
    "a window in a class that has none": (changed(LLAMA_3_1, sliding_window=4096), "ignored-window"),
    "a soft cap in a class that has none": (changed(GEMMA_3, attn_logit_softcapping=50.0), "ignored-soft-cap"),
    "an attention factor of 4": (changed(QWEN_YARN, rope_scaling={"attention_factor": 4.0}),
                                 "missing-attention-factor"),
    "an attention factor of 32": (changed(PHI_3, rope_scaling={"attention_factor": 32.0}), "missing-attention-factor"),
    "the length after scaling before it": (changed(PHI_3, original_max_position_embeddings=131072),
                                           "scaling-without-effect"),
    "long and short factors swapped": (
        changed(PHI_3, rope_scaling={"short_factor": PHI_3["rope_scaling"]["long_factor"],
                                     "long_factor": PHI_3["rope_scaling"]["short_factor"]}),
        "scaling-without-effect",
    ),
    "a part of the dimensions with a scaling, in a class that rotates all": (
        changed(LLAMA_3_1, partial_rotary_factor=0.5), "failing-layers",
    ),
    "the same in a Qwen": (changed(QWEN_YARN, partial_rotary_factor=0.5), "failing-layers"),
    "a part of the dimensions, in a class that rotates all": (
        changed(LLAMA_3_1, rope_scaling=..., partial_rotary_factor=0.5), "different-angles",
    ),
}  # fmt: skip


NOTED: dict[str, tuple[Settings, str]] = {
    "a raised length": (
        {**LLAMA, "max_position_embeddings": 131072, "rope_theta": 10000.0, "torch_dtype": "float16"},
        "length-beyond-wavelengths",
    ),
    "a factor of 1": (changed(LLAMA_3_1, rope_scaling={"factor": 1.0}), "scaling-without-effect"),
    "a setting of another class": (changed(LLAMA_3_1, rotary_pct=0.5), "unread-settings"),
    "a switch of another class": (changed(LLAMA_3_1, use_alibi=True), "unread-settings"),
    "chunks in a class that has none": (changed(LLAMA_3_1, attention_chunk_size=8192), "unread-settings"),
    "RoPE in a class that has none": (changed(SOUND["GPT-2"], rope_theta=10000.0), "unread-settings"),
    "an attention factor near the formula's": (
        changed(QWEN_YARN, max_position_embeddings=131072, rope_scaling={"attention_factor": 1.0}),
        "missing-attention-factor",
    ),
    "norms after the rotation": (
        {"architectures": ["HunYuanDenseV1ForCausalLM"], "model_type": "hunyuan_v1_dense", **SHAPE, "head_dim": 64,
         "max_position_embeddings": 32768, "rope_theta": 500000.0, "torch_dtype": "bfloat16"}, "unknown-rotation",
    ),
}  # fmt: skip
"""Settings that need not be a mistake."""


def written(folder: Path, settings: Settings) -> Path:
    """A model folder with these settings and no weights."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(settings))
    return folder
