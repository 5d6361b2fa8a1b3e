"""Inspection: numbers that were computed without Lengthwise, and plain data for every encoding there is."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from lengthwise.config import ConfigError, choose
from lengthwise.encodings import (
    ENCODINGS,
    FIRE,
    T5,
    ALiBi,
    KerpleLog,
    Learned,
    NoPE,
    PositionEncoding,
    RoPE,
    Sinusoidal,
)
from lengthwise.forms import AttentionModifiers, DenseBias, LogitTransform, QueryGain
from lengthwise.inspection import MOST, inspect

VECTORS = Path(__file__).parent / "vectors"


def cases(what: str, encoding: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """The cases of a kind, each with the name of its encoding."""
    for path in sorted(VECTORS.glob("*.json")):
        file = json.loads(path.read_text(encoding="utf-8"))
        if encoding in ("", file["encoding"]):
            yield from ((file["encoding"], case) for case in file["cases"] if case["what"] == what)


def inspected(name: str, case: dict[str, Any], **more: Any) -> dict[str, Any]:
    furthest = max([*case.get("query", []), *case.get("key", []), *case.get("positions", [])])
    context = {"num_heads": 2, "head_dim": 4, **case.get("context", {})}
    return inspect(
        choose(ENCODINGS.find(name), **{**(case.get("settings") or {}), **more}), length=furthest + 1, **context
    )


def near(case: dict[str, Any], wanted: float) -> Any:
    return pytest.approx(wanted, abs=case["atol"] + 1e-12, rel=case["rtol"] + 1e-12)


# ---- against reference values -----------------------------------------------------------------------------------


def test_biases_equal_their_vectors():
    compared = set()
    for name, case in cases("bias"):
        few = max(case["query"]) <= 1000 and min(case["key"]) >= 0
        if case.get("parameters") or not few or name not in ENCODINGS.names():
            continue
        bias = inspected(name, case)["bias"]
        for h, rows in enumerate(case["expected"]):
            for i, row in zip(case["query"], rows, strict=True):
                for j, wanted in zip(case["key"], row, strict=True):
                    if wanted is not None and j <= i:
                        got = bias[h][i][j] if isinstance(bias[h][0], list) else bias[h][i - j]
                        assert got == near(case, wanted), (name, case["name"], h, i, j)
        compared.add(name)
    assert "ALiBi" in compared


def test_embeddings_equal_their_vectors():
    compared = set()
    for name, case in cases("embed"):
        if case.get("parameters") or max(case["positions"]) > 5000:
            continue
        embedding = inspected(name, case)["embedding"]
        for position, wanted in zip(case["positions"], case["expected"], strict=True):
            assert embedding[position] == [near(case, w) for w in wanted]
        compared.add(name)
    assert "Sinusoidal" in compared


def test_t5_buckets_equal_their_vectors():
    compared = 0
    for _, case in cases("bias", "T5"):
        weight = case["parameters"]["weight"][0]
        if len(set(weight)) < len(weight) or (case.get("settings") or {}).get("bidirectional"):
            continue
        buckets = inspected("T5", case)["buckets"]
        for i, row in zip(case["query"], case["expected"][0], strict=True):
            for j, wanted in zip(case["key"], row, strict=True):
                if wanted is not None and j <= i:
                    assert weight[buckets[i - j]] == wanted
                    compared += 1
    assert compared > 1000


@pytest.mark.parametrize("which", ["A: distances 5 ... 0", "B", "psi(512)"])
def test_fire_coordinates_equal_their_vectors(which):
    ((_, case),) = [(name, case) for name, case in cases("bias", "FIRE") if case["name"] == which]
    parameters = case["parameters"]
    (((slope,),), (intercept,)) = parameters["layers.0.weight"], parameters["layers.0.bias"]
    assert parameters["L_multiplier"] == 1.0
    coordinate = inspected("FIRE", case, c=parameters["c"])["coordinate"]
    for i, row in zip(case["query"], case["expected"][0], strict=True):
        for j, wanted in zip(case["key"], row, strict=True):
            if wanted is not None:
                assert slope * coordinate[i][j] + intercept == near(case, wanted)


def test_numbers_that_a_reader_can_check():
    assert inspect(choose(RoPE), num_heads=1, head_dim=8)["frequencies"] == pytest.approx(
        [1, 0.1, 0.01, 0.001], rel=1e-15
    )
    assert inspect(choose(RoPE), num_heads=1, head_dim=8)["gain"] == 1.0
    assert inspect(choose(ALiBi), num_heads=8)["slopes"] == [2.0**-h for h in range(1, 9)]
    assert inspect(choose(T5, num_buckets=5, max_distance=6), length=10)["buckets"] == [0, 1, 2, 3, 3, 4, 4, 4, 4, 4]
    table = inspect(choose(Sinusoidal), d_model=4, length=2)["embedding"]
    assert table[1] == [math.sin(1), math.cos(1), math.sin(0.01), math.cos(0.01)]


@pytest.mark.parametrize(
    ("word", "sizes", "frequencies", "gain"),
    [
        # Published forms and public code, by hand: dynamic NTK at 32 of 16, with factor 1 and 4; YaRN; PI.
        ("dynamic_ntk", {"train_length": 16, "length": 32}, [1.0, 0.079370053, 0.0062996052, 0.0005], 1.0),
        ("dynamic_ntk:factor=4", {"train_length": 16, "length": 32}, [1.0, 0.058480355, 0.0034199519, 0.0002], 1.0),
        ("dynamic_ntk", {"train_length": 16, "length": 16}, [1.0, 0.1, 0.01, 0.001], 1.0),
        ("yarn:factor=4", {"train_length": 64, "length": 9}, [1.0, 0.0625, 0.0025, 0.00025], 1.1386294361),
        ("pi:factor=4", {"length": 9}, [0.25, 0.025, 0.0025, 0.00025], 1.0),
    ],
)
def test_rotations_are_those_of_the_length_that_is_shown(word, sizes, frequencies, gain):
    data = inspect(ENCODINGS.parse(word), num_heads=1, head_dim=8, **sizes)
    assert data["frequencies"] == pytest.approx(frequencies, rel=1e-7)
    assert data["gain"] == pytest.approx(gain, rel=1e-9)
    if word.startswith("dynamic"):
        assert data["frequencies_trained"] == pytest.approx([1.0, 0.1, 0.01, 0.001], rel=1e-12)
        assert data["effective_length"] == sizes["length"]


def test_xpos_shows_a_gain_for_each_position_and_pair():
    """From query 100 to key 40: ζ^(60/512) as published, whatever the centre."""
    gain = inspect(ENCODINGS.parse("xpos"), num_heads=1, head_dim=8, length=101)["gain"]
    net = [q * k for q, k in zip(gain["query"][100], gain["key"][40], strict=True)]
    assert net == pytest.approx([0.86345961, 0.91401096, 0.94954033, 0.97721168], rel=1e-7)


def test_values_are_float64_and_not_the_float32_ones_next_to_them():
    """c is 0.1, and not float32's 0.10000000149."""
    coordinate = inspect(choose(FIRE), num_heads=1, length=2)["coordinate"]
    assert coordinate[1][0] == pytest.approx(math.log1p(0.1) / (math.log1p(0.1 * 512) + 1e-6), rel=1e-15)


