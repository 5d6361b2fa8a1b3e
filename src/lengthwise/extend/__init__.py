"""A language model for longer texts, for `lengthwise extend`.

`apply.py` puts a method into a model and writes its folder, `tune.py` trains it on longer texts, and `unfinished.py`
does all steps in a folder from which an interrupted command continues. What is measured is `measurements/retention.py`.
"""
