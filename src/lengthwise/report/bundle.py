"""Vega, Vega-Lite and Vega-Embed as one script, from the vl-convert package. Nothing is downloaded.

Bundling takes seconds, so the script is stored in the cache folder (cache_folder.py).
"""

from functools import lru_cache
from importlib.metadata import version

from lengthwise import cache_folder

FORMAT = "1"  # version of the stored script


@lru_cache(maxsize=1)
def script() -> str:
    """Return JavaScript that defines `window.vegaEmbed`. It contains no `</script` and no `<!--`."""
    name = f"vega-{version('vl-convert-python')}-{FORMAT}.js"
    if stored := cache_folder.load(name):
        return stored.decode()
    import vl_convert

    bundle: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    bundle = bundle.replace("</script", "<\\/script").replace("<!--", "<\\!--")
    cache_folder.store(name, bundle.encode())
    return bundle
