"""Questions about long texts: the data sets of SCROLLS."""

from collections.abc import Mapping, Sequence
from typing import Any

from lengthwise.downstream import scrolls
from lengthwise.downstream.examples import Example
from lengthwise.downstream.metrics import AnswerScores
from lengthwise.downstream.scrolls import ScrollsExamples
from lengthwise.metrics import ANSWER_F1, EXACT_MATCH, ROUGE, Metric
from lengthwise.tasks.text_answers import DEMO, TextAnswers

METRICS = {"F1": ANSWER_F1, "exact match": EXACT_MATCH, "ROUGE": ROUGE}


class Scrolls(TextAnswers):
    r"""Answer a question about a long text, or summarize it. `length` counts the tokens of the input that the model
    sees.

    Length 5, the scored targets underlined (the answer and EOS):

        inputs   BOS Who ? \n\n The gate \n\n Answer :   Ann
        targets  Who ? \n\n The gate \n\n Answer :   Ann EOS
                                                     ‾‾‾‾‾‾‾

    An input of SCROLLS begins with the question, followed by the text. Its first `length` tokens are used, so a long
    text loses its end and keeps the question, and a text that is shorter than `length` is whole. `TextAnswers`
    describes the rest.

    Settings:

    - `dataset`: qasper, contract_nli, qmsum, narrative_qa, summ_screen_fd, gov_report or quality. It determines the
      metric: F1 of words for Qasper and NarrativeQA, exact match for ContractNLI and QuALITY, and the geometric mean of
      ROUGE-1, ROUGE-2 and ROUGE-L for the three of summaries. Scores are fractions; papers print them times 100.
    - `path`: a folder with the published train.jsonl and validation.jsonl; the validation file is the test,
      because the published test file has no answers. "demo" is a small invented data set to try the task.
    - `tokenizer`: "bytes", or a tokenizer.json or its folder, such as a corpus that `lengthwise tokenize` prepared. A
      model that starts from a run on that corpus has the same token IDs.
    - `answer`: the largest number of tokens of an answer. 0: the default of the data set
      (`lengthwise.downstream.scrolls`).
    - `sha256`: identifies the files and the tokenizer, and stands for `path` and `tokenizer` in a run's key. If it is
      empty, `choose` fills it in. Files that have changed since are refused.

    The baseline is the most frequent answer in training, scored by the same metric.

    Source: Shaham et al. 2022, "SCROLLS: Standardized CompaRison Over Long Language Sequences", and its metric in
    tau/scrolls.
    Differs: the published baselines are encoder-decoders; a decoder needs the cue between input and answer, such as
    "Answer:".
    """

    metric = ANSWER_F1
    stale = ("dataset", "path", "tokenizer")

    def __init__(
        self,
        *,
        dataset: str = "qasper",
        path: str = DEMO,
        tokenizer: str = "bytes",
        answer: int = 0,
        sha256: str = "",
    ):
        arguments = {"dataset": dataset, "path": path, "tokenizer": tokenizer, "answer": answer, "sha256": sha256}
        settings = self.check(arguments)
        self.dataset = scrolls.dataset(dataset)
        self.metric = self.metric_of(settings)  # type: ignore[misc]
        self.cue = self.dataset.cue
        super().__init__(
            settings["tokenizer"],
            self.open_examples(settings),
            answer or self.dataset.answer_tokens,
            settings["sha256"],
        )

    @classmethod
    def metric_of(cls, settings: Mapping[str, Any]) -> Metric:
        return METRICS[scrolls.dataset(settings["dataset"]).metric.name]

    @classmethod
    def check(cls, settings: dict[str, Any]) -> dict[str, Any]:
        scrolls.dataset(settings["dataset"])
        return super().check(settings)

    @classmethod
    def open_examples(cls, settings: Mapping[str, Any]) -> ScrollsExamples:
        return scrolls.open_examples(settings["dataset"], settings["path"])

    def answer_scores(self, texts: Sequence[str], numbers: Sequence[int], examples: Sequence[Example]) -> AnswerScores:
        return self.dataset.metric.score(texts, [example.references for example in examples])

    def provenance(self) -> dict[str, str | int]:
        return super().provenance() | {"dataset": self.dataset.title}
