"""What users of other libraries type: one line that says what to write here."""

import dataclasses
import inspect
import re

import pytest
import torch

import lengthwise
from lengthwise import attention, encodings
from lengthwise.attention import Bins, EncodingCache, TokenInfo
from lengthwise.attention.call_checks import INSTEAD
from lengthwise.config import ConfigError, ModelConfig, choose, context_of, settings_of
from lengthwise.conformance import EncodingCase
from lengthwise.encodings import ENCODINGS
from lengthwise.values import NAMES_ELSEWHERE, ArgumentError


def bare(function):
    """Without the checks of shapes that tests have."""
    return inspect.unwrap(function)


def qkv(heads=8, tokens=16, dim=4, groups=None):
    torch.manual_seed(0)
    return [torch.randn(2, h, tokens, dim) for h in (heads, groups or heads, groups or heads)]


# ---- arguments of calls


@pytest.mark.parametrize("name", INSTEAD)
def test_other_names_are_said_with_what_to_write(name):
    with pytest.raises(ArgumentError) as error:
        bare(lengthwise.attend)(*qkv(), **{name: None})
    assert str(error.value) == f"attend has no argument {name!r}: {INSTEAD[name]}"
    assert isinstance(error.value, TypeError)
    arguments = set(re.findall(r"(\w+)=", re.sub(r"TokenInfo\(\w+=\.\.\.\)", "", INSTEAD[name])))
    assert arguments <= set(inspect.signature(bare(lengthwise.attend)).parameters)


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(TokenInfo)])
def test_fields_are_no_arguments(name):
    with pytest.raises(ArgumentError, match=rf"^attend has no argument '{name}': write tokens=TokenInfo\({name}=...\)"):
        bare(lengthwise.attend)(*qkv(), **{name: None})


def test_a_name_that_nobody_has_gets_the_near_miss():
    words = "attend has no argument 'windows'; did you mean 'window'.; its arguments are: q, k, v, encoding, tokens"
    with pytest.raises(ArgumentError, match=words):
        bare(lengthwise.attend)(*qkv(), windows=3)


def test_the_names_that_are_listed_are_those_that_there_are():
    parameters = inspect.signature(bare(lengthwise.attend)).parameters
    names = [parameter.name for parameter in parameters.values() if parameter.kind is not parameter.VAR_KEYWORD]
    with pytest.raises(ArgumentError, match="its arguments are: " + ", ".join(names) + "$"):
        bare(lengthwise.attend)(*qkv(), qqqqq=1)


# ---- shapes that do not fit


@pytest.mark.parametrize(
    ("shape_q", "shape_k", "words"),
    [
        ((2, 1, 8, 4), (2, 16, 8, 4), "heads of q must be a multiple of that of k and v, got 1 and 16"),
        ((2, 3, 5, 4), (2, 2, 5, 4), "heads of q must be a multiple of that of k and v, got 3 and 2"),
        ((2, 16, 8, 4), (2, 16, 2, 4), "q must have 1 to 2 tokens, the last of the 2 tokens of k, got 8"),
    ],
)
def test_shapes_that_do_not_fit_are_shown_with_the_axes(shape_q, shape_k, words):
    q, k = torch.zeros(shape_q), torch.zeros(shape_k)
    axes = re.escape(f"the axes are [batch, heads, tokens, head_dim], got q {shape_q}, k {shape_k}, v {shape_k}")
    with pytest.raises(ConfigError, match=f"{words}; {axes}$"):
        bare(lengthwise.attend)(q, k, k)


def test_an_encoding_of_another_number_of_heads():
    q, k, v = (x.transpose(1, 2) for x in qkv())
    axes = re.escape("its axes are [batch, heads, tokens, head_dim], got (2, 16, 8, 4)")
    with pytest.raises(
        ConfigError, match=rf"^FIRE was made for 8 heads, and q has 16 \({axes}\); use FIRE\(num_heads=16\)"
    ):
        bare(lengthwise.attend)(q, k, v, encodings.FIRE(num_heads=8))
    for rotation in (encodings.LieRE, encodings.RoPEMixed):  # 4 heads would also fit 8, as heads that share angles
        with pytest.raises(
            ConfigError, match=rf"made for 4 heads, and q has 8 .*; use {rotation.__name__}\(num_heads=8\)"
        ):
            bare(lengthwise.attend)(*qkv(), rotation(num_heads=4, head_dim=16))


