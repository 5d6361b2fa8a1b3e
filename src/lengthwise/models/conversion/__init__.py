"""Convert weights and settings of other libraries to ours and back, without loss."""

from lengthwise.models.conversion.rope_parameters import (
    encoding_from_rope_parameters,
    equivalent,
    known_keys,
    rope_parameters_from_encoding,
    trained_length,
)
from lengthwise.models.conversion.weights import (
    alibi_from_slopes,
    alibi_log_slopes,
    alibi_slopes,
    half_from_interleaved,
    interleaved_from_half,
    mamba_from_transformers,
    mamba_to_transformers,
    t5_table_from_weight,
    t5_weight_from_table,
)

__all__ = [
    "alibi_from_slopes",
    "alibi_log_slopes",
    "alibi_slopes",
    "encoding_from_rope_parameters",
    "equivalent",
    "half_from_interleaved",
    "interleaved_from_half",
    "known_keys",
    "mamba_from_transformers",
    "mamba_to_transformers",
    "rope_parameters_from_encoding",
    "t5_table_from_weight",
    "t5_weight_from_table",
    "trained_length",
]
