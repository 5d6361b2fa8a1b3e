"""The tables of README.md, from benchmarks/results/outside.json. `docs/measurements.py` writes them into the page.

`python -m comparisons` prints the same tables.
"""

import re
from typing import Any

Rows = list[list[str]]
Figures = dict[str, Any]  # those of `answers.as_data`
VERDICTS = ("agrees", "differs", "not applicable")


def error(value: float | None) -> str:
    """Return an error with two digits, or an empty string for None."""
    if value is None:
        return ""
    if value == 0 or value >= 100:
        return f"{value:.0f}"
    return f"{value:.1e}" if value < 0.01 else f"{value:.2g}"


def _counts(answers: list[dict[str, Any]]) -> list[str]:
    return [str(sum(answer["verdict"] == verdict for answer in answers)) for verdict in VERDICTS]


def libraries_compared(figures: Figures) -> Rows:
    rows = [["library", "version", "implementations", "agree", "differ", "do not apply"]]
    for library, version in figures["libraries"].items():
        answers = [answer for answer in figures["answers"] if answer["library"] == library]
        implementations = {answer["implementation"] for answer in answers}
        rows.append([library, version, str(len(implementations)), *_counts(answers)])
    return rows


def implementations_compared(figures: Figures) -> Rows:
    rows = [["library", "implementation", "encoding of Lengthwise", "agree", "differ", "do not apply"]]
    for library, name in dict.fromkeys((answer["library"], answer["implementation"]) for answer in figures["answers"]):
        answers = [
            answer for answer in figures["answers"] if (answer["library"], answer["implementation"]) == (library, name)
        ]
        without_settings = re.sub(r"\(.*\)", "", answers[0]["encoding"])
        rows.append([library, name, without_settings, *_counts(answers)])
    return rows


def ours_on_a_gpu(figures: Figures) -> Rows:
    rows = [["implementation", "question", "theirs, nats", "ours on a CPU, nats", "ours on a GPU, nats"]]
    for answer in figures["answers"]:
        if answer["ours_on_gpu"] not in (None, answer["ours"]):
            errors = [error(answer[name]) for name in ("theirs", "ours", "ours_on_gpu")]
            rows.append([answer["implementation"], answer["question"], *errors])
    return rows


def differences(figures: Figures, library: str) -> Rows:
    rows = [["implementation", "question", "theirs, nats", "ours, nats"]]
    for answer in figures["answers"]:
        if answer["library"] == library and answer["verdict"] == "differs":
            theirs, ours = error(answer["theirs"]) or "raises", error(answer["ours"]) or "runs"
            rows.append([answer["implementation"], answer["question"], theirs, ours])
    return rows


def differences_of_transformers(figures: Figures) -> Rows:
    return differences(figures, "transformers")


def differences_of_x_transformers(figures: Figures) -> Rows:
    return differences(figures, "x-transformers")


def differences_of_fla_core(figures: Figures) -> Rows:
    return differences(figures, "fla-core")


def reasons(figures: Figures) -> dict[str, list[str]]:
    """Return the reasons of all differences, with the implementations and questions that each explains."""
    places: dict[str, list[str]] = {}
    for answer in figures["answers"]:
        if answer["verdict"] in ("differs", "ours raised"):
            place = f"{answer['implementation']}, {answer['question']}"
            places.setdefault(f"{answer['library']}: {answer['reason']}", []).append(place)
    return places


TABLES = (
    libraries_compared,
    implementations_compared,
    ours_on_a_gpu,
    differences_of_transformers,
    differences_of_x_transformers,
    differences_of_fla_core,
)
