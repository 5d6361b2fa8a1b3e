"""Sentences of the invented corpus, joined texts, and F1 of entities. Plain Python, which imports nothing of
Lengthwise.

The word lists are read from the text of the source file; how they are used follows the docstrings. Entities are found
from left to right, sentence by sentence, as seqeval 1.2.2 defines them. `python tests/vectors/tagging/tagging.py`
prints the scores of random labels, which `tagging.json` has together with those of seqeval itself (`--seqeval`, which
needs that package).
"""

import hashlib
import json
import random
import re
import sys
from pathlib import Path

SOURCE = Path(__file__).parents[3] / "src" / "lengthwise" / "downstream" / "invented_names.py"
KINDS = ("PER", "LOC", "ORG")


def grammar():
    """The alternatives of each rule, from the source file."""
    text = re.search(r'GRAMMAR = """\n(.*?)"""', SOURCE.read_text(encoding="utf-8"), re.S).group(1)
    found = {}
    for line in text.splitlines():
        name, alternatives = line.split(" = ")
        found[name] = found.get(name, []) + alternatives.split(" | ")
    return found


def invented(seed, count):
    """The sentences, lists of pairs of word and label: open symbols are worked off from left to right."""
    alternatives = grammar()
    sentences = []
    for n in range(count):
        pairs, choices, open_symbols = [], 0, [("SENTENCE", "")]
        while open_symbols:
            symbol, kind = open_symbols.pop(0)
            if symbol.startswith("/"):  # the end of an entity
                first = next(i for i, (_, label) in enumerate(pairs) if label == "?")
                for i in range(first, len(pairs)):
                    pairs[i] = (pairs[i][0], ("B-" if i == first else "I-") + symbol[1:])
            elif symbol in alternatives:
                number = int(hashlib.sha256(f"{seed} {n} {choices}".encode()).hexdigest()[:16], 16)
                choices += 1
                chosen = alternatives[symbol][number % len(alternatives[symbol])].split(" ")
                kind = symbol if symbol in KINDS else kind
                ending = [(f"/{symbol}", "")] if symbol in KINDS else []
                open_symbols = [(part, kind) for part in chosen] + ending + open_symbols
            else:
                pairs.append((symbol, "?" if kind else "O"))
        sentences.append(pairs)
    return sentences


def conll(sentences):
    return "\n".join("".join(f"{word}\t{label}\n" for word, label in pairs) for pairs in sentences)


def read(text):
    """The sentences of a CoNLL file that is in order."""
    sentences, pairs = [], []
    for line in [*text.replace("\r\n", "\n").split("\n"), ""]:
        if not line.strip() or line.startswith("-DOCSTART-"):
            if pairs:
                sentences.append(pairs)
            pairs = []
            continue
        columns = line.strip().split("\t") if "\t" in line.strip() else line.split()
        pairs.append((columns[0], columns[-1]))
    return sentences


def join(sentences, first, count):
    """A text of `count` sentences from number `first` on; after the last one the first follows."""
    return [pair for n in range(count) for pair in sentences[(first + n) % len(sentences)]]


def strict(labels):
    """Entities (start, stop, type) of a sentence: B, and I of its type as long as there are any."""
    found = set()
    for start, label in enumerate(labels):
        if label.startswith("B-"):
            stop = start + 1
            while stop < len(labels) and labels[stop] == "I-" + label[2:]:
                stop += 1
            found.add((start, stop, label[2:]))
    return found


def default(labels):
    """The same, but I without an entity of its type before it begins one, as in conlleval."""
    found, start, kind = set(), None, None
    for n, label in enumerate([*labels, "O"]):
        if start is not None and label != f"I-{kind}":
            found.add((start, n, kind))
            start = kind = None
        if start is None and label != "O":
            start, kind = n, label[2:]
    return found


def scores(true, predicted):
    """F1 (strict), F1 (default mode) and the accuracy of lists of sentences, each a list of labels."""
    found = []
    for entities in (strict, default):
        correct = asked = said = 0
        for right, guess in zip(true, predicted):
            a, b = entities(right), entities(guess)
            correct, asked, said = correct + len(a & b), asked + len(a), said + len(b)
        found.append(2 * correct / (asked + said) if asked + said else 0.0)
    words = [(a, b) for right, guess in zip(true, predicted) for a, b in zip(right, guess)]
    return [*found, sum(a == b for a, b in words) / len(words)]


def cases():
    """True labels that are IOB2, and predicted ones that need not be."""
    numbers = random.Random(20261127)
    labels = ["O"] + [f"{prefix}-{kind}" for kind in ("LOC", "PER") for prefix in "BI"]
    for share in (0.0, 0.1, 0.3, 0.6, 1.0):
        for sentences in (1, 2, 7, 20):
            true, predicted = [], []
            for _ in range(sentences):
                row = []
                for _ in range(numbers.randrange(1, 12)):
                    allowed = [x for x in labels if x[0] != "I" or (row and row[-1][1:] == x[1:])]
                    row.append(allowed[numbers.randrange(len(allowed))])
                true.append(row)
                predicted.append([labels[numbers.randrange(5)] if numbers.random() < share else x for x in row])
            yield true, predicted


def main():
    rows = [{"true": true, "predicted": guess, "scores": scores(true, guess)} for true, guess in cases()]
    if sys.argv[1:] == ["--seqeval"]:
        from seqeval.metrics import accuracy_score, f1_score
        from seqeval.scheme import IOB2

        for row in rows:
            pair = (row["true"], row["predicted"])
            found = [f1_score(*pair, mode="strict", scheme=IOB2), f1_score(*pair), accuracy_score(*pair)]
            row["seqeval 1.2.2"] = [float(value) for value in found]
    print("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]")


if __name__ == "__main__":
    main()
