"""Vega, Vega-Lite and Vega-Embed as one script, out of the vl-convert package: nothing is ever fetched.

Putting it together takes seconds, so it is kept in the cache folder (cache_folder.py). A report is a page for others, so a
script that is damaged, or that somebody else can have written, is made anew.
"""

from functools import lru_cache
from importlib.metadata import version

from lengthwise import cache_folder

FORMAT = "1"  # of the script that is kept


@lru_cache(maxsize=1)
def script() -> str:
    """JavaScript that defines `window.vegaEmbed`. It holds no `</script` and no `<!--`."""
    name = f"vega-{version('vl-convert-python')}-{FORMAT}.js"
    if kept := cache_folder.load(name):
        return kept.decode()
    import vl_convert

    made: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    made = made.replace("</script", "<\\/script").replace("<!--", "<\\!--")
    cache_folder.store(name, made.encode())
    return made
