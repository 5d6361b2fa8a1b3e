"""Invented rows in the format of each data set of GLUE and SuperGLUE."""

import random
from typing import Any

from lengthwise.downstream.glue.formats import GlueDataset

DEMO_ROWS = {"train": 64, "test": 16}
CUES = ("red", "blue", "green")  # the word that decides a label
WORDS = ("the", "cat", "sat", "on", "a", "mat", "and", "saw", "it")


def demo_rows(dataset: GlueDataset, split: str) -> list[dict[str, Any]]:
    """Return invented rows of a data set. A word in the first text decides the label."""
    rng = random.Random(f"{dataset.name} {split}")
    return [demo_row(dataset, n, rng) for n in range(DEMO_ROWS[split])]


def demo_row(dataset: GlueDataset, number: int, rng: random.Random) -> dict[str, Any]:
    label = rng.randrange(len(dataset.labels) or len(CUES))
    row: dict[str, Any] = {name: " ".join(rng.choices(WORDS, k=3)) for name in dataset.columns[0]}
    row[dataset.columns[0][0]] = f"{CUES[label]} {row[dataset.columns[0][0]]}"
    row |= {"label": label, "idx": number}
    if dataset.name == "stsb":
        row["label"] = float(label)
    elif dataset.name == "multirc":
        row["idx"] = {"paragraph": 0, "question": number // 2, "answer": number}
    elif dataset.name == "record":
        row |= {"entities": list(CUES), "answers": [CUES[label]], "query": f"@placeholder is {CUES[label]}"}
    elif dataset.name == "wsc":
        row |= {"span1_text": CUES[label], "span1_index": 0, "span2_text": row["text"].split()[-1], "span2_index": 3}
    return row