# ---- for every encoding -----------------------------------------------------------------------------------------


def floats(value: Any) -> Iterator[float]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for inner in value:
            yield from floats(inner)
    elif isinstance(value, float):
        yield value


@pytest.mark.parametrize("make", list(ENCODINGS), ids=lambda make: make.__name__)
@pytest.mark.parametrize("length", [1, 2, 9, 40])
def test_every_encoding_is_shown_as_plain_data(make, length):
    before = torch.get_rng_state()
    data = inspect(choose(make), num_heads=2, head_dim=8, train_length=16, length=length, seed=3)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.get_default_dtype() == torch.float32
    assert json.loads(json.dumps(data, allow_nan=False)) == data
    assert data["name"] == make.__name__
    assert list(data["settings"]) == [name for name, _ in choose(make).settings]
    assert all(math.isfinite(value) for value in floats(data))
    assert data["learned"] == sum(math.prod(shape) for shape in data["parameters"].values())
    assert {"length": length, "seed": 3, "d_model": 16, "num_heads": 2}.items() <= data.items()
    assert inspect(choose(make), num_heads=2, head_dim=8, train_length=16, length=length, seed=3) == data
    if make is not NoPE:
        shown = {
            "frequencies",
            "angles",
            "bias",
            "embedding",
            "query_gain",
            "query_vectors",
            "logits_after",
            "sink_logits",
        }
        assert shown & set(data), "nothing is shown of it"
    if "embedding" in data:
        assert (len(data["embedding"]), len(data["embedding"][0])) == (length, 16)
    if "bias" in data:
        assert [len(head) for head in data["bias"]] == [length] * len(data["bias"])
    if data["depends_on_length"]:
        assert "effective_length" in data


def test_keys_after_the_query_are_none():
    data = inspect(choose(FIRE), num_heads=2, length=3)
    assert data["coordinate"][0][1:] == [None, None]
    assert data["bias"][1][1][2] is None
    assert None not in (*data["bias"][1][2], *data["coordinate"][2])


