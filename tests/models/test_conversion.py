"""Conversions lose nothing: the way back gives the same bits, and the converted thing computes the same."""

import doctest
import math
from typing import Any

import pytest
import torch
from hypothesis import example, given, reject
from hypothesis import strategies as st
from torch import Tensor

from lengthwise import encodings
from lengthwise.config import Choice, ConfigError, alternate, choose
from lengthwise.encodings import PI, T5, ALiBi, DynamicNTK, Llama3, LongRoPE, NoPE, NTKAware, PRoPE, RoPE, YaRN
from lengthwise.models import conversion
from lengthwise.models.conversion import (
    alibi_from_slopes,
    alibi_log_slopes,
    alibi_slopes,
    encoding_from_rope_parameters,
    half_from_interleaved,
    interleaved_from_half,
    rope_parameters_from_encoding,
    t5_table_from_weight,
    t5_weight_from_table,
    trained_length,
)
from lengthwise.span import Span


def test_the_examples_are_true() -> None:
    known = {**vars(conversion), **vars(encodings), "torch": torch, "choose": choose}
    finder, runner = doctest.DocTestFinder(recurse=False), doctest.DocTestRunner()
    for name in conversion.__all__:
        for test in finder.find(getattr(conversion, name), name, globs=dict(known)):
            runner.run(test)
    assert runner.failures == 0
    assert runner.tries >= 7


# ---- the order of dims ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize(("heads", "dim", "rotary"), [(4, 16, None), (1, 2, None), (3, 10, 6), (2, 8, 2), (5, 6, 6)])
@pytest.mark.parametrize("shape", [(7,), ()], ids=["weight", "bias"])
def test_there_and_back_gives_the_same_bits(dtype, heads, dim, rotary, shape) -> None:
    weight = torch.randn(heads * dim, *shape).to(dtype)
    sizes: Any = {"num_heads": heads, "head_dim": dim, "rotary_dims": rotary}
    half = half_from_interleaved(weight, **sizes)
    assert torch.equal(interleaved_from_half(half, **sizes), weight)
    assert torch.equal(half_from_interleaved(interleaved_from_half(weight, **sizes), **sizes), weight)
    assert half.dtype == weight.dtype
    if dim > 2 and rotary != 2:
        assert not torch.equal(half, weight)


