"""The metrics against the official scorers: their published examples, and their definitions in plain Python."""

import itertools
import math
import random
import re
import statistics
from fractions import Fraction
from typing import Any

import pytest

from lengthwise.downstream import metrics
from lengthwise.downstream.metrics import CORRELATION, EXACT_MATCH, F1, F1_AND_EXACT_MATCH, ROUGE, of_classes
from lengthwise.values import ConfigError

# The example in the documentation of SCROLLS' metric (tau/scrolls, metrics/scrolls.py), with the results that it
# prints.
PREDICTIONS = ["exact match example", "hello there", "general kenobi"]
REFERENCES = [["exact match example"], ["hello", "hi there"], ["commander kenobi"]]


def test_the_published_example() -> None:
    assert 100 * F1.score(PREDICTIONS, REFERENCES).score == pytest.approx(72.2222, abs=5e-5)
    assert 100 * EXACT_MATCH.score(PREDICTIONS, REFERENCES).score == pytest.approx(33.3333, abs=5e-5)
    scores = ROUGE.score(PREDICTIONS, REFERENCES)
    assert 100 * scores.score == pytest.approx(55.8136, abs=5e-5)
    parts = {name: 100 * value for name, value in scores.components.items()}
    assert parts == pytest.approx({"ROUGE-1": 72.2222, "ROUGE-2": 33.3333, "ROUGE-L": 72.2222}, abs=5e-5)


# ---- texts ---------------------------------------------------------------------------------------------------------


def squad_words(text: str) -> list[str]:
    """SQuAD 1.1's normalization: lower case, no ASCII punctuation, no articles."""
    kept = "".join(c for c in text.lower() if c not in "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")
    return re.sub(r"\b(a|an|the)\b", " ", kept).split()


def squad_f1(prediction: str, reference: str) -> Fraction:
    words, expected = squad_words(prediction), squad_words(reference)
    left, common = list(expected), 0
    for word in words:
        if word in left:
            left.remove(word)
            common += 1
    if not common:
        return Fraction(0)
    precision, recall = Fraction(common, len(words)), Fraction(common, len(expected))
    return 2 * precision * recall / (precision + recall)


def rouge_words(text: str) -> list[str]:
    """rouge-score's tokens without stemming: runs of ASCII letters and digits, in lower case."""
    return re.findall("[a-z0-9]+", text.lower())


def f_measure(common: int, predicted: int, expected: int) -> float:
    return 2 * common / (predicted + expected) if common else 0.0


def rouge_n(n: int, prediction: str, reference: str) -> float:
    grams = []
    for text in (prediction, reference):
        words = rouge_words(text)
        grams.append([tuple(words[i : i + n]) for i in range(len(words) - n + 1)])
    common = sum(min(grams[0].count(gram), grams[1].count(gram)) for gram in set(grams[1]))
    return f_measure(common, len(grams[0]), len(grams[1]))


def rouge_l(prediction: str, reference: str) -> float:
    words, expected = rouge_words(prediction), rouge_words(reference)
    table = [[0] * (len(expected) + 1) for _ in range(len(words) + 1)]
    for i, j in itertools.product(range(len(words)), range(len(expected))):
        longer = max(table[i][j + 1], table[i + 1][j])
        table[i + 1][j + 1] = table[i][j] + 1 if words[i] == expected[j] else longer
    return f_measure(table[-1][-1], len(words), len(expected))


ODD = [
    ("", [""]),
    ("", ["an answer"]),
    ("an answer", [""]),
    ("The, a; an!", ["the"]),  # nothing is left
    ("the cat's  hat.", ["A cats hat", "nothing"]),
    ("Zürich, “naïve” café", ["zürich naïve café", "Zurich"]),
    ("theatre another thesis", ["theatre other"]),  # articles inside words stay
    ("yes yes yes no", ["yes no", "no no yes"]),
    ("one\ntwo\nthree. Four", ["two one three four\n", "four three"]),
    ("running runs ran", ["run runs"]),  # not stemmed
    ("Unanswerable", ["Unanswerable", "Yes"]),
    ("²", ["2"]),
    ("东京 is the capital", ["东京", "The capital is 东京"]),
]


