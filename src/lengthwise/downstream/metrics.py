"""The official metrics of SCROLLS, GLUE and SuperGLUE, from scikit-learn, SciPy and rouge-score."""

import re
import string
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from lengthwise.values import ConfigError, missing_package

Floats = NDArray[np.float64]
References = Sequence[Sequence[str]]
ROUGE_TYPES = {"ROUGE-1": "rouge1", "ROUGE-2": "rouge2", "ROUGE-L": "rougeL"}
ARTICLES = re.compile(r"\b(a|an|the)\b")
PUNCTUATION = str.maketrans("", "", string.punctuation)
UNREADABLE_NUMBER = -1.0  # in place of an answer that is no number, as in T5's postprocessing of STS-B


@dataclass(frozen=True)
class AnswerScores:
    """Scores of answers, as fractions: papers print them times 100.

    `score`: the official score of all answers. `components`: the scores that it consists of, such as ROUGE-1, ROUGE-2
    and ROUGE-L.
    `examples`: one number for each answer, whose mean is `score`. For a mean over answers it is the answer's own score.
    A score of all answers together, such as a correlation or a geometric mean, has no scores of single answers. Then
    the number is the score plus the answer's first-order influence on it, which is the linearization in the delta
    method: the standard error of the mean of these numbers is that of the score.
    """

    score: float
    components: dict[str, float]
    examples: list[float]


