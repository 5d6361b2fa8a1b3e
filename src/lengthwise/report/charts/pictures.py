"""Charts as files: SVG, PNG, PDF, or an HTML page without JavaScript. They are drawn by vl-convert; nothing is downloaded."""

import copy
import html
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from textwrap import wrap
from typing import Any

from lengthwise.report import palette
from lengthwise.report.charts import legend
from lengthwise.report.charts.small import HEIGHT as SMALL
from lengthwise.report.charts.spec import CONFIG, Chart
from lengthwise.report.palette import Look

FORMATS = ("svg", "png", "pdf", "html")
VEGA_LITE = "5.20"  # of the versions that vl-convert contains, the one that the page uses
WIDTH = 460  # pixels of a panel without its axis
PNG_SCALE = 2.0
SIGNALS = ("focus", "at", "range", "hidden", "names", "x_ticks", "y_ticks")  # of the charts' expressions
EXPRESSIONS = ("expr", "labelExpr", "filter", "test")
ALONE, LETTER = 180, 6.4  # pixels: the height of a chart that is small on the page, and the width of a letter
AXIS_TITLE = {"titleColor": "var(--soft)", "titleFontSize": 12, "titleFontWeight": "normal", "titlePadding": 8}
STYLE = Path(__file__).parents[1] / "page.css"


@dataclass(frozen=True)
class Panel:
    """A chart with the title and the note above it, and a legend below it if there are `looks`: those of its lines by label."""

    title: str
    below: str
    chart: Chart
    looks: Mapping[str, Look] = field(default_factory=dict)


def picture(panels: Sequence[Panel], suffix: str) -> bytes:
    """Return the panels, one above the other, as a file of the format "svg", "png" or "pdf", in light colours on white."""
    import vl_convert

    text = _with_colours(drawing(panels, background="var(--paper)"), variables()[0])
    if suffix == "png":
        return bytes(vl_convert.svg_to_png(text, scale=PNG_SCALE))
    return bytes(vl_convert.svg_to_pdf(text)) if suffix == "pdf" else text.encode()


def page(title: str, about: Sequence[str], panels: Sequence[Panel], tables: Sequence[str] = ()) -> bytes:
    """Return an HTML page with the panels, in light or dark colours as the reader's system has them.

    `about`: texts below the title, `tables`: HTML below the picture, in which the caller has escaped every text.
    """
    light, dark = ("".join(f"--{name}: {value}; " for name, value in part.items()) for part in variables())
    body = "".join(f"<p>{html.escape(text)}</p>\n" for text in about)
    described = html.escape(" ".join(panel.chart.described for panel in panels))
    svg = drawing(panels).replace("<svg ", f'<svg role="img" aria-label="{described}" ', 1)
    policy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="color-scheme" content="light dark">