@pytest.mark.parametrize(("prediction", "texts"), ODD)
def test_odd_texts(prediction: str, texts: list[str]) -> None:
    expected: dict[Any, Any] = {
        F1: [max(squad_f1(prediction, text) for text in texts)],
        EXACT_MATCH: [max(squad_words(prediction) == squad_words(text) for text in texts)],
        ROUGE: [
            max(rouge_n(1, prediction, text) for text in texts),
            max(rouge_n(2, prediction, text) for text in texts),
            max(rouge_l(prediction, text) for text in texts),
        ],
    }
    for metric, parts in expected.items():
        scores = metric.score([prediction], [texts])
        assert list(scores.components.values()) == pytest.approx([float(part) for part in parts], abs=1e-12)
        mean = math.prod(map(float, parts)) ** (1 / len(parts))
        assert scores.score == pytest.approx(mean, abs=1e-12)
        assert scores.examples == pytest.approx([mean], abs=1e-12)


def test_the_geometric_mean_is_that_of_the_means_over_examples() -> None:
    """As in SCROLLS' metric. The mean of the geometric means of single examples is another number."""
    predictions, references = zip(*ODD, strict=True)
    scores = ROUGE.score(predictions, references)
    means = [
        statistics.fmean(max(score(p, text) for text in texts) for p, texts in ODD)
        for score in (lambda p, text: rouge_n(1, p, text), lambda p, text: rouge_n(2, p, text), rouge_l)
    ]
    assert scores.score == pytest.approx(math.prod(means) ** (1 / 3), abs=1e-12)
    single = statistics.fmean(ROUGE.score([p], [texts]).score for p, texts in ODD)
    assert abs(scores.score - single) > 0.01
    assert statistics.fmean(scores.examples) == pytest.approx(scores.score, abs=1e-12)
    assert ROUGE.score(["no", "none"], [["x y"], ["z"]]).examples == [0.0, 0.0]


# ---- classes and numbers -------------------------------------------------------------------------------------------

LABELS = ("not_equivalent", "equivalent")
THREE = ("entailment", "contradiction", "neutral")


def drawn(labels: tuple[str, ...], seed: int, count: int = 40) -> tuple[list[str], list[str]]:
    rng = random.Random(seed)
    true = [rng.choice(labels) for _ in range(count)]
    predicted = [rng.choice([text, text, *labels, "none of them"]) for text in true]
    return predicted, true


def rows(texts: list[str]) -> list[list[str]]:
    return [[text] for text in texts]


def f1_of(label: str, predicted: list[str], true: list[str]) -> float:
    pairs = list(zip(predicted, true, strict=True))
    hits = sum(p == t == label for p, t in pairs)
    return 2 * hits / (sum(p == label for p, _ in pairs) + sum(t == label for _, t in pairs))


@pytest.mark.parametrize("seed", range(3))
def test_classes(seed: int) -> None:
    predicted, true = drawn(LABELS, seed)
    hits = statistics.fmean(p == t for p, t in zip(predicted, true, strict=True))
    scores = of_classes("F1", "accuracy", labels=LABELS).score(predicted, rows(true))
    # T5: a prediction that is no label counts as the label that is wrong.
    wrong = {LABELS[0]: LABELS[1], LABELS[1]: LABELS[0]}
    repaired = [p if p in LABELS else wrong[t] for p, t in zip(predicted, true, strict=True)]
    assert scores.components == pytest.approx({"F1": f1_of("equivalent", repaired, true), "accuracy": hits})
    assert scores.score == pytest.approx(statistics.fmean(scores.components.values()))
    assert statistics.fmean(scores.examples) == pytest.approx(scores.score)

    predicted, true = drawn(THREE, seed)
    macro = of_classes("macro F1", labels=THREE).score(predicted, rows(true))
    assert macro.score == pytest.approx(statistics.fmean(f1_of(label, predicted, true) for label in THREE))
    assert of_classes("accuracy", labels=THREE).score(true, rows(true)).score == 1


@pytest.mark.parametrize("seed", range(3))
def test_matthews(seed: int) -> None:
    predicted, true = drawn(LABELS, seed)
    predicted = [p if p in LABELS else LABELS[0] for p in predicted]
    count = dict.fromkeys(itertools.product(LABELS, repeat=2), 0)
    for pair in zip(predicted, true, strict=True):
        count[pair] += 1
    no, yes = LABELS
    tp, tn, fp, fn = count[yes, yes], count[no, no], count[yes, no], count[no, yes]
    expected = (tp * tn - fp * fn) / math.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn))
    scores = of_classes("Matthews", labels=LABELS).score(predicted, rows(true))
    assert scores.score == pytest.approx(expected)
    assert statistics.fmean(scores.examples) == pytest.approx(expected)


def test_constant_predictions_have_no_correlation() -> None:
    assert of_classes("Matthews", labels=LABELS).score([LABELS[0]] * 3, rows([*LABELS, LABELS[0]])).score == 0
    assert CORRELATION.score(["1"] * 3, rows(["1", "2", "3"])).score == 0


