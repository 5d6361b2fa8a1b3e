"""The position encodings of other libraries, compared with the published formulas: README.md in this folder.

`python3 dev.py outside` installs the libraries and runs `python -m comparisons`. The published formula is computed by
our encodings in float64, which `lengthwise check` tests against reference values. This folder is not installed with
Lengthwise.
"""
