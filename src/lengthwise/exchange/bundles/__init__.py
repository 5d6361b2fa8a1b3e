"""Bundles: one file with all rows of a study, which another store can import.

with open_results("lengthwise-results", create=False) as store:
    write_bundle(store, "quickstart", Path("quickstart.zip"))
with checked_bundle(Path("quickstart.zip")) as bundle, open_results("other-results") as store:
    store.add_study_cells(bundle.tables())
"""

from lengthwise.exchange.bundles.checking import Bundle, checked_bundle
from lengthwise.exchange.bundles.writing import write_bundle

__all__ = ["Bundle", "checked_bundle", "write_bundle"]
