"""How far a causal language model reaches: what `measurements/reach.py` computes, for `lengthwise reach`.

`text.py` reads the text, and `tasks/` makes the retrieval tasks and the prompts with Boolean functions. `loading.py`
loads the model, `model.py` computes one long text in chunks, `grouped.py` computes attention without copies of keys,
`methods.py` puts encodings into the model, `program_flags.py` writes the flags with which other programs compute them,
`functions.py` predicts labels, and `measure.py` measures part by part. `harness.py` writes retrieval tasks for
lm-evaluation-harness.

`text.py`, `harness.py` and `tasks/` do not import PyTorch.
"""
