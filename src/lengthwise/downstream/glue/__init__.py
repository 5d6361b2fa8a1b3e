"""GLUE and SuperGLUE: short texts, as one text-to-text mixture of 15 data sets."""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from lengthwise.corpora.sources.listing import signature
from lengthwise.corpora.writing import sha256_of
from lengthwise.downstream.examples import Example, ExampleSet, average
from lengthwise.downstream.glue.demo import demo_rows
from lengthwise.downstream.glue.files import find, rows
from lengthwise.downstream.glue.formats import GLUE, NAMES, GlueDataset
from lengthwise.values import ConfigError, near_miss

ALL = "all"
DEMO = "demo"


def glue_average(scores: Mapping[str, float]) -> float:
    """Return the average over GLUE and SuperGLUE: the plain mean of the scores of the 15 data sets, by name.

    The score of a data set with two metrics is their mean, and MNLI's is that of its matched and mismatched examples.
    RTE, which is in both benchmarks, counts once.
    """
    return average("GLUE and SuperGLUE", NAMES, scores)


def datasets(names: str) -> tuple[GlueDataset, ...]:
    """Return the data sets of a setting: "all", or names such as "cola+rte", in the order of the list."""
    if names == ALL:
        return GLUE
    chosen = names.split("+")
    for name in chosen:
        if name not in NAMES:
            raise ConfigError(
                f"GLUE and SuperGLUE have no data set {name!r}{near_miss(name, (*NAMES, ALL))}; available: {ALL}, or "
                f"some of {'+'.join(NAMES)}"
            )
        if chosen.count(name) > 1:
            raise ConfigError(f"the data set {name} is given {chosen.count(name)} times; give it once")
    return tuple(dataset for dataset in GLUE if dataset.name in chosen)


class GlueExamples(ExampleSet):
    """The examples of several data sets, one after the other. They are held in memory."""

    def __init__(self, examples: Mapping[str, list[Example]], sha256: str):
        """`examples`: those of the splits "train" and "test"."""
        self._examples, self.sha256 = dict(examples), sha256

    def count(self, split: str) -> int:
        return len(self._examples[split])

    def example(self, split: str, number: int) -> Example:
        return self._examples[split][number]


def open_examples(names: str, path: str) -> GlueExamples:
    """Return the examples of the data sets `names` (see `datasets`), for the test those of the validation files.

    `path`: a folder with a folder for each data set (see `files.find`), or "demo" for invented rows. The rows have the
    columns of nyu-mll/glue and of super_glue on the hub, or those of SuperGLUE's own files. Raise `ConfigError`, with
    file and row, for anything else.
    """
    chosen = datasets(names)
    loaded = [_demo(dataset) if path == DEMO else _opened(dataset, path) for dataset in chosen]
    examples = {split: [one for one_dataset in loaded for one in one_dataset[0][split]] for split in ("train", "test")}
    return GlueExamples(examples, " ".join(one_dataset[1] for one_dataset in loaded))


SplitExamples = tuple[dict[str, list[Example]], str]  # the examples by split, and a hash


def _opened(dataset: GlueDataset, path: str) -> SplitExamples:
    files = [find(path, dataset.folders, stems) for stems in (("train",), *dataset.tests)]
    try:
        signatures = tuple(signature(file.stat()) for some in files for file in some)
        return _read(dataset.name, tuple(map(tuple, files)), signatures)
    except OSError as error:
        raise ConfigError(f"cannot read the files of {dataset.name}: {error.strerror or error}") from error


@lru_cache(maxsize=32)  # a study opens the same files many times
def _read(name: str, files: tuple[tuple[Path, ...], ...], signatures: tuple[tuple[int, ...], ...]) -> SplitExamples:
    (dataset,) = datasets(name)
    examples: dict[str, list[Example]] = {"train": [], "test": []}
    for number, paths in enumerate(files):
        split_examples = examples["test" if number else "train"]
        before = len(split_examples)
        for path in paths:
            for where, row in rows(path):
                try:
                    split_examples += dataset.examples(row, train=not number, test=max(number - 1, 0))
                except ConfigError as error:
                    raise ConfigError(f"{where}: {error}") from None
        if len(split_examples) == before:
            raise ConfigError(f"{paths[0]} has no rows; copy it again")
    return examples, " ".join(sha256_of(path) for paths in files for path in paths)


@lru_cache(maxsize=32)
def _demo(dataset: GlueDataset) -> SplitExamples:
    rows_by_split = {split: demo_rows(dataset, split) for split in ("train", "test")}
    examples = {
        split: [
            one for n, row in enumerate(some) for one in dataset.examples(row, split == "train", n % len(dataset.tests))
        ]
        for split, some in rows_by_split.items()
    }
    return examples, f"{DEMO} {dataset.name}"


__all__ = ["ALL", "DEMO", "GLUE", "NAMES", "GlueDataset", "GlueExamples", "datasets", "glue_average", "open_examples"]
