"""`lengthwise pretrained`: test whether a language model learns Boolean functions from the examples in its prompt."""

import dataclasses
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from lengthwise import cache_folder
from lengthwise.cli.options import FLATTENED, Integer, Threads, split_names, whole_numbers
from lengthwise.cli.output_file import output_file
from lengthwise.cli.printing import column, duration, json_text, one_line, plain_table, print_json, stdout
from lengthwise.cli.progress import progress

if TYPE_CHECKING:
    from lengthwise.analysis.intervals import Interval
    from lengthwise.evaluation.pretrained import LabelPredictions, Plan, Pretrained


@FLATTENED
@dataclass(frozen=True, kw_only=True)
class PretrainedOptions:
    """The options of the command."""

    tasks: str | None = None
    """Classes of Boolean functions, comma-separated, optionally with settings. [default: all]"""
    dims: Integer = 8
    """Bits per input."""
    examples: str = "0,5,10,20,40"
    """Numbers of examples before the question, comma-separated."""
    settings: str = "standard,duplicated"
    """Kinds of prompts, comma-separated. standard: independent examples. duplicated: one example repeated, whose
    input is also the question. noise: the second half of the examples repeats one example."""
    form: Literal["auto", "mpt", "llama-2", "plain"] = "auto"
    """Prompt template. mpt and llama-2 (a chat with [INST] <<SYS>>): those in the thesis "How Do Position Encodings Affect Length
    Generalization?". plain: that of Bhattamishra et al. 2023. auto: llama-2 for Llama models and mpt for all others."""
    prompts: Integer = 100
    """Number of prompts for each task, setting and number of examples; each prompt has its own function."""
    seed: Integer = 0
    """Seed of the functions and the examples."""
    batch_size: Integer = 8
    """Prompts per forward pass."""
    device: str = "cpu"
    """Device to run on: cpu, cuda, cuda:1, ..."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """Data type of the weights."""
    threads: Threads = 1
    """Number of CPU threads."""
    output: str | None = None
    """JSON file for the results of all prompts. [default: nothing is saved]"""
    json: bool = False
    """Print the same JSON instead of a table."""


def command(folder: str, /, *, options: PretrainedOptions = PretrainedOptions()) -> int:
    """Test whether a pretrained language model learns Boolean functions from the examples in its prompt.

    The model is a local Hugging Face folder with safetensors files. Nothing is downloaded, and no code from the folder is run.
    This command needs transformers, the extra outside: pip install '.[outside]' in a clone of Lengthwise.

    Example: lengthwise pretrained models/mpt-7b --tasks conjunction,parity-function --examples 0,10,40 --output mpt.json

    Args:
        folder: The model's folder, with config.json, the tokenizer and *.safetensors.
    """
    from lengthwise.evaluation import pretrained
    from lengthwise.studies import Compute
    from lengthwise.training.numerics import use_process

    file = None if options.output is None else output_file(options.output, "JSON file")
    counts = tuple(dict.fromkeys(whole_numbers(options.examples, "--examples", 0, "0,5,10,20,40")))
    tasks = pretrained.boolean_tasks(split_names(options.tasks), options.dims)
    settings = tuple(dict.fromkeys(part.strip() for part in options.settings.split(",") if part.strip()))
    form = "mpt" if options.form == "auto" else options.form
    plan = pretrained.Plan(tasks, settings, counts, form, options.prompts, options.seed)  # checks the options
    Compute(device=options.device, threads=options.threads).require_usable()
    use_process(options.threads)
    model = pretrained.load(folder, device=options.device, dtype=options.dtype)
    if options.form == "auto":
        plan = dataclasses.replace(plan, form=pretrained.form_for(model.model_type))
    start = time.perf_counter()
    with progress() as show:
        results = pretrained.predict_labels(
            model,
            plan,
            batch_size=options.batch_size,
            on_progress=lambda done, total: show(f"prompt {done} of {total}", done, total),
        )
    seconds = time.perf_counter() - start
    if options.json or file is not None:
        data = record(model, plan, results, options, seconds)
        if file is not None:
            cache_folder.write(file, f"{json_text(data)}\n".encode("utf-8", "backslashreplace"))  # atomically
        if options.json:
            print_json(data, indent=None)
            return 0
    stdout().print(_table(results))
    print(
        f"\n{one_line(model.folder)}: {model.architecture}, form {plan.form}, {plan.prompts} prompts each, seed {plan.seed}, "
        f"{duration(seconds)}. Intervals: Wilson, 95 %, over prompts."
    )
    if file is not None:
        print(f"All results: {one_line(file)}.")
    return 0


def record(
    model: "Pretrained", plan: "Plan", results: "list[LabelPredictions]", options: PretrainedOptions, seconds: float
) -> dict[str, Any]:
    """Return all results as plain data, with the settings that reproduce them."""
    import platform

    import torch
    import transformers

    import lengthwise
    from lengthwise.evaluation.pretrained import FORMS

    return {
        "model": model.description(),
        "asked": {
            "tasks": [choice.label for choice in plan.tasks],
            "settings": list(plan.settings),
            "examples": list(plan.examples),
            "prompts": plan.prompts,
            "seed": plan.seed,
            "form": plan.form,
            "text": FORMS[plan.form]("...\n", "..."),
            "batch_size": options.batch_size,
            "threads": options.threads,
        },
        "versions": {
            "lengthwise": lengthwise.__version__,
            "transformers": transformers.__version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
        "seconds": round(seconds, 3),
        "answers": [_row(predictions) for predictions in results],
    }


def _row(predictions: "LabelPredictions") -> dict[str, Any]:
    interval = _interval(predictions)
    return {
        "task": predictions.task,
        "setting": predictions.setting,
        "examples": predictions.examples,
        "n": predictions.n,
        "right": predictions.correct,
        "accuracy": predictions.accuracy,
        "low": interval.low,
        "high": interval.high,
        "constant": predictions.constant_accuracy,
        "mass": predictions.label_mass,
        "tokens": predictions.tokens,
        "labels": predictions.labels,
        "log_probabilities": [[float(f"{value:.8g}") for value in pair] for pair in predictions.log_probabilities],
    }


def _interval(predictions: "LabelPredictions") -> "Interval":
    from lengthwise.analysis.intervals import Interval, with_wilson

    share = predictions.accuracy
    return with_wilson(Interval(share, share, share, 0.0, "examples"), predictions.n)


def _table(results: "list[LabelPredictions]") -> Any:
    table = plain_table(column("task", overflow="fold"), "setting")
    for name in ("examples", "accuracy", "interval", "n", "one label", "P(0 or 1)"):
        table.add_column(name, justify="right", no_wrap=True)
    previous = None
    for predictions in results:
        group, interval = (predictions.task, predictions.setting), _interval(predictions)
        table.add_row(
            *(group if group != previous else ("", "")),
            f"{predictions.examples}",
            f"{predictions.accuracy:.3f}",
            f"{interval.low:.3f} … {interval.high:.3f}",
            f"{predictions.n}",
            f"{predictions.constant_accuracy:.3f}",
            f"{predictions.label_mass:.3f}",
        )
        previous = group
    return table
