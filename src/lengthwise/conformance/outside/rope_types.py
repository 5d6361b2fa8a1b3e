"""The rope types of transformers, with the settings of the comparison and explanations of their differences."""

from typing import Any

FLOAT32_EXPLANATIONS: dict[str, str] = {
    **dict.fromkeys(
        ("value at 32768", "value at 10^5", "value at 10^6"),
        "angles are float32: position · frequency has an error of up to about position · 6e-8 radians",
    ),
    **dict.fromkeys(
        ("bfloat16 at 512", "bfloat16 at 32768", "bfloat16 at 10^5"),
        "the frequencies are a buffer, which .to(bfloat16) rounds: an angle has a relative error of up to 1/256",
    ),
}
PACKED_EXPLANATIONS = {
    "packed, as called": "documents are separated by their positions only with use_cache=False; by default they attend to each "
    "other",
}
_BATCH = "the largest position of any row or document determines the angles of all"
DYNAMIC_EXPLANATIONS = {
    "decoding past": "cached keys stay rotated with the base of an earlier length",
    "history": "the base of the longest input stays until an input is shorter than the training length",
    "left padding": _BATCH,
    "packed": _BATCH,
}
LONGROPE_EXPLANATIONS = {
    "decoding past": "keys that were cached below the training length stay rotated with the short factors",
    "left padding": _BATCH,
    "packed": _BATCH,
}


def default(train_length: int, head_dim: int) -> dict[str, Any]:
    return {"rope_type": "default", "rope_theta": 10_000.0}


def linear(train_length: int, head_dim: int) -> dict[str, Any]:
    return {"rope_type": "linear", "rope_theta": 10_000.0, "factor": 4.0}


def dynamic(train_length: int, head_dim: int) -> dict[str, Any]:
    return {"rope_type": "dynamic", "rope_theta": 10_000.0, "factor": 2.0}


def yarn(train_length: int, head_dim: int) -> dict[str, Any]:
    return {
        "rope_type": "yarn",
        "rope_theta": 10_000.0,
        "factor": 4.0,
        "original_max_position_embeddings": train_length,
    }


def deepseek(train_length: int, head_dim: int) -> dict[str, Any]:
    return {**yarn(train_length, head_dim), "factor": 40.0, "beta_fast": 16.0, "beta_slow": 2.0, "truncate": False,
            "mscale": 1.0, "mscale_all_dim": 0.707}  # fmt: skip


def longrope(train_length: int, head_dim: int) -> dict[str, Any]:
    pairs = head_dim // 2
    return {"rope_type": "longrope", "rope_theta": 10_000.0, "factor": 4.0, "original_max_position_embeddings": train_length,
            "short_factor": [1.0 + 0.25 * p / pairs for p in range(pairs)],
            "long_factor": [1.0 + 3.0 * p / pairs for p in range(pairs)]}  # fmt: skip


def llama3(train_length: int, head_dim: int) -> dict[str, Any]:
    return {"rope_type": "llama3", "rope_theta": 10_000.0, "factor": 8.0, "original_max_position_embeddings": train_length,
            "low_freq_factor": 1.0, "high_freq_factor": 4.0}  # fmt: skip


def proportional(train_length: int, head_dim: int) -> dict[str, Any]:
    return {"rope_type": "proportional", "rope_theta": 10_000.0, "partial_rotary_factor": 0.5}
