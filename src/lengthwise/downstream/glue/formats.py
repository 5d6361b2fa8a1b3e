"""The data sets of GLUE and SuperGLUE: their files, metrics, and how T5 writes their rows as text."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lengthwise.corpora.sources.rows import text_field
from lengthwise.downstream.examples import Example
from lengthwise.downstream.metrics import CORRELATION, F1_AND_EXACT_MATCH, AnswerMetric, of_classes
from lengthwise.values import ConfigError

Row = dict[str, Any]
BOOLEAN = ("False", "True")
NO_LABEL = "it has no label, as in the published test files; use the files of training and validation"
HIGHLIGHT = "\n@highlight\n"  # between the sentences of a passage of ReCoRD


@dataclass(frozen=True)
class GlueDataset:
    """A data set of GLUE or SuperGLUE.

    `name`: as in T5's inputs. `folders`: names of its folder. `columns`: the columns of the input in their order; if
    there are several lists, the first one that a row has. `labels`: the texts of labels 0, 1, ...; empty if labels are
    no classes.
    `tests`: the names of its validation files, which are the test, because the published test files have no labels; the
    names of one file are alternatives. `convert`: the examples of a row, where they are more than columns and a label.
    `flatten`: the rows of a nested row, as SuperGLUE's own files have them.
    """

    name: str
    folders: tuple[str, ...]
    columns: tuple[tuple[str, ...], ...]
    labels: tuple[str, ...]
    metric: AnswerMetric
    tests: tuple[tuple[str, ...], ...] = (("validation", "val", "dev"),)
    convert: "Callable[[GlueDataset, Row, bool], list[Example]] | None" = None
    flatten: Callable[[Row], Iterator[Row]] | None = None

    def examples(self, row: Row, train: bool, test: int = 0) -> list[Example]:
        """Return the examples of a row. `test`: the number of its file in `tests`."""
        rows = [row] if self.flatten is None else self.flatten(row)
        convert = self.convert or plain
        examples = [example for each in rows for example in convert(self, each, train)]
        return [
            Example(
                one.input, one.references, one.group or (self.tests[test][0] if len(self.tests) > 1 else ""), self.name
            )
            for one in examples
        ]

    def joined(self, row: Mapping[str, Any]) -> str:
        """Return `name column: text column: text`, as T5 writes a row."""
        columns = next((some for some in self.columns if all(name in row for name in some)), self.columns[0])
        return " ".join([self.name, *(f"{name}: {text_field(row, name)}" for name in columns)])

    def label(self, row: Row) -> str:
        """Return the text of a row's label, which is a number, a boolean or a text."""
        if "label" not in row:
            raise ConfigError(f"{NO_LABEL} (its fields are: {', '.join(map(str, row))[:200]})")
        value = row["label"]
        if value is None or value == -1:
            raise ConfigError(NO_LABEL)
        if isinstance(value, str) and value in self.labels:
            return value
        if isinstance(value, int) and 0 <= value < len(self.labels):
            return self.labels[value]
        raise ConfigError(
            f"the field 'label' must be 0 to {len(self.labels) - 1}, or {' or '.join(self.labels)}, got {value!r:.50}"
        )


def plain(dataset: GlueDataset, row: Row, train: bool) -> list[Example]:
    """Return the example of a row of texts and a label."""
    return [Example(dataset.joined(row), (dataset.label(row),))]


def stsb(dataset: GlueDataset, row: Row, train: bool) -> list[Example]:
    """A number from 0 to 5 as its text. For training it is rounded to a multiple of 0.2, as in T5."""
    value = row.get("label")
    if value is None or value == -1:
        raise ConfigError(NO_LABEL)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 5:
        raise ConfigError(f"the field 'label' must be a number from 0 to 5, got {value!r:.50}")
    return [Example(dataset.joined(row), (f"{round(value * 5) / 5:.1f}" if train else repr(float(value)),))]


