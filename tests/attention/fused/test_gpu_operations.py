"""How many operations a GPU executes for one attention call: each waits for the host to launch it."""

import collections
from unittest import mock

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from lengthwise.attention import BACKENDS, Mask
from lengthwise.attention.fused import gpu, operator
from lengthwise.encodings import ENCODINGS, piecewise
from lengthwise.span import Span

pytestmark = pytest.mark.skipif(gpu.unsupported_reason() is not None, reason=str(gpu.unsupported_reason()))

TOKENS, HEADS, DIM = 300, 4, 64
# What launches nothing: views, memory without contents, and questions about tensors.
NOT_LAUNCHED = {
    "_unsafe_view", "alias", "as_strided", "detach", "empty", "empty_like", "empty_strided", "expand", "new_empty",
    "new_empty_strided", "permute", "resolve_neg", "select", "slice", "split", "split_with_sizes", "squeeze", "t",
    "transpose", "unbind", "unsqueeze", "view", "promote_types", "result_type",
}  # fmt: skip
OPERATORS = {
    "lengthwise::attention": operator.attention,
    "lengthwise::attention_backward": operator.attention_backward,
}


class Operations(TorchDispatchMode):
    """Count operations by name; those inside of our operators are counted in `inside` too."""

    def __init__(self):
        super().__init__()
        self.all, self.inside, self.depth = collections.Counter(), collections.Counter(), 0

    def count(self, name):
        self.all[name] += 1
        self.inside[name] += self.depth > 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        namespaced = function._schema.name
        if namespaced in OPERATORS:
            self.depth += 1
            with self:
                result = OPERATORS[namespaced]._init_fn(*args, **(kwargs or {}))
            self.depth -= 1
            return result
        if (name := namespaced.split("::")[1]) not in NOT_LAUNCHED:
            self.count(name)
        return function(*args, **(kwargs or {}))


def operations(name: str) -> Operations:
    """Count the operations of an encoding and of attention, forward and backward, without the first call of all."""
    from triton.runtime.jit import JITFunction

    encoding = ENCODINGS.parse(name).build(num_heads=HEADS, head_dim=DIM, d_model=HEADS * DIM, train_length=TOKENS)
    q, k, v, grad = (torch.randn(2, HEADS, TOKENS, DIM, dtype=torch.bfloat16) for _ in range(4))
    leaves = [x.requires_grad_() for x in (q, k, v)] + list(encoding.parameters())
    span, mask = Span.of(TOKENS), Mask(TOKENS, TOKENS)
    counted = Operations()

    def launch(kernel, *args, **kwargs):
        counted.count(kernel.fn.__name__)
        if kernel.fn.__name__ == "split_segments":
            args[kernel.arg_names.index("counts")].fill_(20)
            counted.all["fill_"] -= 1

    with (
        mock.patch.object(operator, "on_gpu", return_value=True),
        mock.patch.object(operator, "_is_eager_on_cpu", return_value=False),
        mock.patch.object(piecewise, "uses_library", return_value=False),
        mock.patch.object(piecewise, "uses_gpu_kernels", return_value=True),
        mock.patch.object(JITFunction, "run", launch),
    ):
        for _ in range(2):
            counted.all.clear()
            counted.inside.clear()
            with counted:
                attend = BACKENDS["fused"].prepare(encoding.modifiers(span), span, mask)
                torch.autograd.grad(attend(q, k, v, scale=0.125), leaves, grad)
    assert min(counted.all.values()) >= 0
    return counted


@pytest.mark.parametrize("name", ["ALiBi", "T5", "KerpleLog"])
def test_a_table_takes_at_most_10_operations(name):
    """They are those of the operator, without those that make the table."""
    counted = operations(name)
    assert 0 < counted.inside.total() <= 10, counted.inside


def test_fire_takes_at_most_40_operations():
    """They include those of the encoding."""
    counted = operations("FIRE")
    assert {"split_segments", "write_segments", "tables_backward", "sort_tiles", "key_gradients"} <= counted.all.keys()
    assert counted.all.total() <= 40, counted.all
