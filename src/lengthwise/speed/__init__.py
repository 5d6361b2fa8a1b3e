"""The speed and peak memory of every encoding in a whole model, relative to NoPE, for `lengthwise bench`.

`plan.py` defines the question, `measure.py` and `memory.py` measure, `results.py` is the file format, `summary.py` computes ratios
with intervals, `compare.py` compares two files, and `plot.py` draws. `measure.py`, `memory.py`, `model.py` and `clocks.py` import
PyTorch; the others do not, so that files can be compared and drawn quickly.
"""