def multirc(dataset: GlueDataset, row: Row, train: bool) -> list[Example]:
    """An answer to a question. The answers to one question are a group. Marks of HTML are removed, as in T5."""
    index = row.get("idx")
    if not isinstance(index, Mapping) or not {"paragraph", "question"} <= index.keys():
        raise ConfigError(
            f"the field 'idx' must be an object with the numbers paragraph and question, got {index!r:.50}"
        )
    text = re.sub("</?b>", "", dataset.joined(row).replace("<br>", " "))
    return [Example(text, (dataset.label(row),), f"{index['paragraph']}-{index['question']}")]


def record(dataset: GlueDataset, row: Row, train: bool) -> list[Example]:
    """A passage with a gap. In training, each accepted entity is an example, as in T5."""
    lists = {}
    for name in ("entities", "answers"):
        value = row.get(name)
        if not isinstance(value, Sequence) or isinstance(value, str) or not all(isinstance(one, str) for one in value):
            raise ConfigError(f"the field {name!r} must be a list of texts, got {value!r:.50}")
        lists[name] = list(value)
    if not lists["answers"]:
        raise ConfigError(NO_LABEL)
    passage = re.sub(rf"([.?!\"']){HIGHLIGHT}", r"\1 ", text_field(row, "passage")).replace(HIGHLIGHT, ". ")
    text = (
        f"{dataset.name} query: {text_field(row, 'query')} entities: {', '.join(lists['entities'])} passage: {passage}"
    )
    answers = list(dict.fromkeys(lists["answers"]))
    return [Example(text, (one,)) for one in answers] if train else [Example(text, tuple(answers))]


def wsc(dataset: GlueDataset, row: Row, train: bool) -> list[Example]:
    """A text in which * * marks a noun and # # a pronoun."""
    text, spans = text_field(row, "text"), []
    for name in ("span1", "span2"):
        index = row.get(f"{name}_index")
        if isinstance(index, bool) or not isinstance(index, int) or index < 0:
            raise ConfigError(f"the field '{name}_index' must be a whole number of at least 0, got {index!r:.50}")
        spans.append((index, text_field(row, f"{name}_text")))
    (noun_index, noun), (pronoun_index, pronoun) = spans
    text = _marked(text, noun, noun_index, "*")
    text = _marked(
        text, pronoun, pronoun_index + 2 * (noun_index < pronoun_index), "#"
    )  # two marks are words before it
    return [Example(f"{dataset.name} text: {text}", (dataset.label(row),))]


def _marked(text: str, span: str, index: int, mark: str) -> str:
    """Put marks around a span that begins with the word `index`. As in T5, leave a text without it as it is."""
    words = re.match(rf"(?:\S+\s){{{index}}}", text) if index < 10_000 else None
    if words is None or not text.startswith(span, words.end()):
        return text
    return f"{text[: words.end()]}{mark} {span} {mark}{text[words.end() + len(span) :]}"


# ---- SuperGLUE's own nested files ----------------------------------------------------------------------------------


def _field(row: Any, name: str, kind: type) -> Any:
    value = row.get(name) if isinstance(row, dict) else None
    if not isinstance(value, kind):
        raise ConfigError(
            f"the field {name!r} must be a {'list' if kind is list else 'JSON object'}, got {value!r:.50}"
        )
    return value


def multirc_rows(row: Row) -> Iterator[Row]:
    """Yield a row for each answer. A row that is not nested is yielded unchanged."""
    if "passage" not in row:
        yield row
        return
    passage = _field(row, "passage", dict)
    for question in _field(passage, "questions", list):
        for answer in _field(question, "answers", list):
            index = {"paragraph": row.get("idx"), "question": question.get("idx")}
            texts = {"paragraph": passage.get("text"), "question": question.get("question")}
            yield {**texts, "answer": _field({"answer": answer}, "answer", dict).get("text"), "idx": index} | (
                {"label": answer["label"]} if "label" in answer else {}
            )


