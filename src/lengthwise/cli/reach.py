"""`lengthwise reach`: how far does a causal language model reach?"""

import dataclasses
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from lengthwise.cli.answers import ANSWERS, show_answers
from lengthwise.cli.options import (
    FLATTENED,
    Integer,
    Place,
    Threads,
    method_names,
    named_as_options,
    option_class,
    option_values,
)
from lengthwise.cli.output_file import new_file, output_file
from lengthwise.cli.printing import one_line, warn_of_untested_transformers
from lengthwise.cli.progress import progress
from lengthwise.config import ConfigError
from lengthwise.measurements.reach import FUNCTIONS, Reach, ReachOptions

if TYPE_CHECKING:
    from lengthwise.measurements.answer_file import FileAnswer
    from lengthwise.reach.text import Text

ENDING = f".reach{ANSWERS}"
Options = option_class({field.name: field for field in ReachOptions.fields()}, Reach().shown_default)


@FLATTENED
@dataclasses.dataclass(frozen=True, kw_only=True)
class Files:
    """The files that are read and written."""

    text: str | None = None
    """Text file in UTF-8. The model reads windows of it; retrieval tasks insert sentences into them."""
    out: str | None = None
    """File for the results, from which the same command continues. [default: FOLDER.reach.jsonl beside the model, or
    KEY.reach.jsonl in the current folder for a run]"""
    page: str | None = None
    """HTML page to write, with charts and tables of all models. [default: none]"""
    json: bool = False
    """Print JSON instead of tables."""


@FLATTENED
@dataclasses.dataclass(frozen=True, kw_only=True)
class Computing:
    """How the model is computed."""

    max_minutes: float | None = None
    """Leave out lengths that could not be measured within this time. A later call without the limit continues.
    [default: no limit]"""
    batch_size: Integer = 8
    """Prompts per forward pass of the task functions."""
    device: str = "cpu"
    """Device to run on: cpu, cuda, cuda:1, ..."""
    threads: Threads = 1
    """Number of CPU threads."""


def command(
    *paths: Annotated[str, Parameter(name="PATHS")],
    files: Files = Files(),
    options: Options = Options(),  # type: ignore[valid-type]
    computing: Computing = Computing(),
    place: Place = Place(),
) -> int:
    """Measure how far a causal language model reaches: cross-entropy and retrieval at growing lengths.

    The model is a local Hugging Face folder with safetensors files, or the key of a trained run. Nothing is downloaded,
    and no code from the folder is run. Long texts are computed in chunks. An interrupted measurement continues with the
    same command. With files of earlier measurements instead, the command compares them and measures nothing.

    Example: lengthwise reach models/smollm2 --text novel.txt --lengths 1k,4k,16k --methods own,yarn:factor=4
    --max-minutes 60; lengthwise reach a.reach.jsonl b.reach.jsonl --page reach.html; lengthwise reach models/mpt-7b
    --tasks functions --examples 100

    Args:
        paths: A model's folder, a run's key or its first digits, or files of earlier measurements.
    """
    from lengthwise.measurements.answer_file import read

    if not paths:
        raise ConfigError(
            "no model is named; name a folder, a run or files: lengthwise reach models/smollm2 --text FILE"
        )
    page = None if files.page is None else output_file(files.page, "HTML page", "--page")
    if all(path.endswith(ANSWERS) for path in paths):
        if files.text is not None or files.out is not None:
            raise ConfigError("files are compared without measuring, so --text and --out have no effect; omit them")
        answers = [read(Path(path), Reach.name) for path in paths]
    elif len(paths) == 1:
        answers = [_measured(paths[0], files, dataclasses.asdict(options), computing, place)]
    else:
        raise ConfigError(
            "measure one model per call, and compare the files afterwards: lengthwise reach A.jsonl B.jsonl --page "
            "reach.html"
        )
    show_answers(answers, page, files.json)
    return 0


