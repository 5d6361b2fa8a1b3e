"""What the tests of charts share: the charts of a page, Altair's check of a chart, and its marks as they are drawn."""

import base64
import gzip
import json
import re
import xml.etree.ElementTree as xml
from typing import Any

from lengthwise.report.charts.chart import Chart
from lengthwise.report.charts.drawing import CONFIG, page_data
from lengthwise.report.charts.pictures import Panel, drawing


def charts_of(page: str) -> list[dict[str, Any]]:
    """The data of the charts of a page, as its script reads them."""
    found = re.findall(r'<script type="application/(json|gzip)">(.*?)</script>', page, flags=re.S)
    data = [json.loads(gzip.decompress(base64.b64decode(text)) if kind == "gzip" else text) for kind, text in found]
    return [one for one in data if "spec" in one]


def require_valid(chart: Chart) -> dict[str, Any]:
    """Return the spec of a chart on the page after Altair has checked it against the schema of Vega-Lite."""
    import altair

    spec: dict[str, Any] = page_data(chart)["spec"]
    assert altair.Chart.from_dict(spec | {"config": CONFIG}).to_dict()
    return spec


def symbols(chart: Chart) -> list[list[str]]:
    """The colours of the symbols of a chart that stands alone, by layer: of points, and of arrows if there are any."""
    svg = xml.fromstring(drawing([Panel("", "", chart)]))
    groups = [group for group in svg.iter() if "mark-symbol role-mark" in group.get("class", "")]
    return [[path.get("fill", "") for path in group] for group in groups]