def test_a_vector_that_joins_the_query_makes_a_bias():
    """Transformer-XL: <v, W_R R_d> / sqrt(head_dim), from the vector and the table that are shown beside it."""
    data = inspect(ENCODINGS.parse("transformer_xl"), num_heads=2, head_dim=4, length=5)
    (form,) = data["query_vectors"]
    for h, distance in ((0, 0), (1, 3)):
        product = sum(a * b for a, b in zip(form["vector"][h], form["table"][h][distance], strict=True))
        assert data["bias"][h][distance] == pytest.approx(product / 2, rel=1e-12)


class Gained(PositionEncoding):
    """A gain per head and query, then a rewrite: what is shown before the rewrite has the gain in it."""

    def __init__(self, *, num_heads: int, rate: float = 0.5):
        super().__init__()
        self.num_heads, self.rate = num_heads, rate

    def modifiers(self, span):
        head = torch.arange(1, self.num_heads + 1, dtype=torch.float64)
        gain = 1 + self.rate * head[:, None] * span.q[:, None].double()
        return AttentionModifiers(
            gain=QueryGain(gain),
            logit_transform=LogitTransform(lambda logits, q, visible, scale, span: logits.square()),
        )


def test_a_gain_is_in_the_logits_that_are_shown():
    data, plain = (inspect(choose(Gained, rate=rate), num_heads=2, head_dim=4, length=5) for rate in (0.5, 0.0))
    assert data["query_gain"][1] == [1.0, 2.0, 3.0, 4.0, 5.0]
    for h in range(2):
        for i in range(5):
            for j in range(i + 1):
                wanted = plain["logits_before"][h][i][j] * (1 + 0.5 * (h + 1) * i)
                assert data["logits_before"][h][i][j] == pytest.approx(wanted, rel=1e-12)
                assert data["logits_after"][h][i][j] == pytest.approx(wanted**2, rel=1e-12)


def test_both_directions_are_shown():
    data = inspect(ENCODINGS.parse("alibi:bidirectional=true"), num_heads=1, length=4)
    assert data["bias"] == [[0.0, -(2.0**-8), -(2.0**-7), -3 * 2.0**-8]]
    assert data["bias_ahead"] == [data["bias"][0][1:]]


def test_another_seed_draws_other_numbers():
    one, other = (inspect(choose(KerpleLog), num_heads=2, length=4, seed=seed)["bias"] for seed in (0, 1))
    assert one != other


class Reads(PositionEncoding):
    """A bias that is the content itself: nothing is learned, so that another seed can only draw another input."""

    def features(self, x):
        return x[..., :1]

    def content(self, features, span, documents):
        return (DenseBias(features.mT[:, None].expand(-1, 1, span.q.shape[1], -1)),)


def test_another_seed_draws_another_input():
    one, same, other = (inspect(choose(Reads), num_heads=2, length=4, seed=seed)["bias"] for seed in (0, 0, 1))
    assert one == same
    assert one != other


def test_a_long_rotation_costs_nothing():
    data = inspect(choose(RoPE), num_heads=1, head_dim=4, length=10**15)
    assert len(data["frequencies"]) == 2


# ---- what cannot be ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "sizes", "says"),
    [
        (ALiBi, {"num_heads": 0}, "num_heads must be at least 1, got 0"),
        (RoPE, {"head_dim": 7}, "even number"),
        (RoPE, {"length": 0}, "length must be at least 1, got 0"),
        (RoPE, {"length": -3}, "length must be at least 1, got -3"),
        (RoPE, {"train_length": 0}, "train_length must be at least 1, got 0"),
        (RoPE, {"length": 2**53 + 1}, "length must be at most"),
        (RoPE, {"head_dim": 10**9}, "head_dim must be at most"),
        (RoPE, {"seed": -1}, "seed must be in"),
        (RoPE, {"seed": 2**63}, "seed must be"),
        (Sinusoidal, {"d_model": 7}, "d_model must be even"),
        (Learned, {"length": 2049}, "position 2048 is past the 2048 rows"),
        (Learned, {"length": 10**9}, f"at most {MOST:,} numbers"),
        (FIRE, {"length": 5000}, "got 225,000,000"),
        (ALiBi, {"length": 10**12}, f"at most {MOST:,} numbers"),
        (T5, {"num_heads": 10**7, "d_model": 8}, "at most 50,000,000 parameters"),
    ],
)
def test_what_cannot_be_shown_is_refused(make, sizes, says):
    with pytest.raises(ConfigError, match=says) as raised:
        inspect(choose(make), **sizes)
    assert "\n" not in str(raised.value)


def test_a_pattern_over_layers_is_refused():
    with pytest.raises(ConfigError, match="one at a time"):
        inspect(ENCODINGS.parse("rope*3+nope"))
