"""Texts for language modelling, as documents and as tokens. Nothing here imports torch.

`sources/` yields the documents of files, folders and datasets, and `tokenizers/` turns them into tokens. `prepare`
writes a corpus of any size into a folder, which `prepared` reads; `in_memory` reads small texts as bytes. The task
`Text` trains on both.
"""
