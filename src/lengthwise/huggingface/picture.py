"""Pictures of a model's layers at its intended length: wavelengths of RoPE and their scaling, slopes of ALiBi."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import cast

import torch

from lengthwise.analysis.estimates import Interval
from lengthwise.config import Choice, ConfigError, choose
from lengthwise.encodings import ALiBi, RoPE, RotaryEncoding
from lengthwise.huggingface.description import LayerGroup, build, label_of
from lengthwise.huggingface.folder import ModelFolder
from lengthwise.huggingface.own_encoding import train_length_of
from lengthwise.report.charts.chart import Range
from lengthwise.report.charts.lines import Line, even_columns, line_chart
from lengthwise.report.charts.pictures import Panel, picture
from lengthwise.report.palette import looks


def draw(folder: ModelFolder, groups: Sequence[LayerGroup], suffix: str) -> bytes:
    """Return a picture with a panel for each different encoding. `suffix`: "svg", "png" or "pdf"."""
    return picture(panels(folder, groups), suffix)


def panels(folder: ModelFolder, groups: Sequence[LayerGroup]) -> list[Panel]:
    """Return a panel for each different encoding. Raise `ConfigError` if there is nothing to draw."""
    examples = {(group.encoding, group.head_dim): group for group in groups if group.encoding is not None}
    drawn = []
    for (choice, head_dim), group in examples.items():
        layers = sum(len(other.layers) for other in groups if (other.encoding, other.head_dim) == (choice, head_dim))
        title = f"{label_of(choice)}, {layers} of {folder.layers} layers"
        if issubclass(choice.cls, RotaryEncoding):
            drawn.append(_wavelengths(folder, group, title))
        elif choice.cls is ALiBi:
            slopes = torch.as_tensor(build(folder, group).slopes).flatten().tolist()
            lines: dict[str, Sequence[float | None]] = {"slope": [math.log2(slope) for slope in slopes]}
            drawn.append(_panel(title, "log2 of the slope (nats per token), by head", lines, "head"))
    if not drawn:
        raise ConfigError(f"--plot: {folder.path} has neither RoPE nor ALiBi, so there is nothing to draw; omit it")
    return drawn


def _wavelengths(folder: ModelFolder, group: LayerGroup, title: str) -> Panel:
    length = folder.length or train_length_of(folder.config)
    settings = {
        name: value
        for name, value in cast(Choice, group.encoding).settings
        if name in ("base", "rotary_fraction", "layout")
    }
    before = _log_wavelengths(build(folder, replace(group, encoding=choose(RoPE, **settings))), length)
    after = _log_wavelengths(build(folder, group), length)
    lines: dict[str, Sequence[float | None]] = {
        "before scaling": before,
        f"at {length:,} tokens": after,
        f"{length:,} tokens": [math.log10(length)] * len(after),
    }
    if before == after:
        del lines["before scaling"]
    return _panel(title, "log10 of the wavelength (tokens), by pair of dimensions", lines, "pair")


def _log_wavelengths(encoding: RotaryEncoding, length: int) -> list[float | None]:
    frequencies = encoding.frequencies(torch.tensor(length)).flatten().tolist()
    return [math.log10(2 * math.pi / f) if f > 0 else None for f in frequencies]


def _panel(title: str, below: str, values: Mapping[str, Sequence[float | None]], word: str) -> Panel:
    look = looks(list(values))
    numbers = [value for line in values.values() for value in line if value is not None]
    space = 0.07 * (max(numbers) - min(numbers)) or 0.5
    lines = [
        Line(name, look[name], [None if v is None else Interval(v, v, v, math.nan, "none") for v in line], "")
        for name, line in values.items()
    ]
    columns = even_columns([f"{n}" for n in range(max(map(len, values.values())))], word)
    described = f"{title}: {below}, with one line for each of: {', '.join(values)}."
    return Panel(
        title, below, line_chart(described, lines, columns, [Range("all", min(numbers) - space, max(numbers) + space)])
    )
