"""The time and peak memory of every encoding in a whole model, for `lengthwise bench`.

`measurements/speed.py` declares the measurement, `measure.py` and `memory.py` measure, and `compare.py` compares two
files without PyTorch.
"""
