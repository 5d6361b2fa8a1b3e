"""Encodings look different to everybody, and the same in every study."""

import itertools

import pytest

from lengthwise.report.palette import COLOURS, DASHES, SHAPES, USUAL, looks

# How colours look with each kind of colour vision: Machado, Oliveira and Fernandes 2009, severity 1, on linear RGB.
VISION = {
    "usual": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protan": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deutan": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "tritan": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}
GROUND = ("#ffffff", "#161a20")


def linear(colour: str) -> list[float]:
    parts = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]


def oklab(rgb: list[float]) -> tuple[float, ...]:
    r, g, b = (min(1.0, max(0.0, c)) for c in rgb)
    cone = [
        (w[0] * r + w[1] * g + w[2] * b) ** (1 / 3)
        for w in (
            (0.4122214708, 0.5363325363, 0.0514459929),
            (0.2119034982, 0.6806995451, 0.1073969566),
            (0.0883024619, 0.2817188376, 0.6299787005),
        )
    ]
    return tuple(
        sum(w * c for w, c in zip(weights, cone, strict=True))
        for weights in (
            (0.2104542553, 0.793617785, -0.0040720468),
            (1.9779984951, -2.428592205, 0.4505937099),
            (0.0259040371, 0.7827717662, -0.808675766),
        )
    )


def distance(a: str, b: str, vision: str) -> float:
    seen = [oklab([sum(m * c for m, c in zip(row, linear(x), strict=True)) for row in VISION[vision]]) for x in (a, b)]
    return sum((p - q) ** 2 for p, q in zip(*seen, strict=True)) ** 0.5


def luminance(colour: str) -> float:
    return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear(colour), strict=True))


@pytest.mark.parametrize("ground", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("vision", VISION)
def test_colours_are_told_apart(ground: int, vision: str) -> None:
    least = 0.12 if vision == "usual" else 0.07
    close = [
        (a[2], b[2]) for a, b in itertools.combinations(COLOURS, 2) if distance(a[ground], b[ground], vision) < least
    ]
    assert not close


@pytest.mark.parametrize("ground", [0, 1], ids=["light", "dark"])
def test_colours_stand_out_from_the_ground(ground: int) -> None:
    back = luminance(GROUND[ground]) + 0.05
    ratios = {c[2]: max(r := (luminance(c[ground]) + 0.05) / back, 1 / r) for c in COLOURS}
    assert min(ratios.values()) >= 3, ratios


def test_shapes_differ_as_often_as_colours() -> None:
    assert len(set(SHAPES)) == len(SHAPES) == len(COLOURS) == len(DASHES)


def test_usual_encodings_look_the_same_in_every_study() -> None:
    alone = looks(["FIRE"])["FIRE"]
    assert looks([*USUAL, "other"])["FIRE"] == alone
    assert looks(["other", "RoPE", "FIRE"])["FIRE"] == alone


def test_any_number_of_labels_look_different() -> None:
    labels = [*USUAL, *(f"FIRE(width={n})" for n in range(40))]
    drawn = looks(labels)
    assert len({(look.slot, look.cycle) for look in drawn.values()}) == len(labels)
    assert len({(look.colour, look.shape) for look in drawn.values()}) == len(labels)
    assert len({looks(["a", "b", "c"])[x].slot for x in "abc"}) == 3