@pytest.mark.parametrize(("fraction", "groups"), [(1.0, 4), (0.5, 2), (0.5, 1)])
def test_logits_stay_with_the_other_layout(fraction: float, groups: int) -> None:
    """One input through weights of either order, rotated in that order; grouped queries have fewer heads of keys."""
    heads, dim, width, tokens = 4, 8, 12, 9
    torch.manual_seed(0)
    x = torch.randn(1, tokens, width, dtype=torch.float64)
    wq, wk = torch.randn(heads * dim, width).double(), torch.randn(groups * dim, width).double()
    bq, bk = torch.randn(heads * dim).double(), torch.randn(groups * dim).double()

    def logits(layout: str, wq: Tensor, bq: Tensor, wk: Tensor, bk: Tensor) -> Tensor:
        rope = RoPE(head_dim=dim, rotary_fraction=fraction, layout=layout)  # type: ignore[arg-type]
        rotation = rope.modifiers(Span.of(tokens)).rotation
        assert rotation is not None
        q, k = ((x @ w.T + b).unflatten(-1, (-1, dim)).transpose(1, 2) for w, b in ((wq, bq), (wk, bk)))
        return rotation.rotate_query(q) @ rotation.rotate_key(k).repeat_interleave(heads // groups, 1).mT

    dims = int(fraction * dim)
    q_size: Any = {"num_heads": heads, "head_dim": dim, "rotary_dims": dims}
    k_size: Any = {"num_heads": groups, "head_dim": dim, "rotary_dims": dims}
    wanted = logits("interleaved", wq, bq, wk, bk)
    turned = [half_from_interleaved(w, **q_size) for w in (wq, bq)] + [
        half_from_interleaved(w, **k_size) for w in (wk, bk)
    ]
    torch.testing.assert_close(logits("half", *turned), wanted, rtol=0, atol=1e-12)
    assert not torch.allclose(logits("half", wq, bq, wk, bk), wanted)


@pytest.mark.parametrize(
    ("rows", "sizes", "said"),
    [
        (48, {"num_heads": 4, "head_dim": 8}, "must have 32 rows for 4 heads of 8 dims, got 48"),
        (32, {"num_heads": 4, "head_dim": 8, "rotary_dims": 3}, "rotary_dims must be even.*got 3"),
        (32, {"num_heads": 4, "head_dim": 8, "rotary_dims": 10}, "2 to head_dim 8"),
        (32, {"num_heads": 4, "head_dim": 8, "rotary_dims": 0}, "rotary_dims must be even.*got 0"),
    ],
)
def test_what_does_not_fit_is_refused(rows: int, sizes: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        half_from_interleaved(torch.zeros(rows, 3), **sizes)


# ---- tables and slopes ------------------------------------------------------------------------------------------


def test_t5s_table_is_turned_over_and_back() -> None:
    table = torch.randn(32, 6).bfloat16()
    weight = t5_weight_from_table(table)
    assert torch.equal(t5_table_from_weight(weight), table)
    t5 = T5(num_heads=6)
    t5.load_state_dict({"weight": weight})  # its shape fits
    assert torch.equal(t5.bias(torch.tensor([3]))[:, 0], table[3].double())


@pytest.mark.parametrize("heads", [1, 3, 8, 71])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_slopes_go_out_and_come_back(heads: int, dtype: torch.dtype) -> None:
    slopes = alibi_slopes(heads)
    assert torch.equal(-ALiBi(num_heads=heads).bias(torch.tensor([1]))[:, 0], slopes)
    assert alibi_from_slopes(slopes.to(dtype).view(-1, 1, 1)) == choose(ALiBi)


def test_slopes_that_are_not_the_published_ones_are_refused() -> None:
    learned = alibi_slopes(8).float()
    learned[3] *= 1.001
    with pytest.raises(ConfigError, match="slope 3 of 8 heads"):
        alibi_from_slopes(learned)
    with pytest.raises(ConfigError, match="slope 0 of 12 heads"):
        alibi_from_slopes(alibi_slopes(12).flip(0))
    with pytest.raises(ConfigError, match="nan"):
        alibi_from_slopes(torch.full((4,), torch.nan))


def test_other_slopes_are_those_of_learned_ones() -> None:
    given = torch.tensor([0.5, 1e-4, 3.0, 0.01]).view(4, 1, 1)
    alibi = ALiBi(num_heads=4, learned=True)
    alibi.load_state_dict({"log_slopes": alibi_log_slopes(given)})
    torch.testing.assert_close(torch.tensor(alibi.slopes), given.flatten(), rtol=1e-6, atol=0)
    assert torch.equal(alibi_log_slopes(alibi_slopes(6)).exp().float(), alibi_slopes(6).float())
    for wrong in (0.0, -0.5, torch.inf, torch.nan):
        with pytest.raises(ConfigError, match="slope 1 of 2 heads"):
            alibi_log_slopes(torch.tensor([0.5, wrong]))


# ---- rope_parameters --------------------------------------------------------------------------------------------

FOUR = [1.0, 1.5, 2.0, 4.0]
PARAMETERS: list[tuple[dict[str, Any], Choice]] = [
    ({"rope_type": "default", "rope_theta": 10000.0}, choose(RoPE, layout="half")),
    (
        {"rope_type": "default", "rope_theta": 5e5, "partial_rotary_factor": 0.25},
        choose(RoPE, base=5e5, rotary_fraction=0.25, layout="half"),
    ),
    ({"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.5}, choose(PI, factor=2.5, layout="half")),
    ({"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}, choose(DynamicNTK, factor=2.0, layout="half")),
    (
        {"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0, "original_max_position_embeddings": 64},
        choose(YaRN, base=1e6, factor=4.0, layout="half"),
    ),
    (
        {"rope_type": "yarn", "rope_theta": 1e6, "factor": 8.0, "beta_fast": 16.0, "beta_slow": 2.0, "truncate": False,
         "attention_factor": 1.25, "partial_rotary_factor": 0.5, "original_max_position_embeddings": 64},
        choose(YaRN, base=1e6, factor=8.0, beta_fast=16.0, beta_slow=2.0, truncate=False, attention_factor=1.25,
               rotary_fraction=0.5, layout="half"),
    ),
    (
        {"rope_type": "yarn", "rope_theta": 1e4, "factor": 40.0, "mscale": 1.0, "mscale_all_dim": 0.707,
         "original_max_position_embeddings": 64},
        choose(YaRN, factor=40.0, mscale=1.0, mscale_all_dim=0.707, layout="half"),
    ),
    (
        {"rope_type": "longrope", "rope_theta": 1e4, "short_factor": FOUR, "long_factor": FOUR[::-1], "factor": 32.0,
         "original_max_position_embeddings": 64},
        choose(LongRoPE, short_factor=tuple(FOUR), long_factor=tuple(FOUR[::-1]), factor=32.0, layout="half"),
    ),
    (
        {"rope_type": "llama3", "rope_theta": 5e5, "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
         "original_max_position_embeddings": 64},
        choose(Llama3, base=5e5, factor=32.0, layout="half"),
    ),
    (
        {"rope_type": "proportional", "rope_theta": 1e6, "partial_rotary_factor": 0.5},
        choose(PRoPE, base=1e6, p=0.5, layout="half"),
    ),
    ({"rope_type": "proportional", "rope_theta": 1e6}, choose(PRoPE, base=1e6, p=1.0, layout="half")),
]  # fmt: skip


@pytest.mark.parametrize(("parameters", "choice"), PARAMETERS)
def test_rope_parameters_go_in_and_come_back(parameters: dict[str, Any], choice: Choice) -> None:
    before = dict(parameters)
    assert encoding_from_rope_parameters(parameters, head_dim=8) == choice
    assert parameters == before
    back = rope_parameters_from_encoding(choice, train_length=64)
    assert back == parameters
    assert encoding_from_rope_parameters(back, head_dim=8) == choice
    choice.build(head_dim=8, train_length=64)


def test_the_spelling_of_older_versions() -> None:
    old = {"type": "linear", "factor": 4}
    assert encoding_from_rope_parameters(old, head_dim=8, rope_theta=5e5) == choose(
        PI, base=5e5, factor=4.0, layout="half"
    )
    assert encoding_from_rope_parameters({**old, "rope_type": "dynamic"}, head_dim=8).name == "DynamicNTK"
    assert encoding_from_rope_parameters({}, head_dim=8) == choose(RoPE, layout="half")
    # A theta of the dictionary comes first, as there.
    assert dict(encoding_from_rope_parameters({"rope_theta": 2e4}, head_dim=8, rope_theta=5e5).settings)["base"] == 2e4


def test_nothing_is_our_default_that_is_not_theirs() -> None:
    """What is left out has the value that it has there."""
    given = encoding_from_rope_parameters({"rope_type": "yarn", "factor": 2.0, "beta_fast": None}, head_dim=8)
    assert dict(given.settings)["beta_fast"] == 32.0
    assert dict(encoding_from_rope_parameters({"rope_type": "proportional"}, head_dim=8).settings)["p"] == 1.0
    # One of DeepSeek's scales alone says nothing there, and both nothing beside attention_factor.
    alone = {"rope_type": "yarn", "factor": 2.0, "mscale": 0.7}
    assert encoding_from_rope_parameters(alone, head_dim=8) == choose(YaRN, factor=2.0, layout="half")
    beside = {"rope_type": "yarn", "factor": 2.0, "mscale": 0.7, "mscale_all_dim": 0.7, "attention_factor": 1.5}
    wanted = choose(YaRN, factor=2.0, attention_factor=1.5, layout="half")
    assert encoding_from_rope_parameters(beside, head_dim=8) == wanted


def test_a_factor_that_is_two_lengths() -> None:
    phi = {"type": "longrope", "short_factor": FOUR, "long_factor": FOUR, "original_max_position_embeddings": 4096}
    choice = encoding_from_rope_parameters(phi, head_dim=8, max_position_embeddings=131072)
    assert dict(choice.settings)["factor"] == 32.0
    with pytest.raises(ConfigError, match="give both"):
        encoding_from_rope_parameters(phi, head_dim=8)


def test_a_part_that_a_product_rounds_is_the_part_of_transformers() -> None:
    choice = encoding_from_rope_parameters({"partial_rotary_factor": 0.58}, head_dim=50)
    assert choice.build(head_dim=50).rotary_dims == 28  # int(0.58 * 50): the product is 28.999999999999996


def test_a_part_that_is_whole_in_its_own_head_alone() -> None:
    """Phi-2 turns 0.4 of 80 dims: 32; of the 64 that a choice is tried with it would be 25."""
    choice = encoding_from_rope_parameters({"partial_rotary_factor": 0.4}, head_dim=80)
    assert choice.build(head_dim=80).rotary_dims == 32
    assert rope_parameters_from_encoding(choice) == {
        "rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.4
    }  # fmt: skip


@pytest.mark.parametrize(("make", "of"), [(RoPE, 1), (PRoPE, 2)])
@given(dims=st.integers(1, 512), head_dim=st.integers(1, 512), digits=st.sampled_from([2, 3, 17]))
@example(dims=29, head_dim=50, digits=2)
@example(dims=29, head_dim=50, digits=17)
def test_a_fraction_is_the_same_dims_there_and_back(make: Any, of: int, dims: int, head_dim: int, digits: int) -> None:
    """Whatever head it is of, also where a fraction is whole dims but for the rounding of a product."""
    name = "rotary_fraction" if make is RoPE else "p"
    try:
        choice = choose(make, **{name: round(min(dims / head_dim, 1.0), digits)}, layout="half")
        ours = choice.build(head_dim=2 * head_dim)
    except ConfigError:
        reject()  # an odd number of dims, or none
    parameters = rope_parameters_from_encoding(choice)
    turning = ours.rotary_dims if make is RoPE else ours.rotated_pairs
    # As transformers rounds.
    assert parameters is not None
    assert int(2 * head_dim * parameters.get("partial_rotary_factor", 1.0) // of) == turning
    back = encoding_from_rope_parameters(parameters, head_dim=2 * head_dim)
    again = back.build(head_dim=2 * head_dim)
    assert torch.equal(again.frequencies(torch.tensor(1)), ours.frequencies(torch.tensor(1)))
    assert rope_parameters_from_encoding(back) == parameters


def test_a_fraction_that_no_number_is_to_them_is_refused() -> None:
    # Ours takes it as a third of heads of up to some 300 dims, and as less of larger ones.
    with pytest.raises(ConfigError, match="all its digits"):
        rope_parameters_from_encoding(choose(RoPE, rotary_fraction=0.33333333333))


@pytest.mark.parametrize("scales", [(0.0, 1.0), (0.5, 0.0), (0.0, 0.0), (1.0, 0.707), (0.5, 0.5), (1.0, 0.0)])
def test_yarns_gain_comes_back_or_is_refused(scales: tuple[float, float]) -> None:
    choice = choose(YaRN, mscale=scales[0], mscale_all_dim=scales[1])
    told: Any = {"head_dim": 8, "train_length": 64}
    if 0.0 in scales and scales != (1.0, 0.0):
        with pytest.raises(ConfigError, match="give attention_factor"):
            rope_parameters_from_encoding(choice, train_length=64)
        return
    back = encoding_from_rope_parameters(rope_parameters_from_encoding(choice, train_length=64), head_dim=8)
    assert back.build(**told).attention_factor == choice.build(**told).attention_factor


def test_a_layer_without_rope() -> None:
    assert encoding_from_rope_parameters(None, head_dim=8) == choose(NoPE)
    assert rope_parameters_from_encoding(choose(NoPE)) is None


def test_the_layout_of_the_weights_can_be_said() -> None:
    assert encoding_from_rope_parameters({}, head_dim=8, layout="interleaved") == choose(RoPE)


def test_the_trained_length() -> None:
    assert trained_length({"rope_type": "yarn", "original_max_position_embeddings": 4096}, 131072) == 4096
    assert trained_length({"type": "longrope"}, 2048) == 2048
    assert trained_length(None, 2048) == 2048
    # "dynamic" does not read the key there.
    assert trained_length({"rope_type": "dynamic", "original_max_position_embeddings": 4096}, 2048) == 2048


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        (
            {"rope_type": "lama3"},
            "no counterpart of rope_type 'lama3'; did you mean 'llama3'.*default, linear, dynamic",
        ),
        ({"rope_type": "llama3", "factor": 8.0}, "'llama3' needs low_freq_factor"),
        ({"rope_type": "linear", "factor": None}, "'linear' needs factor, and rope_parameters has: rope_type$"),
        ({"rope_type": "yarn"}, "give both"),
        ({"rope_type": "linear", "factor": 2.0, "mrope_section": [1]}, "no counterpart of 'mrope_section'"),
        ({"rope_type": "proportional", "factor": 2.0}, "no counterpart of 'factor'"),
        ({"full_attention": {"rope_type": "default"}, "sliding_attention": None}, "full_attention, sliding_attention"),
        ({"rope_type": "linear", "factor": 0.5}, "factor"),
        ({"rope_type": "yarn", "factor": 2.0, "truncate": 1}, "truncate must be true or false.* got 1"),
        ({"rope_theta": "1e4"}, "base must be .*got '1e4'"),
        ({"rope_theta": -1.0}, "base must be .*got -1.0"),
        ({"partial_rotary_factor": 1.5}, "partial_rotary_factor must be .*more than 0 and at most 1"),
        ({"partial_rotary_factor": 0.4}, "0.4 of head_dim 8 must be an even number .*got 3"),
        (
            {"rope_type": "longrope", "factor": 4.0, "short_factor": FOUR[:3], "long_factor": FOUR},
            "short_factor must have 4 numbers, .*4 pairs of 8 rotated dimensions, got 3",
        ),
        (
            {"rope_type": "longrope", "factor": 4.0, "short_factor": [math.nan] * 4, "long_factor": FOUR},
            "short_factor.*finite",
        ),
    ],
)
def test_what_has_no_counterpart_is_said(parameters: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as error:
        encoding_from_rope_parameters(parameters, head_dim=8)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        (choose(NTKAware), "no rope_type for NTKAware.*RoPE, PI"),
        (choose(DynamicNTK, scale_step=64), "no counterpart of scale_step=64"),
        (choose(YaRN, ramp="rotations"), "no counterpart of ramp='rotations'"),
        (choose(YaRN, mscale=0.5), "must both differ from 0 .*got 0.5 and 0.* in YaRN"),
        (choose(LongRoPE), "needs short_factor"),
        (choose(YaRN), "give train_length"),
        (alternate(choose(RoPE), choose(NoPE)), "pattern"),
    ],
)
def test_what_they_have_no_counterpart_of_is_said(choice: Choice, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        rope_parameters_from_encoding(choice)
