"""The groups of the fused operators' arguments: flattened in the order of the schemas, and back."""

import pytest
import torch

from lengthwise.attention.fused import arguments
from lengthwise.attention.fused.arguments import (
    Arguments,
    Biases,
    Geometry,
    RelativeArguments,
    Rotary,
    Rows,
    Segments,
    ValueVectors,
    Vectors,
)

SEGMENTS = Segments(*["slope", "intercept", "knots", "distance_feature", "query_scale"])
BIASES = Biases("table", "first", SEGMENTS)
GEOMETRY = Geometry("position_q", "position_k", "documents", "causal", "window")

LAST = "sink", "prefix_sum", ValueVectors("value_vectors", "value_first")


def test_a_group_has_the_names_of_the_schema():
    """Every argument is its own name here."""
    call = Arguments(
        BIASES, Rows("rows", "rows_first"), GEOMETRY, "scale", Rotary("cos_sin_q", "cos_sin_k", "interleaved"), *LAST
    )
    assert call.flatten() == tuple(name for _, name in arguments.declared(arguments.ATTENTION)[3:])
    assert Arguments.unflatten(call.flatten()) == call
    products = RelativeArguments(Vectors("content", "relative", "relative_first"), BIASES, GEOMETRY, "scale", *LAST)
    assert products.flatten() == tuple(name for _, name in arguments.declared(arguments.RELATIVE)[3:])
    assert RelativeArguments.unflatten(products.flatten()) == products


@pytest.mark.parametrize("left_out", range(8))
def test_a_dispatcher_may_leave_out_the_last_arguments(left_out):
    call = Arguments(Biases(torch.zeros(1, 3), -1), geometry=Geometry(window=5), scale=0.5)
    flat = call.flatten()
    assert Arguments.unflatten(flat[: len(flat) - left_out]) == call


@pytest.mark.parametrize(
    ("schema", "forward"),
    [
        (arguments.ATTENTION_BACKWARD, arguments.ATTENTION),
        (arguments.RELATIVE_BACKWARD, arguments.RELATIVE),
    ],
)
def test_a_backward_operator_takes_what_the_forward_operator_takes(schema, forward):
    names, of_forward = ([name for _, name in arguments.declared(s)] for s in (schema, forward))
    assert names[:6] == ["grad", "q", "k", "v", "out", "lse"]
    assert names[6 : 6 + len(of_forward) - 3] == of_forward[3:]
    assert all(name.startswith("needs_") for name in names[3 + len(of_forward) :])


@pytest.mark.parametrize(
    "name", ["attention", "attention_backward", "relative_attention", "relative_attention_backward"]
)
def test_torch_knows_the_operators_by_these_schemas(name):
    declared = getattr(arguments, name.upper().replace("RELATIVE_ATTENTION", "RELATIVE"))
    known = getattr(torch.ops.lengthwise, name).default._schema
    assert [argument.name for argument in known.arguments] == [name for _, name in arguments.declared(declared)]
