"""Extend a causal language model to longer texts, and measure what it gains and loses, for `lengthwise extend`.

`plan.py` has the settings. `apply.py` puts a method into a model and writes its folder, `tune.py` trains it on longer texts, and
`unfinished.py` does both for all methods in a folder from which an interrupted command continues. `report.py` has the retention
report. `plan.py` and `report.py` import no PyTorch.
"""