# ---- whose forms they are


@pytest.mark.parametrize("name", ["FIRE", "DAPE", "FoX", "LogN", "XPos"])
def test_a_refusal_names_the_encoding(name):
    made_for = {"num_heads": 8, "head_dim": 4, "d_model": 32, "train_length": 8}
    encoding = ENCODINGS.parse(name).build(**made_for)
    x = torch.zeros(2, 16, 32) if encoding.reads_content() else None
    with pytest.raises(ConfigError, match=f"^{name} is not defined for keys after the query"):
        bare(lengthwise.attend)(*qkv(), encoding, tokens=TokenInfo(x=x), causal=False)
    with pytest.raises(ConfigError, match=f"^{name} is not defined for keys after the query"):
        bare(attention.statistics)(*qkv()[:2], encoding, tokens=TokenInfo(x=x), causal=False)


def test_a_backend_s_refusal_names_the_encoding():
    q, k, v = qkv()
    with pytest.raises(
        ConfigError,
        match=r"'sdpa' does not support this call: LogitTransform needs whole rows of logits.* \(CoPE\); use",
    ):
        bare(lengthwise.attend)(q, k, v, encodings.CoPE(head_dim=4), backend="sdpa")


# ---- settings


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("rope:theta=500000", "RoPE has no setting 'theta'; did you mean 'base'"),
        ("yarn:scaling_factor=8", "YaRN has no setting 'scaling_factor'; did you mean 'factor'"),
        ("rope:rotary_pct=0.25", "did you mean 'rotary_fraction'"),
        ("t5:relative_attention_num_buckets=64", "did you mean 'num_buckets'"),
        ("learned:max_position_embeddings=9", "did you mean 'max_length'"),
        ("rope:bsae=3", "did you mean 'base'"),
    ],
)
def test_other_names_of_settings(text, words):
    with pytest.raises(ArgumentError, match=words):
        ENCODINGS.parse(text)
    name, _, setting = text.partition(":")
    key, _, value = setting.partition("=")
    with pytest.raises(ArgumentError, match=words):
        choose(ENCODINGS.find(name), **{key: float(value)})
    with pytest.raises(TypeError, match=words):  # and of Python's keywords
        ENCODINGS.find(name)(**{key: float(value)})


def test_what_the_model_tells_has_other_names_too():
    with pytest.raises(ArgumentError, match="RoPE has no setting 'dim'; did you mean 'head_dim'"):
        encodings.RoPE(dim=64)
    with pytest.raises(ArgumentError, match="FIRE has no setting 'n_heads'; did you mean 'num_heads'"):
        encodings.FIRE(n_heads=8)


def test_every_alias_leads_to_a_setting_that_there_is():
    there = {name for make in ENCODINGS for name in (*context_of(make), *settings_of(make))}
    there |= set(inspect.signature(ModelConfig).parameters)
    assert there >= set(NAMES_ELSEWHERE)
    assert there & {name for others in NAMES_ELSEWHERE.values() for name in others} == {"dim"}  # of Sandwich


