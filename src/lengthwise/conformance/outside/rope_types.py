"""The rope types of transformers, with the settings of the comparison and explanations of their differences."""

from typing import Any

from lengthwise.conformance.outside.implementation import row_explanations

ROTARY_EXPLANATIONS = {
    **row_explanations(
        float32="angles are float32: position · frequency has an error of up to about position · 6e-8 radians",
        bfloat16="the frequencies are a buffer, which .to(bfloat16) rounds: an angle has a relative error of up to 1/256",
    ),
    "packed, as called": "documents are separated by their positions only with use_cache=False; by default they attend to each "
    "other",
}
_BATCH = "the largest position of any row or document determines the angles of all"
EXPLANATIONS = {
    "dynamic": {
        "decoding past": "cached keys stay rotated with the base of an earlier length",
        "history": "the base of the longest input stays until an input is shorter than the training length",
        "left padding": _BATCH,
        "packed": _BATCH,
    },
    "longrope": {
        "decoding past": "keys that were cached below the training length stay rotated with the short factors",
        "left padding": _BATCH,
        "packed": _BATCH,
    },
}
NAMES = ("default", "linear", "dynamic", "yarn", "deepseek", "longrope", "llama3", "proportional")


def rope_parameters(name: str, train_length: int, head_dim: int) -> dict[str, Any]:
    """Return the `rope_parameters` of a configuration. `name` is a rope type, or "deepseek" for its settings of YaRN."""
    pairs, trained = head_dim // 2, {"original_max_position_embeddings": train_length}
    settings: dict[str, dict[str, Any]] = {
        "default": {},
        "linear": {"factor": 4.0},
        "dynamic": {"factor": 2.0},
        "yarn": {"factor": 4.0, **trained},
        "deepseek": {"rope_type": "yarn", "factor": 40.0, **trained, "beta_fast": 16.0, "beta_slow": 2.0, "truncate": False,
                     "mscale": 1.0, "mscale_all_dim": 0.707},
        "longrope": {"factor": 4.0, **trained, "short_factor": [1.0 + 0.25 * p / pairs for p in range(pairs)],
                     "long_factor": [1.0 + 3.0 * p / pairs for p in range(pairs)]},
        "llama3": {"factor": 8.0, **trained, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
        "proportional": {"partial_rotary_factor": 0.5},
    }  # fmt: skip
    return {"rope_type": name, "rope_theta": 10_000.0, **settings[name]}
