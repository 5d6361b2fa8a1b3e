"""How far a causal language model reaches: cross-entropy and retrieval at growing lengths, for `lengthwise reach`.

`plan.py` defines the question, `text.py` reads the text, and `tasks/` makes the retrieval tasks. `loading.py` loads the model,
`model.py` computes one long text in chunks, `grouped.py` computes attention without copies of keys, `methods.py` puts encodings
into the model, `program_flags.py` writes the flags with which other programs compute them, and `measure.py` measures unit by unit.
`results.py` is the file format, `summary.py` computes scores, intervals and effective lengths, and `page.py` compares models on a
page.

`loading.py`, `model.py`, `grouped.py`, `methods.py`, `program_flags.py` and `measure.py` import PyTorch; the others do not, so that
files can be shown quickly.
"""
