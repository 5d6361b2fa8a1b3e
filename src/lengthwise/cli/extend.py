"""`lengthwise extend`: extend a causal language model to longer texts."""

from dataclasses import dataclass, fields
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from lengthwise.cli.options import FLATTENED, Integer, Threads, method_names, named_as_options
from lengthwise.cli.printing import column, one_line, plain_table, print_json, stdout, warn_of_untested_transformers
from lengthwise.cli.progress import progress
from lengthwise.config import ConfigError
from lengthwise.new_folder import require_new
from lengthwise.reach.plan import TEXT, parse_lengths
from lengthwise.values import install_extra

if TYPE_CHECKING:
    from lengthwise.evaluation.pretrained import Pretrained
    from lengthwise.extend.plan import Plan, Tuning
    from lengthwise.extend.report import Report
    from lengthwise.extend.unfinished import Extension
    from lengthwise.reach.text import Text


@FLATTENED
@dataclass(frozen=True, kw_only=True)
class ExtendOptions:
    """The options of the command."""

    methods: str
    """Encodings to put in place of the model's own, comma-separated: yarn:factor=4,pi:factor=4,nope. RoPE's base and layout
    stay those of the model unless a method sets them."""
    text: str
    """Text file in UTF-8 on which the models are measured, before and after."""
    out: str
    """The folder to create. It contains the model or, for several methods, a folder for each. It is never overwritten."""
    lengths: str | None = None
    """Lengths to measure in tokens, comma-separated; 1k is 1,024. [default: the training length, and twice, 4 times ... as much
    up to the largest factor]"""
    tasks: str = TEXT
    """What to measure, comma-separated: text (cross-entropy), and retrieval tasks of `lengthwise reach`."""
    examples: Integer = 10
    """Texts of each length."""
    targets: Integer = 64
    """Tokens at the end of each text whose cross-entropy is compared. They are the same at every length."""
    seed: Integer = 0
    """Seed of new parameters, of the training and of retrieval tasks."""
    device: str = "cpu"
    """Device to run on: cpu or cuda."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """Data type of the written weights. Training has float32 weights; with bfloat16, it computes in mixed precision."""
    threads: Threads = 1
    """Number of CPU threads."""
    json: bool = False
    """Print the report as JSON instead of tables."""


@FLATTENED
@dataclass(frozen=True, kw_only=True)
class TuningOptions:
    """The options of the training. All but the first need it."""

    tune: str | None = None
    """Text file in UTF-8 to train the models on, other than --text. [default: no training]"""
    steps: Integer | None = None
    """Optimizer steps. [default: 200]"""
    length: str | None = None
    """Tokens of a training example, such as 8k. [default: the longest of --lengths]"""
    learning_rate: float | None = None
    """Learning rate of AdamW. [default: 2e-5, or 2e-4 with --lora]"""
    warmup: Integer | None = None
    """Steps of linear warmup, after which the learning rate is constant. [default: 20]"""
    batch_size: Integer | None = None
    """Examples per forward and backward pass. [default: 1]"""
    accumulate: Integer | None = None
    """Forward and backward passes per optimizer step. [default: 8]"""
    lora: Integer | None = None
    """Rank of LoRA on all linear layers, which is merged into the weights at the end. [default: all parameters are trained]"""
    save_every: Integer | None = None
    """Steps from one checkpoint to the next. [default: 50]"""
    recompute: bool = False
    """Compute blocks again in the backward pass, which needs less memory and more time."""


def command(
    path: str,
    /,
    *,
    options: ExtendOptions,
    tuning: TuningOptions = TuningOptions(),
) -> int:
    """Extend a causal language model to longer texts with another position encoding, with or without training.

    The model is a local Hugging Face folder with safetensors files. Nothing is downloaded, and no code from the folder is run. If
    transformers itself computes the method, every program can load the new folder; otherwise lengthwise must be installed. The
    folder contains a report (retention.json, retention.html): the cross-entropy before and after at the training length and beyond,
    with intervals, time, memory and all settings. An interrupted command continues from OUT.unfinished.

    Example: lengthwise extend models/smollm2 --methods yarn:factor=4 --tune books.txt --steps 400 --text novel.txt --out
    models/smollm2-8k

    Args:
        path: The model's folder.
    """
    out = require_new(options.out)
    if tuning.tune is None:
        for field in fields(tuning):
            if getattr(tuning, field.name) not in (None, False):
                raise ConfigError(
                    f"--{field.name.replace('_', '-')} needs --tune; name a text file to train on, or omit it"
                )
    with progress() as show:
        extension = _prepared(path, options, tuning, out)
        extension.show = show
        try:
            report = extension.run()
        except KeyboardInterrupt as interrupt:
            hint = f"the finished parts are in {one_line(out)}.unfinished, and the same command continues"
            interrupt.hint = hint  # type: ignore[attr-defined]
            raise
    _print(report, out, options.json)
    return 0


def _prepared(path: str, options: ExtendOptions, tuning: TuningOptions, out: Path) -> "Extension":
    """Read the texts, load the model, and check everything before anything is written."""
    from lengthwise.reach.text import read_text
    from lengthwise.studies import Compute
    from lengthwise.training.numerics import use_process

    methods = method_names(options.methods, "an encoding, such as yarn:factor=4")
    text = read_text(options.text)
    training_text = None if tuning.tune is None else read_text(tuning.tune, "--tune")
    Compute(device=options.device, threads=options.threads).require_usable()
    if tuning.tune is not None and options.device not in ("cpu", "cuda", "cuda:0"):
        raise ConfigError(
            f"models are trained on cpu or cuda, not on {options.device}; choose a GPU by CUDA_VISIBLE_DEVICES"
        )
    use_process(options.threads)
    for package, is_needed in (("accelerate", tuning.tune is not None), ("peft", tuning.lora is not None)):
        if is_needed and find_spec(package) is None:
            raise ConfigError(f"the training needs {package}, which is not installed; {install_extra('extend')}")
    from lengthwise.extend.unfinished import Extension
    from lengthwise.reach.loading import load_folder

    warn_of_untested_transformers()
    original = load_folder(path, options.device, options.dtype)
    from lengthwise.extend.plan import Plan, Tuning

    with named_as_options(Plan, Tuning):
        plan = _plan(original, methods, options, tuning, (text, training_text))
    return Extension(path, plan, text, training_text, out, options.device, options.threads, lambda *_: None, original)


def _plan(
    original: "Pretrained",
    methods: tuple[str, ...],
    options: ExtendOptions,
    tuning: TuningOptions,
    texts: "tuple[Text, Text | None]",
) -> "Plan":
    from lengthwise.extend.apply import extended_length, original_length
    from lengthwise.extend.plan import Plan, default_lengths

    text, training_text = texts
    if options.lengths is None:
        longest = max(extended_length(original.model, method) for method in methods)
        lengths = default_lengths(original_length(original.model), longest)
    else:
        lengths = parse_lengths(options.lengths)
    return Plan(
        model=original.description()["sha256"],
        methods=methods,
        lengths=lengths,
        tasks=tuple(dict.fromkeys(part.strip() for part in options.tasks.split(",") if part.strip())),
        examples=options.examples,
        targets=options.targets,
        seed=options.seed,
        dtype=options.dtype,
        text_sha256=text.sha256,
        tuning=None if training_text is None else _tuning(tuning, training_text.sha256, lengths[-1]),
    )


def _tuning(options: TuningOptions, text_sha256: str, longest: int) -> "Tuning":
    from lengthwise.extend.plan import Tuning

    given = {field.name: getattr(options, field.name) for field in fields(options) if field.name != "tune"}
    length = longest if options.length is None else parse_lengths(options.length, "--length")[0]
    defaults = {
        "steps": 200,
        "length": length,
        "learning_rate": 2e-5 if options.lora is None else 2e-4,
        "warmup": 20,
        "batch_size": 1,
        "accumulate": 8,
        "save_every": 50,
    }
    chosen = {name: value for name, value in given.items() if value is not None and name != "length"}
    return Tuning.from_data({"text_sha256": text_sha256, **defaults, **chosen})


def _print(report: "Report", out: Path, as_json: bool) -> None:
    from lengthwise.extend.report import JSON_FILE, PAGE, at_training_length, costs, rows

    if as_json:
        print_json(report.to_data(), indent=None)
        return
    console = stdout()
    for heads, cells in (rows(report), costs(report)):
        table = plain_table(column(heads[0], no_wrap=True))
        for head in heads[1:]:
            table.add_column(one_line(head), justify="right")
        for row in cells:
            table.add_row(*map(one_line, row))
        console.print(table)
        console.print()
    print(at_training_length(report))
    print("Cross-entropies are in nats per token; changes have 95 % intervals over the same texts.")
    print(f"Report: {one_line(out / PAGE)}, {one_line(out / JSON_FILE)}.")