@pytest.mark.parametrize(
    ("make", "settings", "shown"),
    [
        (encodings.RoPE, {}, "RoPE"),
        (encodings.RoPE, {"base": 500_000.0}, "RoPE(base=500000.0)"),
        (encodings.YaRN, {}, "YaRN(factor=4.0)"),
        (encodings.YaRN, {"factor": 8.0, "mscale": 0.5}, "YaRN(factor=8.0, mscale=0.5)"),
        (encodings.PI, {}, "PI(factor=4.0)"),
        (encodings.NTKAware, {}, "NTKAware(factor=4.0)"),
        (encodings.NTKByParts, {}, "NTKByParts(factor=4.0)"),
        (encodings.Llama3, {}, "Llama3(factor=8.0)"),
        (encodings.LongRoPE, {}, "LongRoPE(factor=4.0)"),
        (encodings.DynamicNTK, {}, "DynamicNTK"),
        (encodings.DynamicNTK, {"factor": 2.0}, "DynamicNTK(factor=2.0)"),
        (encodings.T5, {"std": 0.5, "num_buckets": 64}, "T5(num_buckets=64, std=0.5)"),
    ],
)
def test_labels_and_representations_show_what_was_chosen(make, settings, shown):
    assert choose(make, **settings).label == shown
    told = {"head_dim": 8, "num_heads": 2, "train_length": 16}
    told = {name: value for name, value in told.items() if name in inspect.signature(make).parameters}
    made = make(**told, **settings)
    assert repr(made) == (shown if "(" in shown else f"{shown}()")
    assert repr(choose(make, **settings).build(**told)) == repr(made)


@pytest.mark.medium
def test_two_choices_never_have_one_label():
    for make in ENCODINGS:
        labels = [case.choice.label for case in EncodingCase.of(make).variants()]
        assert len(set(labels)) == len(labels), make.__name__


def test_encodings_are_separated_by_spaces():
    for text, words in {
        "rope,alibi": "'rope,alibi': separate encodings with spaces, as in: rope alibi",
        "fire:L=8,alibi": "'fire:L=8,alibi': separate encodings with spaces instead of commas: ... alibi ...",
    }.items():
        with pytest.raises(ConfigError, match=words):
            ENCODINGS.parse(text)
    with pytest.raises(ConfigError, match="there is no encoding 'rope,qqq'"):
        ENCODINGS.parse("rope,qqq")


# ---- a decoding loop with a scale that follows the length


@pytest.mark.parametrize("name", ["DynamicNTK", "DynamicYaRN", "LongRoPE"])
@torch.no_grad()
def test_a_loop_is_warned_when_the_scale_changes(name):
    encoding = ENCODINGS.parse(name).build(num_heads=2, head_dim=4, d_model=8, train_length=8)
    q, k, v = qkv(heads=2)
    kept = EncodingCache()
    for n in range(5, 9):  # up to the trained length there is one scale
        lengthwise.attend(q[:, :, n - 1 : n], k[:, :, :n], v[:, :, :n], encoding, encoding_cache=kept)
    with pytest.warns(
        UserWarning, match=f"{name} has another scale at length 9 than at 5, where this decoding loop began"
    ):
        lengthwise.attend(q[:, :, 8:9], k[:, :, :9], v[:, :, :9], encoding, encoding_cache=kept)
    lengthwise.attend(
        q[:, :, 9:10], k[:, :, :10], v[:, :, :10], encoding, encoding_cache=kept
    )  # once: a warning would be an error
    for n in (7, 9):  # each step of one layer is the last row of one forward over as many tokens
        step = lengthwise.attend(q[:, :, n - 1 : n], k[:, :, :n], v[:, :, :n], encoding)
        whole = lengthwise.attend(q[:, :, :n], k[:, :, :n], v[:, :, :n], encoding)
        torch.testing.assert_close(step, whole[:, :, -1:], rtol=1e-5, atol=1e-6)


@torch.no_grad()
def test_other_encodings_are_not_warned(recwarn):
    kept, (q, k, v) = EncodingCache(), qkv(heads=2)
    for n in range(5, 16):
        lengthwise.attend(q[:, :, n - 1 : n], k[:, :, :n], v[:, :, :n], encodings.RoPE(head_dim=4), encoding_cache=kept)
    assert not [w for w in recwarn if "another scale" in str(w.message)]


def test_first_and_last_of_statistics_may_be_more_than_64_bits_hold() -> None:
    q = torch.randn(1, 2, 9, 8)
    found = attention.statistics(q, q, bins=Bins(first=2**64, last=2**64 + 1))
    for mass in (found.first, found.last):
        torch.testing.assert_close(mass, torch.ones_like(mass))