def record_rows(row: Row) -> Iterator[Row]:
    """Yield a row for each query, with the distinct texts of its entities and answers in alphabetical order."""
    if "qas" not in row:
        yield row
        return
    passage = _field(row, "passage", dict)
    text = text_field(passage, "text")
    try:
        spans = [text[span["start"] : span["end"] + 1] for span in _field(passage, "entities", list)]
        for query in _field(row, "qas", list):
            answers = sorted({answer["text"] for answer in query.get("answers") or ()})
            yield {"passage": text, "query": query["query"], "entities": sorted(set(spans)), "answers": answers}
    except (KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"its entities and queries are not those of ReCoRD ({error})") from None


def wsc_rows(row: Row) -> Iterator[Row]:
    yield {**row, **row["target"]} if isinstance(row.get("target"), dict) else row


PAIR = (("sentence1", "sentence2"),)
ENTAILMENT = ("entailment", "not_entailment")


def _accuracy(*labels: str) -> AnswerMetric:
    return of_classes("accuracy", labels=labels)


def _binary(name: str, folders: tuple[str, ...], columns: tuple[tuple[str, ...], ...], *labels: str) -> GlueDataset:
    return GlueDataset(name, folders, columns, labels, _accuracy(*labels))


def _paraphrases(name: str, folder: str, columns: tuple[tuple[str, ...], ...], *labels: str) -> GlueDataset:
    return GlueDataset(name, (name, folder), columns, labels, of_classes("F1", "accuracy", labels=labels))


COLA, MNLI = ("unacceptable", "acceptable"), ("entailment", "neutral", "contradiction")
CB = ("entailment", "contradiction", "neutral")
MATCHED = (("validation_matched", "dev_matched"), ("validation_mismatched", "dev_mismatched"))

GLUE = (
    GlueDataset("cola", ("cola", "CoLA"), (("sentence",),), COLA, of_classes("Matthews", labels=COLA)),
    _binary("sst2", ("sst2", "SST-2"), (("sentence",),), "negative", "positive"),
    _paraphrases("mrpc", "MRPC", PAIR, "not_equivalent", "equivalent"),
    _paraphrases("qqp", "QQP", (("question1", "question2"),), "not_duplicate", "duplicate"),
    GlueDataset("stsb", ("stsb", "STS-B"), PAIR, (), CORRELATION, convert=stsb),
    GlueDataset(
        "mnli",
        ("mnli", "MNLI"),
        (("hypothesis", "premise"),),
        MNLI,
        of_classes("accuracy of groups", labels=MNLI),
        tests=MATCHED,
    ),
    _binary("qnli", ("qnli", "QNLI"), (("question", "sentence"),), *ENTAILMENT),
    _binary("rte", ("rte", "RTE"), (*PAIR, ("hypothesis", "premise")), *ENTAILMENT),
    _binary("boolq", ("boolq", "BoolQ"), (("passage", "question"),), *BOOLEAN),
    GlueDataset("cb", ("cb", "CB"), (("hypothesis", "premise"),), CB, of_classes("macro F1", "accuracy", labels=CB)),
    _binary("copa", ("copa", "COPA"), (("choice1", "choice2", "premise", "question"),), "choice1", "choice2"),
    GlueDataset(
        "multirc",
        ("multirc", "MultiRC"),
        (("question", "answer", "paragraph"),),
        BOOLEAN,
        of_classes("F1", "all match", labels=BOOLEAN),
        convert=multirc,
        flatten=multirc_rows,
    ),
    GlueDataset(
        "record",
        ("record", "ReCoRD"),
        (("query", "entities", "passage"),),
        (),
        F1_AND_EXACT_MATCH,
        convert=record,
        flatten=record_rows,
    ),
    _binary("wic", ("wic", "WiC"), (("sentence1", "sentence2", "word"),), *BOOLEAN),
    GlueDataset(
        "wsc",
        ("wsc", "wsc.fixed", "WSC"),
        (("text",),),
        BOOLEAN,
        _accuracy(*BOOLEAN),
        convert=wsc,
        flatten=wsc_rows,
    ),
)
NAMES = tuple(dataset.name for dataset in GLUE)
