"""`lengthwise reach`: how far does a causal language model reach?"""

import re
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from lengthwise import cache_folder
from lengthwise.cli.options import (
    FLATTENED,
    Integer,
    Place,
    Threads,
    method_names,
    named_as_options,
)
from lengthwise.cli.output_file import output_file
from lengthwise.cli.printing import one_line, print_json, stdout, warn_of_untested_transformers
from lengthwise.cli.progress import progress
from lengthwise.config import ConfigError
from lengthwise.reach.plan import OWN, TEXT, Plan, parse_lengths
from lengthwise.reach.tasks import TASKS

if TYPE_CHECKING:
    from lengthwise.evaluation.pretrained import Pretrained
    from lengthwise.reach.results import Results
    from lengthwise.reach.text import Text


@FLATTENED
@dataclass(frozen=True, kw_only=True)
class ReachOptions:
    """The options of the command."""

    text: str | None = None
    """Text file in UTF-8. The model reads windows of it; retrieval tasks insert sentences into them."""
    lengths: str = "1k,2k,4k,8k"
    """Lengths in tokens, comma-separated; 1k is 1,024. The shortest should be one that the model surely handles, because the
    others are compared with it."""
    tasks: str = ",".join((TEXT, *TASKS))
    """What to measure, comma-separated. text is cross-entropy; the others are retrieval tasks."""
    methods: str | None = None
    """own (the model as it is), and encodings to put in place of its own: own,pi:factor=4,yarn:factor=4. [default: own]"""
    examples: Integer = 10
    """Examples of each task, length and depth."""
    targets: Integer = 64
    """Tokens at the end of each text whose cross-entropy is compared. They are the same at every length."""
    depths: Integer = 5
    """Number of depths at which retrieval tasks place a sentence, from the beginning of the text to its end."""
    seed: Integer = 0
    """Seed of the names, numbers and passages of retrieval tasks."""
    chat: bool = False
    """Put the prompts of retrieval tasks into the tokenizer's chat template, for models that were trained with one."""
    max_minutes: float | None = None
    """Leave out lengths that could not be measured within this time. A later call without the limit continues. [default: no
    limit]"""
    device: str = "cpu"
    """Device to run on: cpu, cuda, cuda:1, ..."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """Data type of the weights."""
    threads: Threads = 1
    """Number of CPU threads."""
    output: str | None = None
    """JSON file for the results, from which the same command continues. [default: NAME.reach.json in the current folder]"""
    page: str | None = None
    """HTML page to write, with charts and tables of all models. [default: none]"""
    json: bool = False
    """Print JSON instead of tables."""


def command(
    *paths: Annotated[str, Parameter(name="PATHS")],
    options: ReachOptions = ReachOptions(),
    place: Place = Place(),
) -> int:
    """Measure how far a causal language model reaches: cross-entropy and retrieval at growing lengths.

    The model is a local Hugging Face folder with safetensors files, or the key of a trained run. Nothing is downloaded, and no
    code from the folder is run. Long texts are computed in chunks. An interrupted measurement continues with the same command.
    With JSON files of earlier measurements instead, the command compares them and measures nothing.

    Example: lengthwise reach models/smollm2 --text novel.txt --lengths 1k,4k,16k --methods own,yarn:factor=4 --max-minutes 60;
    lengthwise reach a.reach.json b.reach.json --page reach.html

    Args:
        paths: A model's folder, a run's key or its first digits, or JSON files of earlier measurements.
    """
    from lengthwise.reach.results import read

    if not paths:
        raise ConfigError(
            "no model is named; name a folder, a run or JSON files: lengthwise reach models/smollm2 --text FILE"
        )
    page = None if options.page is None else output_file(options.page, "HTML page", "--page")
    stored = [path for path in paths if path.endswith(".json") and not Path(path).is_dir()]
    if len(stored) == len(paths):
        if options.text is not None or options.output is not None:
            raise ConfigError(
                "JSON files are compared without measuring, so --text and --output have no effect; omit them"
            )
        measurements = [read(Path(path)) for path in paths]
    elif len(paths) == 1:
        measurements = [_measured(paths[0], options, place)]
    else:
        raise ConfigError(
            "measure one model per call, and compare the JSON files afterwards: lengthwise reach A.json B.json --page reach.html"
        )
    _show(measurements, options, page)
    return 0


def _measured(path: str, options: ReachOptions, place: Place) -> "Results":
    if options.text is None:
        raise ConfigError("--text is missing; name a text file for the model to read")
    if options.max_minutes is not None and not options.max_minutes > 0:
        raise ConfigError(f"--max-minutes must be more than 0, got {options.max_minutes:g}")
    if options.output is not None:
        output_file(options.output, "JSON file")  # checked before a large model is loaded
    from lengthwise.reach.text import read_text
    from lengthwise.studies import Compute

    text = read_text(options.text)
    plan = _plan(options, text)
    Compute(device=options.device, threads=options.threads).require_usable()
    from lengthwise.reach import loading
    from lengthwise.reach.model import use_process

    use_process(options.threads)
    warn_of_untested_transformers()
    with ExitStack() as stack:
        if loading.is_run(path):
            store = stack.enter_context(place.open())
            run = loading.loaded_run(store, place.results, path, options.device, options.dtype)
            name, model = stack.enter_context(run)
        else:
            model = loading.load_folder(path, options.device, options.dtype)
            name = Path(path).resolve().name
        file = output_file(options.output or f"{_file_name(name)}.reach.json", "JSON file")
        if options.page is not None and file.resolve() == Path(options.page).resolve():
            raise ConfigError(f"--page and --output are the same file, {one_line(file)}; name another one for the page")
        return _run(name, model, plan, text, file, options)


def _plan(options: ReachOptions, text: "Text") -> Plan:
    methods = (OWN,) if options.methods is None else method_names(options.methods, "own,yarn:factor=4")
    with named_as_options(Plan):
        return Plan(
            lengths=parse_lengths(options.lengths),
            tasks=tuple(dict.fromkeys(part.strip() for part in options.tasks.split(",") if part.strip())),
            methods=methods,
            examples=options.examples,
            targets=options.targets,
            depths=options.depths,
            seed=options.seed,
            chat=options.chat,
            dtype=options.dtype,
            text_sha256=text.sha256,
        )


def _run(name: str, model: "Pretrained", plan: Plan, text: "Text", file: Path, options: ReachOptions) -> "Results":
    """Measure what the file does not have yet, and return all results."""
    from lengthwise.reach.measure import Measurement, stored_results
    from lengthwise.reach.results import write

    results = stored_results(file, name, model, plan, options.device, options.threads)
    measurement = Measurement(model, plan, text, results, lambda found: write(file, found), options.max_minutes)
    if len(measurement.windows) < plan.examples:
        room = f"{len(measurement.windows)} of {plan.examples} examples of {plan.lengths[-1]:,} tokens"
        print(f"lengthwise: the text has room for {room}", file=sys.stderr)
    try:
        with progress() as show:
            results = measurement.run(show)
    except KeyboardInterrupt as interrupt:
        hint = f"the finished parts are in {one_line(file)}, and the same command continues"
        interrupt.hint = hint  # type: ignore[attr-defined]
        raise
    results.require_units("nothing could be measured", "take shorter --lengths or other --methods")
    if not options.json:
        print(f"All results: {one_line(file)}.\n")
    return results


def _show(measurements: "list[Results]", options: ReachOptions, page: Path | None) -> None:
    from lengthwise.cli.reach.tables import parts

    if options.json:
        print_json([results.to_data() for results in measurements], indent=None)
    else:
        console = stdout()
        for part in parts(measurements):
            console.print(part)
    if page is not None:
        from lengthwise.reach.page import render

        cache_folder.write(page, render(measurements))
        if not options.json:
            print(f"Page: {one_line(page)}.")


def _file_name(name: str) -> str:
    return re.sub(r"[^\w.-]+", "-", name).strip("-.")[:80] or "model"
