"""The data of the charts of a page, as its script reads them."""

import base64
import gzip
import json
import re
from typing import Any


def charts_of(page: str) -> list[dict[str, Any]]:
    found = re.findall(r'<script type="application/(json|gzip)">(.*?)</script>', page, flags=re.S)
    data = [json.loads(gzip.decompress(base64.b64decode(text)) if kind == "gzip" else text) for kind, text in found]
    return [one for one in data if "spec" in one]