def pearson(x: list[float], y: list[float]) -> float:
    return statistics.correlation(x, y)


def test_correlations_of_numbers() -> None:
    true = [0.0, 1.2, 3.4, 5.0, 2.2, 2.2]
    texts = ["0.2", "1.0", "4.4", "seven", "2.2", " 3.0 "]  # what is no number counts as -1
    numbers = [0.2, 1.0, 4.4, -1.0, 2.2, 3.0]
    scores = CORRELATION.score(texts, rows([str(n) for n in true]))
    ranks = [sum(other < n for other in column) + (column.count(n) + 1) / 2 for column in (true,) for n in column]
    own_ranks = [sum(other < n for other in numbers) + (numbers.count(n) + 1) / 2 for n in numbers]
    assert scores.components == pytest.approx(
        {"Pearson": pearson(numbers, true), "Spearman": pearson(own_ranks, ranks)}
    )
    assert scores.score == pytest.approx(statistics.fmean(scores.components.values()))
    assert CORRELATION.score(["nan", "1", "2"], rows(["-1", "1", "2"])).score == pytest.approx(1)


def test_the_influence_of_answers_is_that_of_the_delta_method() -> None:
    """The standard error of the numbers is that of the score, which the jackknife estimates without any formula."""
    rng = random.Random(0)
    x = [rng.gauss(0, 1) for _ in range(400)]
    numbers = [f"{n + rng.gauss(0, 1):.6f}" for n in x]
    true = rows([f"{n:.6f}" for n in x])
    classes, labels = drawn(LABELS, 1, 400)
    cases = [
        (metrics.AnswerMetric("Pearson", lambda answers: {"Pearson": metrics.pearson(answers)}), numbers, true),
        (of_classes("F1", labels=LABELS), classes, rows(labels)),
        (of_classes("Matthews", labels=LABELS), classes, rows(labels)),
    ]
    for metric, predictions, references in cases:
        scores = metric.score(predictions, references)
        n = len(predictions)
        without = [
            metric.score(predictions[:i] + predictions[i + 1 :], references[:i] + references[i + 1 :]).score
            for i in range(0, n, 8)
        ]
        jackknife = statistics.pstdev(without) * (n - 1) / math.sqrt(n)
        assert statistics.stdev(scores.examples) / math.sqrt(n) == pytest.approx(jackknife, rel=0.25)


# ---- MultiRC and ReCoRD --------------------------------------------------------------------------------------------


def test_multirc_takes_f1_over_all_answers_and_the_exact_match_of_whole_questions() -> None:
    true = ["True", "False", "True", "False", "True", "True"]
    predicted = ["True", "False", "False", "False", "True", "?"]
    questions = ["1", "1", "2", "2", "2", "3"]
    scores = of_classes("F1", "all match", labels=("False", "True")).score(predicted, rows(true), questions)
    # Of the three questions only the first is right in all its answers.
    assert scores.components == pytest.approx({"F1": 2 * 2 / (2 + 4), "all match": 1 / 3})
    assert scores.score == pytest.approx((2 / 3 + 1 / 3) / 2)


def test_record_takes_the_best_of_several_entities() -> None:
    scores = F1_AND_EXACT_MATCH.score(["The Royal Navy", "Navy"], [["royal navy", "US Navy"], ["US Navy"]])
    assert scores.components == pytest.approx({"F1": (1 + 2 / 3) / 2, "exact match": 0.5})


# ---- invalid input -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("predictions", "references", "problem"),
    [
        (
            ["a", "b"],
            [["a"]],
            "a list of references for each prediction, and at least one, got 2 predictions and 1 lists",
        ),
        ([], [], "and at least one, got 0 predictions and 0 lists"),
        (["a"], [[]], "the references of prediction 0 must be a list of texts, got "),
        (["a"], ["a"], "the references of prediction 0 must be a list of texts, got 'a'"),
    ],
)
def test_invalid_input(predictions: Any, references: Any, problem: str) -> None:
    for metric in (F1, ROUGE, CORRELATION):
        with pytest.raises(ConfigError, match=problem) as error:
            metric.score(predictions, references)
        assert "\n" not in str(error.value)


def test_references_that_are_no_labels_or_numbers() -> None:
    with pytest.raises(ConfigError, match="'maybe' must be one of the labels: not_equivalent, equivalent"):
        of_classes("accuracy", labels=LABELS).score(["equivalent"], [["maybe"]])
    with pytest.raises(ConfigError, match="a reference must be a number"):
        CORRELATION.score(["1"], [["high"]])
