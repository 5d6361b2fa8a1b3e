"""The tables of docs/outside.md, from benchmarks/results/outside.json. `docs/measurements.py` writes them into the page."""

import re
from typing import Any

Rows = list[list[str]]
VERDICTS = ("agrees", "differs", "not applicable")


def error(value: float | None) -> str:
    """Return an error with two digits, as `lengthwise check --outside` prints it, or an empty string for None."""
    if value is None:
        return ""
    if value == 0 or value >= 100:
        return f"{value:.0f}"
    return f"{value:.1e}" if value < 0.01 else f"{value:.2g}"


def _counts(answers: list[dict[str, Any]]) -> list[str]:
    return [str(sum(answer["verdict"] == verdict for answer in answers)) for verdict in VERDICTS]


def libraries_compared(figures: dict[str, Any]) -> Rows:
    rows = [["library", "version", "implementations", "agree", "differ", "do not apply"]]
    for library, version in figures["libraries"].items():
        answers = [answer for answer in figures["answers"] if answer["library"] == library]
        implementations = {answer["implementation"] for answer in answers}
        rows.append([library, version, str(len(implementations)), *_counts(answers)])
    return rows


def implementations_compared(figures: dict[str, Any]) -> Rows:
    rows = [["library", "implementation", "encoding of Lengthwise", "agree", "differ", "do not apply"]]
    for library, name in dict.fromkeys((answer["library"], answer["implementation"]) for answer in figures["answers"]):
        answers = [
            answer for answer in figures["answers"] if (answer["library"], answer["implementation"]) == (library, name)
        ]
        without_settings = re.sub(r"\(.*\)", "", answers[0]["encoding"])
        rows.append([library, name, without_settings, *_counts(answers)])
    return rows


def ours_on_a_gpu(figures: dict[str, Any]) -> Rows:
    rows = [["implementation", "question", "theirs, nats", "ours on a CPU, nats", "ours on a GPU, nats"]]
    for answer in figures["answers"]:
        if answer["ours_on_gpu"] not in (None, answer["ours"]):
            errors = [error(answer[name]) for name in ("theirs", "ours", "ours_on_gpu")]
            rows.append([answer["implementation"], answer["question"], *errors])
    return rows


def differences_of_transformers(figures: dict[str, Any]) -> Rows:
    return _differences(figures, "transformers")


def differences_of_x_transformers(figures: dict[str, Any]) -> Rows:
    return _differences(figures, "x-transformers")


def differences_of_fla_core(figures: dict[str, Any]) -> Rows:
    return _differences(figures, "fla-core")


def _differences(figures: dict[str, Any], library: str) -> Rows:
    rows = [["implementation", "question", "theirs, nats", "ours, nats"]]
    for answer in figures["answers"]:
        if answer["library"] == library and answer["verdict"] == "differs":
            theirs, ours = error(answer["theirs"]) or "raises", error(answer["ours"]) or "runs"
            rows.append([answer["implementation"], answer["question"], theirs, ours])
    return rows


TABLES = (
    libraries_compared,
    implementations_compared,
    ours_on_a_gpu,
    differences_of_transformers,
    differences_of_x_transformers,
    differences_of_fla_core,
)