<title>{html.escape(title)}</title>
<style>
:root {{ color-scheme: light dark; {light}}}
@media screen and (prefers-color-scheme: dark) {{ :root {{ {dark}}} }}
body {{ margin: 0 auto; max-width: 860px; padding: 24px; background: var(--paper); color: var(--ink); font: 16px/1.5 sans-serif; }}
h1 {{ font-size: 1.4rem; }}
p {{ color: var(--soft); overflow-wrap: anywhere; }}
div {{ overflow-x: auto; }}
svg {{ min-width: 520px; max-width: 100%; height: auto; overflow: visible; }}
table {{ border-collapse: collapse; margin: 12px 0 24px; font-variant-numeric: tabular-nums; font-size: .9rem; }}
caption {{ text-align: left; font-weight: 600; padding: 4px 0; position: sticky; left: 0; max-width: calc(100vw - 48px); }}
th, td {{ padding: 3px 14px 3px 0; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }}
th:first-child {{ text-align: left; white-space: normal; overflow-wrap: anywhere; min-width: 6.5em; }}
th.words, td.words {{ text-align: left; }}
td.words {{ white-space: normal; overflow-wrap: anywhere; min-width: 6em; }}
code span {{ display: inline-block; }}
small {{ display: block; max-width: 15em; margin-left: auto; white-space: normal; color: var(--faint); font-weight: normal; }}
th small {{ margin-left: 0; }}
</style>
</head>
<body>
<h1>{html.escape(title)}</h1>
{body}<div>{svg}</div>
{"".join(tables)}
</body>
</html>
""".encode()


def drawing(panels: Sequence[Panel], background: str = "transparent") -> str:
    """Return the panels as SVG, whose colours are the CSS variables of the page."""
    import vl_convert

    svg: str = vl_convert.vegalite_to_svg(static_spec(panels, background), vl_version=VEGA_LITE)
    return svg


def static_spec(panels: Sequence[Panel], background: str = "transparent") -> dict[str, Any]:
    """Return one Vega-Lite spec for all panels, with the values of the signals that the page would add.

    Each panel has signals of its own, whose names end with its number. Names of encodings are values of signals and never part
    of an expression.
    """
    params: list[dict[str, Any]] = []
    parts: list[dict[str, Any]] = []
    for number, panel in enumerate(panels):
        spec: dict[str, Any] = _renamed(copy.deepcopy(panel.chart.data["spec"]), str(number), f"concat_{len(parts)}_")
        values = [*spec.pop("params"), {"name": "hidden", "value": []}]
        values.append({"name": "names", "value": list(panel.chart.data["names"])})
        params += [{"name": f"{param['name']}{number}", "value": param["value"]} for param in values]
        del spec["background"]
        title = {"text": panel.title, "subtitle": panel.below, "anchor": "start", "color": "var(--ink)", "fontSize": 14}
        title |= {"subtitleColor": "var(--faint)", "offset": 12}
        if spec["height"] == SMALL:
            spec["height"] = ALONE
        _name_axes(spec, panel.chart, spec["height"])
        parts.append({**spec, "width": WIDTH, "title": title})
        if keys := legend.keys_of(panel.chart, panel.looks):
            params.append({"name": f"keys{number}", "value": [key.name for key in keys]})
            parts.append(legend.legend(keys, f"keys{number}", WIDTH))
    config = {name: value for name, value in CONFIG.items() if name not in ("autosize", "padding")}
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "params": params,
        "vconcat": parts,
        "spacing": 28,
        "padding": 12,
        "background": background,
        "resolve": {"scale": {"color": "independent", "shape": "independent", "strokeDash": "independent"}},
        "config": config,
    }


def _name_axes(part: Any, chart: Chart, height: int) -> None:
    """Write the names of a chart's axes, if it has some, at the axes of all its layers."""
    if isinstance(part, list):
        for member in part:
            _name_axes(member, chart, height)
    elif isinstance(part, dict):
        for name, value in part.items():
            text = {"x": chart.across, "y": chart.upwards}.get(name, "")
            if text and isinstance(value, dict) and "axis" in value:
                space = WIDTH if name == "x" else height
                value["axis"] = {**value["axis"], "title": wrap(text, max(12, round(space / LETTER))), **AXIS_TITLE}
            else:
                _name_axes(value, chart, height)


def _renamed(part: Any, number: str, prefix: str, key: str = "") -> Any:
    """Return a spec in which the signals of the expressions have the number of the panel, and its scales their `prefix`.

    There is no container to measure.
    """
    if isinstance(part, dict):
        return {name: _renamed(value, number, prefix, name) for name, value in part.items()}
    if isinstance(part, list):
        return [_renamed(value, number, prefix, key) for value in part]
    if isinstance(part, str) and key in EXPRESSIONS:
        text = part.replace("containerSize()[0]", str(WIDTH + 200))
        text = re.sub(r"\b(range|scale)\('([xy])'", rf"\1('{prefix}\2'", text)
        return re.sub(rf"(?<![\w.])({'|'.join(SIGNALS)})\b(?!\()", rf"\g<1>{number}", text)
    return part


@lru_cache(maxsize=1)
def variables() -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Return the CSS variables of the page with their light and their dark values."""
    blocks = re.findall(r":root \{(.*?)\}", STYLE.read_text(encoding="utf-8"), re.DOTALL)[:2]
    light, dark = (dict(re.findall(r"--([\w-]+): *([^;]+);", block)) for block in blocks)
    for n, (of_light, of_dark, _) in enumerate(palette.COLOURS):
        light[f"c{n}"], dark[f"c{n}"] = of_light, of_dark
    return light, dark


def _with_colours(text: str, values: Mapping[str, str]) -> str:
    opaque = {name: _on_white(value) for name, value in values.items()}
    return re.sub(r"var\(--([\w-]+)\)", lambda match: opaque[match[1]], text)


def _on_white(colour: str) -> str:
    """Return a translucent colour of the style as it is on white: programs that read SVG files do not know that notation."""
    match = re.fullmatch(r"rgb\((\d+) (\d+) (\d+) / (\d+)%\)", colour)
    if match is None:
        return colour
    share = int(match[4]) / 100
    return "#" + "".join(f"{round(255 - share * (255 - int(part))):02x}" for part in match.groups()[:3])
