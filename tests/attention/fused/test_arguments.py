"""What is generated from the list of the fused operator's arguments."""

import ctypes

import pytest
import torch

from lengthwise.attention.fused import call
from lengthwise.attention.fused.arguments import LEARNED, Arguments, with_groups
from lengthwise.attention.fused.gpu.call import kernel_arguments


def test_the_header_of_the_library_is_that_of_the_list():
    """Otherwise C++ reads other memory than Python writes."""
    assert call.HEADER.read_text() == call.header(), f"write it again; see the first lines of {call.__file__}"
    assert ctypes.sizeof(call.Call) == sum(ctypes.sizeof(kind) for _, kind, _ in call.FIELDS)  # no padding


@pytest.mark.parametrize("name", ["attention", "attention_backward"])
def test_the_operators_take_the_arguments_in_their_order(name):
    schema = getattr(torch.ops.lengthwise, name).default._schema
    before = ["grad", "q", "k", "v", "out", "lse"] if name == "attention_backward" else ["q", "k", "v"]
    after = ["needs"] if name == "attention_backward" else []
    assert [argument.name for argument in schema.arguments] == [*before, *Arguments._fields, *after]
    assert len(schema.returns) == (3 + len(LEARNED) if name == "attention_backward" else 2)


def test_gradients_of_segments_are_computed_together():
    segments = {"slope", "intercept", "distance_feature", "query_scale", "feature_parameter"}
    assert with_groups(["query_scale", "table"]) == segments | {"table"}


def test_triton_kernels_get_sizes_and_strides():
    documents = torch.zeros(1, 7)
    args = kernel_arguments(Arguments(table=torch.zeros(2, 5), table_first=-1, documents=documents), window=None)
    assert (args.table_size, args.table_heads_step, args.table_first) == (5, 5, -1)
    assert args.documents is documents and args.documents_batch_step == 0  # all rows of the batch share them
    assert args.slope is None and args.segments is None and args.slope_heads_step is None
