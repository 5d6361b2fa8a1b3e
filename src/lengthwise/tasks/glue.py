"""Classification of short texts: GLUE and SuperGLUE as one text-to-text mixture."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch

from lengthwise.downstream import glue
from lengthwise.downstream.examples import Example
from lengthwise.downstream.glue import GlueExamples
from lengthwise.downstream.metrics import AnswerScores
from lengthwise.metrics import BENCHMARK_AVERAGE
from lengthwise.tasks.base import Batch, generator
from lengthwise.tasks.text_answers import DEMO, TextAnswers, most_frequent


class Glue(TextAnswers):
    r"""Answer questions about short texts by a label, a number or a name. `length` counts the tokens of the input that
    is used.

    Length 5, the scored targets underlined (the answer and EOS):

        inputs   BOS rte sentence1 : It rains \n\n Answer :          entailment
        targets  rte sentence1 : It rains \n\n Answer :   entailment EOS
                                                          ‾‾‾‾‾‾‾‾‾‾‾‾‾‾

    Inputs and answers are those of T5. `TextAnswers` describes how they are cut.

    Settings:

    - `tasks`: "all", or names such as cola+rte. All are the 15 of GLUE and SuperGLUE without WNLI, with RTE once: cola,
      sst2, mrpc, qqp, stsb, mnli, qnli, rte, boolq, cb, copa, multirc, record, wic, wsc.
    - `path`: a folder with a folder for each data set, with the parquet files of the hub or with JSON lines
      (`lengthwise.downstream.glue.files`). The validation files are the test, because the published test files have no
      labels. "demo" has a few invented rows of each.
    - `tokenizer`, `answer`, `sha256`: as in `Scrolls`.

    Training draws uniformly from the training examples of all data sets together, so a data set has the share of its
    size. A test has equally many examples of each data set, as far as there are so many; MultiRC's are whole questions,
    except for the last one.

    The score is the plain mean of the scores of the data sets (metric "benchmark average"), and each of these is stored
    beside it: Matthews' correlation for CoLA, the mean of Pearson's and Spearman's for STS-B, of F1 and accuracy for
    MRPC and QQP, of macro F1 and accuracy for CB, of the F1 over answers and the exact match of questions for MultiRC,
    of F1 and exact match for ReCoRD, of the matched and mismatched accuracies for MNLI, and accuracy for the others. It
    may be below 0, because correlations may be. A test with fewer examples than data sets leaves some of these out.

    The baseline is the most frequent answer of each data set in training.

    Source: Wang et al. 2018 (GLUE) and 2019 (SuperGLUE); Raffel et al. 2020, appendix D, for the texts; T5's code for
    the metrics.
    Differs: T5 lets the model name the noun in WSC; here it answers whether the marked pronoun is the marked noun.
    """

    metric = BENCHMARK_AVERAGE
    stale = ("tasks", "path", "tokenizer")
    cue = "\n\nAnswer:"

    def __init__(
        self, *, tasks: str = "all", path: str = DEMO, tokenizer: str = "bytes", answer: int = 0, sha256: str = ""
    ):
        arguments = {"tasks": tasks, "path": path, "tokenizer": tokenizer, "answer": answer, "sha256": sha256}
        settings = self.check(arguments)
        self.datasets = {dataset.name: dataset for dataset in glue.datasets(tasks)}
        self._groups_by_split: dict[str, dict[str, dict[str, list[int]]]] = {}
        examples = self.open_examples(settings)
        super().__init__(settings["tokenizer"], examples, answer or DEFAULT_ANSWER, settings["sha256"])

    @classmethod
    def check(cls, settings: dict[str, Any]) -> dict[str, Any]:
        """Also write the data sets in the order of the list, so that equal settings have equal keys."""
        names = [dataset.name for dataset in glue.datasets(settings["tasks"])]
        written = glue.ALL if len(names) == len(glue.NAMES) else "+".join(names)
        return super().check({**settings, "tasks": written})

    @classmethod
    def open_examples(cls, settings: Mapping[str, Any]) -> GlueExamples:
        return glue.open_examples(settings["tasks"], settings["path"])

    def examples(self, seed: int, count: int, length: int, split: str = "test") -> Batch:
        """Return the first examples of each data set in turn. The seed alone decides their order."""
        self.check_length(length, split)
        g = generator(seed, split)
        places: list[
            tuple[int, int, int]
        ] = []  # the place in the order of its data set, the data set's turn, the number
        names = list(self.datasets)
        for turn, k in enumerate(torch.randperm(len(names), generator=g).tolist()):
            groups = list(self._groups(split)[names[k]].values())
            order = torch.randperm(len(groups), generator=g).tolist()
            numbers = [number for n in order for number in groups[n]]
            places += [(place, turn, number) for place, number in enumerate(numbers)]
        chosen = torch.tensor([number for _, _, number in sorted(places)[:count]], dtype=torch.int64)
        return self.pack(split, chosen, [length] * len(chosen))

    def _groups(self, split: str) -> dict[str, dict[str, list[int]]]:
        """Return the numbers of examples by data set and question. Only MultiRC has several for one question."""
        if split not in self._groups_by_split:
            groups: dict[str, dict[str, list[int]]] = {name: {} for name in self.datasets}
            for number in range(self.data.count(split)):
                example = self.data.example(split, number)
                group = example.group if example.dataset == "multirc" else str(number)
                groups[example.dataset].setdefault(group, []).append(number)
            self._groups_by_split[split] = groups
        return self._groups_by_split[split]

    def answer_scores(self, texts: Sequence[str], numbers: Sequence[int], examples: Sequence[Example]) -> AnswerScores:
        """Return the average of the scores of the data sets that have examples here, and these scores."""
        rows: dict[str, list[int]] = {}
        for row, example in enumerate(examples):
            rows.setdefault(example.dataset, []).append(row)
        values, scores_by_dataset = np.zeros(len(texts)), {}
        for name in (name for name in self.datasets if name in rows):
            some = rows[name]
            scores = self.datasets[name].metric.score(
                [texts[n] for n in some],
                [examples[n].references for n in some],
                [examples[n].group or str(numbers[n]) for n in some],
            )
            scores_by_dataset[name] = scores.score
            values[some] = np.array(scores.examples) * len(texts) / (len(some) * len(rows))
        return AnswerScores(float(values.mean()), scores_by_dataset, values.tolist())

    def frequent_answer(self, example: Example) -> str:
        return self.frequent_answers[example.dataset]

    @cached_property
    def frequent_answers(self) -> dict[str, str]:
        examples: dict[str, list[Example]] = {name: [] for name in self.datasets}
        for number in range(self.data.count("train")):
            example = self.data.example("train", number)
            examples[example.dataset].append(example)
        return {name: most_frequent(GlueExamples({"train": some}, "")) for name, some in examples.items()}


DEFAULT_ANSWER = 32  # tokens; the longest answers are the names of ReCoRD
