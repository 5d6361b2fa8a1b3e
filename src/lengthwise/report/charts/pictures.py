"""Charts as files: SVG, PNG, PDF, or an HTML page without JavaScript. vl-convert draws them; nothing is downloaded."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from lengthwise.report import palette
from lengthwise.report.charts.chart import Chart

FORMATS = ("svg", "png", "pdf", "html")
PNG_SCALE = 2.0
STYLE = Path(__file__).parents[1] / "page.css"
TEMPLATE = Path(__file__).parent / "page_without_scripts.html.j2"


@dataclass(frozen=True)
class Panel:
    """A chart with the title and the note above it."""

    title: str
    below: str
    chart: Chart


def picture(panels: Sequence[Panel], suffix: str) -> bytes:
    """Return the panels, one above the other, as an SVG, PNG or PDF file, in light colours on white."""
    import vl_convert

    text = with_colours(drawing(panels, background="var(--paper)"), variables()[0])
    if suffix == "png":
        return bytes(vl_convert.svg_to_png(text, scale=PNG_SCALE))
    return bytes(vl_convert.svg_to_pdf(text)) if suffix == "pdf" else text.encode()


def page(title: str, about: Sequence[str], panels: Sequence[Panel], tables: Sequence[str] = ()) -> bytes:
    """Return an HTML page with the panels, in light or dark colours as the reader's system has them.

    `about`: texts below the title, `tables`: HTML below the picture, in which the caller has escaped every text.
    """
    import jinja2
    from markupsafe import Markup

    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    light, dark = variables()
    text = environment.from_string(TEMPLATE.read_text(encoding="utf-8")).render(
        title=title,
        about=about,
        described=" ".join(panel.chart.described for panel in panels),
        svg=Markup(drawing(panels).removeprefix("<svg ")),
        tables=map(Markup, tables),
        light=light,
        dark=dark,
    )
    return text.encode()


def drawing(panels: Sequence[Panel], background: str = "transparent") -> str:
    """Return the panels as SVG, whose colours are the CSS variables of the page."""
    import vl_convert

    from lengthwise.report.charts.drawing import file_spec

    spec = file_spec([(panel.title, panel.below, panel.chart) for panel in panels], background)
    svg: str = vl_convert.vegalite_to_svg(spec)
    return svg


@lru_cache(maxsize=1)
def variables() -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Return the CSS variables of the page with their light and their dark values."""
    blocks = re.findall(r":root \{(.*?)\}", STYLE.read_text(encoding="utf-8"), re.DOTALL)[:2]
    light, dark = (dict(re.findall(r"--([\w-]+): *([^;]+);", block)) for block in blocks)
    for n, (of_light, of_dark, _) in enumerate(palette.COLOURS):
        light[f"c{n}"], dark[f"c{n}"] = of_light, of_dark
    return light, dark


def with_colours(text: str, values: Mapping[str, str]) -> str:
    opaque = {name: _on_white(value) for name, value in values.items()}
    return re.sub(r"var\(--([\w-]+)\)", lambda match: opaque[match[1]], text)


def _on_white(colour: str) -> str:
    """Return a translucent colour of the style as it is on white, because programs that read SVG do not know it."""
    match = re.fullmatch(r"rgb\((\d+) (\d+) (\d+) / (\d+)%\)", colour)
    if match is None:
        return colour
    share = int(match[4]) / 100
    return "#" + "".join(f"{round(255 - share * (255 - int(channel))):02x}" for channel in match.groups()[:3])