@dataclass(frozen=True)
class Answers:
    """What is scored: predicted texts, the accepted texts of each, and a group for each, such as its question."""

    predictions: Sequence[str]
    references: References
    groups: Sequence[str]

    def classes(self, labels: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return predicted and true classes, as indices of `labels`; a prediction that is none of them has -1."""
        number = {label: n for n, label in enumerate(labels)}
        unknown = sorted({texts[0] for texts in self.references} - number.keys())
        if unknown:
            raise ConfigError(f"the reference {unknown[0]!r} must be one of the labels: {', '.join(labels)}")
        predicted = [number.get(text.strip(), -1) for text in self.predictions]
        return np.array(predicted), np.array([number[texts[0]] for texts in self.references])


@dataclass(frozen=True)
class AnswerMetric:
    """A metric of answers. `parts(answers)` returns an array for each component, with one number per answer (see
    `AnswerScores`).

    `combine`: how the components form the score, by their arithmetic or geometric mean.
    """

    name: str
    components: Callable[[Answers], Mapping[str, Floats]]
    combine: Literal["arithmetic", "geometric"] = "arithmetic"

    def score(
        self, predictions: Sequence[str], references: References, groups: Sequence[str] | None = None
    ) -> AnswerScores:
        """Return the scores of predictions. `references`: all accepted texts of each prediction, at least one.

        `groups`: names that answers to one question share; only MultiRC needs them. None: each answer is a group.
        """
        answers = checked_answers(predictions, references, groups)
        components = self.components(answers)
        means = {name: float(values.mean()) for name, values in components.items()}
        rows = np.stack(list(components.values()))
        if self.combine == "arithmetic":
            examples = rows.mean(0)
        else:
            factors = np.array(list(means.values()))
            mean = float(np.prod(factors) ** (1 / len(factors)))
            examples = mean * (rows / factors[:, None]).mean(0) if mean else np.zeros(len(answers.predictions))
        return AnswerScores(float(examples.mean()), means, examples.tolist())


def checked_answers(predictions: Sequence[str], references: References, groups: Sequence[str] | None) -> Answers:
    """Return the answers. Raise `ConfigError` unless each prediction has a list of accepted texts."""
    if not len(predictions) or len(predictions) != len(references):
        raise ConfigError(
            "there must be a list of references for each prediction, and at least one, got "
            f"{len(predictions)} predictions and {len(references)} lists"
        )
    for n, texts in enumerate(references):
        if isinstance(texts, str) or not texts:
            raise ConfigError(f"the references of prediction {n} must be a list of texts, got {texts!r:.80}")
    return Answers(predictions, references, list(map(str, range(len(predictions)))) if groups is None else groups)


# ---- SQuAD's token F1 and exact match ------------------------------------------------------------------------------


def normalize(text: str) -> str:
    """Return the text in lower case without ASCII punctuation, the articles a, an and the, and repeated spaces.

    Source: the evaluation script of SQuAD 1.1 (Rajpurkar et al. 2016).
    """
    return " ".join(ARTICLES.sub(" ", text.lower().translate(PUNCTUATION)).split())


def token_f1(prediction: str, reference: str) -> float:
    """Return the F1 of the words of normalized texts: 2 · common / (words of both).

    Common words count as often as in both. It is 0 without a common word, also if both texts are empty.
    """
    words, expected = (Counter(normalize(text).split()) for text in (prediction, reference))
    common = (words & expected).total()
    return 2 * common / (words.total() + expected.total()) if common else 0.0


def is_match(prediction: str, reference: str) -> float:
    """Return 1 if the normalized texts are equal, else 0."""
    return float(normalize(prediction) == normalize(reference))


def _best(score: Callable[[str, str], float], answers: Answers) -> Floats:
    """Return the best score of each prediction over its references."""
    pairs = zip(answers.predictions, answers.references, strict=True)
    return np.array([max(score(prediction, text) for text in texts) for prediction, texts in pairs])


# ---- ROUGE ---------------------------------------------------------------------------------------------------------


@cache
def _rouge_scorer() -> Any:
    return _package("rouge_score.rouge_scorer", "rouge-score").RougeScorer(
        list(ROUGE_TYPES.values()), use_stemmer=False
    )


def rouge(answers: Answers) -> dict[str, Floats]:
    """Return the F-measures of ROUGE-1, ROUGE-2 and ROUGE-L, for each the best over the references. Words are not
    stemmed.

    Source: the metric of SCROLLS, which calls rouge-score with `use_stemmer=False`. Its line breaks between sentences
    matter to ROUGE-Lsum alone, which is no part of the score.
    """
    rows: dict[str, list[float]] = {name: [] for name in ROUGE_TYPES}
    for prediction, texts in zip(answers.predictions, answers.references, strict=True):
        scores = [_rouge_scorer().score(text, prediction) for text in texts]
        for name, key in ROUGE_TYPES.items():
            rows[name].append(max(score[key].fmeasure for score in scores))
    return {name: np.array(values) for name, values in rows.items()}


# ---- classes and numbers -------------------------------------------------------------------------------------------


def accuracy(labels: Sequence[str], answers: Answers) -> Floats:
    predicted, true = answers.classes(labels)
    return (predicted == true).astype(np.float64)


def f1_of_class(predicted: NDArray[np.bool_], true: NDArray[np.bool_], score: float) -> Floats:
    """Return numbers whose mean is the F1 `score` = 2 TP / (2 TP + FP + FN): the score plus each answer's influence."""
    counts = predicted.astype(np.float64) + true  # 2 TP + FP + FN is their sum
    mean = counts.mean()
    return score + (2.0 * (predicted & true) - score * counts) / mean if mean else np.zeros(len(true))


def binary_f1(labels: Sequence[str], answers: Answers) -> Floats:
    """The F1 of the second of two labels. A prediction that is no label counts as the wrong one, as in T5."""
    predicted, true = answers.classes(labels)
    predicted = np.where(predicted < 0, 1 - true, predicted)
    score = _package("sklearn.metrics", "scikit-learn").f1_score(true, predicted, zero_division=0.0)
    return f1_of_class(predicted == 1, true == 1, float(score))


def macro_f1(labels: Sequence[str], answers: Answers) -> Floats:
    """The mean of the F1 of each label. A label that is neither predicted nor true has 0."""
    predicted, true = answers.classes(labels)
    scores = _package("sklearn.metrics", "scikit-learn").f1_score(
        true, predicted, labels=range(len(labels)), average=None, zero_division=0.0
    )
    rows = [f1_of_class(predicted == n, true == n, float(score)) for n, score in enumerate(scores)]
    return np.mean(rows, axis=0)


def matthews(labels: Sequence[str], answers: Answers) -> Floats:
    """Matthews' correlation. A prediction that is no label is a further class. 0 if all predictions are equal."""
    predicted, true = answers.classes(labels)
    score = _package("sklearn.metrics", "scikit-learn").matthews_corrcoef(true, predicted)
    classes = np.arange(-1, len(labels))
    return correlation(predicted[:, None] == classes, true[:, None] == classes, float(score))


def pearson(answers: Answers) -> Floats:
    """Pearson's correlation of numbers. A prediction that is no number counts as -1. 0 if all predictions are equal."""
    x, y = _numbers(answers)
    score = 0.0 if _constant(x, y) else _package("scipy.stats", "scipy").pearsonr(x, y)[0]
    return correlation(x[:, None], y[:, None], float(score))


def spearman(answers: Answers) -> Floats:
    """Spearman's rank correlation of numbers. Everything else is as in `pearson`."""
    x, y = _numbers(answers)
    stats = _package("scipy.stats", "scipy")
    score = 0.0 if _constant(x, y) else stats.spearmanr(x, y)[0]
    return correlation(stats.rankdata(x)[:, None], stats.rankdata(y)[:, None], float(score))


def correlation(x: NDArray[Any], y: NDArray[Any], score: float) -> Floats:
    """Return numbers whose mean is the correlation `score` of the rows of x and y [n, k]: the score plus each row's
    influence.

    With deviations u, v from the means, and averages over rows, the score is <u·v> / sqrt(<u·u> <v·v>). Its influence
    of a row is u·v / sqrt(<u·u> <v·v>) - score/2 · (u·u / <u·u> + v·v / <v·v>).
    """
    u, v = (values - values.mean(0) for values in (x.astype(np.float64), y.astype(np.float64)))
    uu, uv, vv = ((a * b).sum(1) for a, b in ((u, u), (u, v), (v, v)))
    scale = np.sqrt(uu.mean() * vv.mean())
    if not scale:
        return np.zeros(len(u))
    influence: Floats = uv / scale - score / 2 * (uu / uu.mean() + vv / vv.mean())
    return score + influence - influence.mean()


def all_match(labels: Sequence[str], answers: Answers) -> Floats:
    """The share of groups in which every prediction is correct, as numbers whose mean is this share."""
    correct = accuracy(labels, answers)
    groups, index, sizes = np.unique(list(answers.groups), return_inverse=True, return_counts=True)
    whole = np.bincount(index, correct) == sizes
    return (whole[index] * len(correct) / (len(groups) * sizes[index])).astype(np.float64)


def mean_of_groups(labels: Sequence[str], answers: Answers) -> Floats:
    """The mean over groups of their accuracies, as numbers whose mean it is: MNLI's matched and mismatched examples."""
    correct = accuracy(labels, answers)
    groups, index, sizes = np.unique(list(answers.groups), return_inverse=True, return_counts=True)
    return correct * len(correct) / (len(groups) * sizes[index])


def _numbers(answers: Answers) -> tuple[Floats, Floats]:
    try:
        true = np.array([float(texts[0]) for texts in answers.references])
    except ValueError as error:
        raise ConfigError(f"a reference must be a number: {error}") from None
    return np.array([_number(text) for text in answers.predictions]), true


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        return UNREADABLE_NUMBER
    return value if np.isfinite(value) else UNREADABLE_NUMBER


def _constant(*columns: Floats) -> bool:
    return any(np.ptp(column) == 0 for column in columns)


def _package(module: str, name: str) -> ModuleType:
    """Import a package when a metric needs it. It is an extra, because nothing else in the library does."""
    import importlib

    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise missing_package("this metric", name, "data", error) from error


# ---- the list ------------------------------------------------------------------------------------------------------

F1 = AnswerMetric("F1", lambda answers: {"F1": _best(token_f1, answers)})
EXACT_MATCH = AnswerMetric("exact match", lambda answers: {"exact match": _best(is_match, answers)})
ROUGE = AnswerMetric("ROUGE", rouge, combine="geometric")
CORRELATION = AnswerMetric("correlation", lambda answers: {"Pearson": pearson(answers), "Spearman": spearman(answers)})
F1_AND_EXACT_MATCH = AnswerMetric(
    "F1 and exact match",
    lambda answers: {"F1": _best(token_f1, answers), "exact match": _best(is_match, answers)},
)


def of_classes(*names: str, labels: Sequence[str]) -> AnswerMetric:
    """Return the mean of metrics of answers that are one of `labels`: "accuracy", "F1", "macro F1", "Matthews", "all
    match", "accuracy of groups".

    For "F1", the second label is the positive one.
    """
    return AnswerMetric(
        " and ".join(names), lambda answers: {name: CLASS_METRICS[name](labels, answers) for name in names}
    )


CLASS_METRICS: dict[str, Callable[[Sequence[str], Answers], Floats]] = {
    "accuracy": accuracy,
    "F1": binary_f1,
    "macro F1": macro_f1,
    "Matthews": matthews,
    "all match": all_match,
    "accuracy of groups": mean_of_groups,
}