def _measured(path: str, files: Files, options: dict[str, Any], computing: Computing, place: Place) -> "FileAnswer":
    """Measure what the file does not have yet, and return the answer."""
    if computing.max_minutes is not None and not computing.max_minutes > 0:
        raise ConfigError(f"--max-minutes must be more than 0, got {computing.max_minutes:g}")
    from lengthwise.machine_memory import limited_to_machine
    from lengthwise.reach.text import read_text
    from lengthwise.studies import Compute

    chosen = None if files.out is None else new_file(files.out, force=True)  # checked before a large model is loaded
    if chosen is not None and chosen.suffix != ANSWERS:
        raise ConfigError(f"--out must end in {ANSWERS}, got {files.out!r}; name such a file")
    text = None if files.text is None else read_text(files.text)
    question = _question(options, text)
    if text is None and question.reads_text:
        raise ConfigError("--text is missing; name a text file for the model to read, or measure --tasks functions")
    Compute(device=computing.device, threads=computing.threads).require_usable()
    from lengthwise.measurements.answer_file import recording
    from lengthwise.reach import loading
    from lengthwise.reach.measure import MeasuredModel, answer_of
    from lengthwise.reach.model import use_process

    use_process(computing.threads)
    warn_of_untested_transformers()
    with ExitStack() as stack:
        if loading.is_run(path):
            store = stack.enter_context(place.open())
            run = loading.loaded_run(store, place.results, path, computing.device, question.dtype)
            name, pretrained = stack.enter_context(run)
            out = Path(f"{name.rpartition(' ')[2]}{ENDING}")
        else:
            pretrained = loading.load_folder(path, computing.device, question.dtype)
            folder = Path(path).resolve()
            name, out = folder.name, folder.with_name(f"{folder.name}{ENDING}")
        out = chosen or out
        if files.page is not None and out.resolve() == Path(files.page).resolve():
            raise ConfigError(f"--page and --out are the same file, {one_line(out)}; name another one for the page")
        model = MeasuredModel(
            pretrained, question, text, batch_size=computing.batch_size, max_minutes=computing.max_minutes
        )
        if text is not None and len(model.windows) < question.examples:
            room = f"{len(model.windows)} of {question.examples} examples of {question.lengths[-1]:,} tokens"
            print(f"lengthwise: the text has room for {room}", file=sys.stderr)
        model.show = stack.enter_context(progress())
        stack.enter_context(limited_to_machine(computing.device))
        record = stack.enter_context(recording(out, answer_of(name, model, computing.device, computing.threads)))
        model.continue_from(record.answer)
        try:
            for row in model.measure():
                record.add([row])
        except KeyboardInterrupt as interrupt:
            hint = f"the finished parts are in {one_line(out)}, and the same command continues"
            interrupt.hint = hint  # type: ignore[attr-defined]
            raise
    reasons = dict.fromkeys(row["reason"] for row in record.answer.rows if "reason" in row and "program" not in row)
    if not any("n" in row for row in record.answer.rows):
        fix = "" if any(";" in reason for reason in reasons) else "; take shorter --lengths or other --tasks"
        raise ConfigError(f"nothing could be measured: {'; '.join(reasons)}{fix}")
    if not files.json:
        print(f"All results: {one_line(out)}.\n")
    return record.answer


def _question(options: dict[str, Any], text: "Text | None") -> ReachOptions:
    """Return the question. Misspelt methods and functions are named before the model is loaded."""
    values = option_values(ReachOptions.fields(), options)
    if "methods" in values:
        values["methods"] = method_names(options["methods"], "own,yarn:factor=4")
    with named_as_options(ReachOptions):
        question = ReachOptions(**values, text_sha256="" if text is None else text.sha256)
    if FUNCTIONS in question.tasks:
        from lengthwise.reach.functions import boolean_functions

        boolean_functions(question.functions, question.dims)
    return question
