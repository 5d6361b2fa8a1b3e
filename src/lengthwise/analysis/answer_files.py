"""The summary of answers in files, which is shown by the same tables and charts as that of stored answers."""

import itertools
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from lengthwise.analysis.answers import Series, Summary, joint
from lengthwise.analysis.differences import flat, plain
from lengthwise.measurements import Table
from lengthwise.measurements.answer_file import FileAnswer
from lengthwise.measurements.table import Row


def of_files(answers: Sequence[FileAnswer]) -> Summary:
    """Return a summary of files of one measurement, with a series for each value of its column `series`, in the order
    of the rows.

    The question has what all files have in common. A name that several series would have gets a number.
    """
    measurement, series = answers[0].measurement, list[Series]()
    for answer in answers:
        rows: dict[Any, list[Row]] = defaultdict(list)
        for row in measurement.derive(answer.table, answer.origin):
            rows[row.get(measurement.series)].append(row)
        for value, own in rows.items():
            name, taken = measurement.label(answer.subject, value), {other.name for other in series}
            names = itertools.chain([name], (f"{name} ({n})" for n in itertools.count(2)))
            label = next(other for other in names if other not in taken)
            series.append(Series(label=label, name=label, seeds=(), runs=(Table.from_rows(own),)))
    first, *others = answers
    question = {k: v for k, v in first.question.items() if all(other.question.get(k) == v for other in others)}
    facts = joint(flat_facts(answer) for answer in answers)
    return Summary(measurement=measurement, question=question, series=tuple(series), facts=facts)


def flat_facts(answer: FileAnswer) -> dict[str, Any]:
    """Return the question, the subject and the origin of an answer, flat, with short hashes."""
    facts = flat({**answer.question, **answer.subject, **answer.origin})
    return {name: plain(value) if isinstance(value, str) else value for name, value in facts.items()}
