"""The gallery's pictures, drawn as by `lengthwise inspect ENCODING --picture`, with captions; and their comparison."""

import math
import re
from collections.abc import Sequence
from itertools import zip_longest

import numpy as np

from lengthwise import inspection_picture
from lengthwise.config import choose, settings_of
from lengthwise.encodings import PositionEncoding, Temperature
from lengthwise.inspection import inspect

HEADS, HEAD_DIM, TRAINED, LENGTH = 8, 64, 64, 256


def picture(make: type[PositionEncoding]) -> tuple[str, str | None]:
    """Return the SVG and its caption, which is None if there is nothing to draw."""
    # The threshold of FIRE, and where the factors of temperatures begin.
    lengths = ("L", "length", "step") if issubclass(make, Temperature) else ("L",)
    settings = {name: type(p.default or 0.0)(TRAINED) for name, p in settings_of(make).items() if name in lengths}
    choice = choose(make, **settings)
    data = inspect(choice, num_heads=HEADS, head_dim=HEAD_DIM, train_length=TRAINED, length=LENGTH)
    svg, description = inspection_picture.picture(data)
    if not svg:
        return "", None
    caption = f"{description}; {HEADS} heads of {HEAD_DIM} dimensions, training length {TRAINED}"
    caption += f", {choice.label.partition('(')[2].rstrip(')')}" if settings else ""
    caption += ", initial parameters of seed 0" if data["learned"] else ""
    return svg, f"{caption[0].upper()}{caption[1:]}."


def looks_the_same(a: str, b: str) -> bool:
    """Return whether two SVGs have the same texts and colours, and lines that differ by at most a pixel.

    Where a panel lies depends on the fonts of the machine, but its lines have coordinates of their own. Which of their
    points are kept (`_thinned`) may depend on last digits, and moves a line by at most 0.4 pixels.
    """
    for pattern in (r"<text[^>]*>(.*?)</text>", r'(?:stroke|fill|stroke-dasharray)="([^"]*)"'):
        if re.findall(pattern, a) != re.findall(pattern, b):
            return False
    pairs = list(zip_longest(_lines(a), _lines(b), fillvalue=[]))
    return all(_distance(one, other) <= 1 for one, other in pairs)


def _lines(text: str) -> list[list[tuple[float, float]]]:
    """Return the points of the lines in an SVG, from left to right."""
    paths = re.findall(r' d="M([-\d.,ML]+)"', text)
    return [sorted((float(x), float(y)) for x, y in (at.split(",") for at in re.split("[ML]", path))) for path in paths]


def _distance(a: Sequence[tuple[float, float]], b: Sequence[tuple[float, float]]) -> float:
    """Return the largest vertical distance of two lines, or the distance of their ends if that is larger."""
    if not a or not b:
        return math.inf
    xs = [x for x, _ in (*a, *b)]
    heights = [np.interp(xs, *np.array(line).T) for line in (a, b)]
    return max(abs(a[0][0] - b[0][0]), abs(a[-1][0] - b[-1][0]), float(np.abs(heights[0] - heights[1]).max()))
