"""Line charts as files: SVG, PNG, PDF, or an HTML page without JavaScript. They are drawn by vl-convert; nothing is downloaded."""

import copy
import html
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from lengthwise.report import palette
from lengthwise.report.charts.spec import CONFIG, Chart

FORMATS = ("svg", "png", "pdf", "html")
VEGA_LITE = "5.20"  # of the versions that vl-convert contains, the one that the page uses
WIDTH = 460  # pixels of a panel without its axis
PNG_SCALE = 2.0
SIGNALS = ("focus", "at", "range", "hidden", "names", "x_ticks")  # of the charts' expressions
EXPRESSIONS = ("expr", "labelExpr", "filter", "test")
STYLE = Path(__file__).parents[1] / "page.css"


@dataclass(frozen=True)
class Panel:
    """A chart with the title above it and the name of its horizontal axis."""

    title: str
    below: str
    chart: Chart


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
svg {{ max-width: 100%; height: auto; }}
div {{ overflow-x: auto; }}
table {{ border-collapse: collapse; margin: 12px 0 24px; font-variant-numeric: tabular-nums; font-size: .9rem; }}
caption {{ text-align: left; font-weight: 600; padding: 4px 0; }}
th, td {{ padding: 3px 14px 3px 0; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }}
th:first-child {{ text-align: left; }}
td small {{ display: block; max-width: 15em; margin-left: auto; white-space: normal; color: var(--faint); }}
</style>
</head>
<body>
<h1>{html.escape(title)}</h1>
{body}{svg}
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
        spec: dict[str, Any] = _renamed(copy.deepcopy(panel.chart.data["spec"]), str(number))
        values = [*spec.pop("params"), {"name": "hidden", "value": []}]
        values.append({"name": "names", "value": list(panel.chart.data["names"])})
        params += [{"name": f"{param['name']}{number}", "value": param["value"]} for param in values]
        del spec["background"]
        title = {"text": panel.title, "subtitle": panel.below, "anchor": "start", "color": "var(--ink)", "fontSize": 14}
        title |= {"subtitleColor": "var(--faint)", "offset": 12}
        parts.append({**spec, "width": WIDTH, "title": title})
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


def _renamed(part: Any, number: str, key: str = "") -> Any:
    """Return a spec in which the signals of the expressions have the number of the panel. There is no container to measure."""
    if isinstance(part, dict):
        return {name: _renamed(value, number, name) for name, value in part.items()}
    if isinstance(part, list):
        return [_renamed(value, number, key) for value in part]
    if isinstance(part, str) and key in EXPRESSIONS:
        text = part.replace("containerSize()[0]", str(WIDTH + 200))
        return re.sub(rf"(?<![\w.])({'|'.join(SIGNALS)})\b", rf"\g<1>{number}", text)
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
    return re.sub(r"var\(--([\w-]+)\)", lambda match: values[match[1]], text)
