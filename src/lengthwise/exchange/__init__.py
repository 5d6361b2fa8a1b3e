"""Results for other programs and other machines: data frames, tables, pictures, and bundles of a study.

frame = lengthwise.results("quickstart")  # needs pandas, which the extra `frames` installs
"""

from lengthwise.exchange.frames import answers, results

__all__ = ["answers", "results"]
