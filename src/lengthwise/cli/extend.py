"""`lengthwise extend`: extend a causal language model to longer texts."""

from dataclasses import dataclass, fields
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from lengthwise.cli.answers import show_answers
from lengthwise.cli.options import FLATTENED, Integer, Threads, method_names, named_as_options, number_ranges
from lengthwise.cli.printing import one_line, warn_of_untested_transformers
from lengthwise.cli.progress import Show, progress
from lengthwise.config import ConfigError
from lengthwise.measurements.reach import TEXT
from lengthwise.new_folder import require_new
from lengthwise.values import install_extra

if TYPE_CHECKING:
    from lengthwise.evaluation.pretrained import Pretrained
    from lengthwise.extend.unfinished import Extension
    from lengthwise.measurements.retention import RetentionOptions
    from lengthwise.reach.text import Text


DEFAULTS = {"steps": 200, "warmup": 20, "batch_size": 1, "accumulate": 8, "save_every": 50}  # of the training


@FLATTENED
@dataclass(frozen=True, kw_only=True)
class ExtendOptions:
    """The options of the command."""

    methods: str
    """Encodings to put in place of the model's own, comma-separated: yarn:factor=4,pi:factor=4,nope. RoPE's base and
    layout stay those of the model unless a method sets them."""
    text: str
    """Text file in UTF-8 on which the models are measured, before and after."""
    out: str
    """The folder to create. It contains the model or, for several methods, a folder for each. It is never overwritten.
    """
    lengths: str | None = None
    """Lengths to measure in tokens, comma-separated; 1k is 1,024. [default: the training length, and twice, 4 times ...
    as much up to the largest factor]"""
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
    """Print JSON instead of tables."""


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
    """Rank of LoRA on all linear layers, which is merged into the weights at the end. [default: all parameters are
    trained]
    """
    save_every: Integer | None = None
    """Steps from one checkpoint to the next. [default: 50]"""
    recompute: bool = False
    """Compute blocks again in the backward pass, which needs less memory and more time."""


def command(path: str, /, *, options: ExtendOptions, tuning: TuningOptions = TuningOptions()) -> int:
    """Extend a causal language model to longer texts with another position encoding, with or without training.

    The model is a local Hugging Face folder with safetensors files. Nothing is downloaded, and no code from the folder
    is run. If transformers itself computes the method, every program can load the new folder; otherwise lengthwise must
    be installed. The folder contains a report (retention.jsonl, retention.html): the cross-entropy before and after at
    the training length and beyond, with intervals, time, memory and all settings. An interrupted command continues from
    OUT.unfinished.

    Example: lengthwise extend models/smollm2 --methods yarn:factor=4 --tune books.txt --steps 400 --text novel.txt
    --out models/smollm2-8k

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
        extension = _prepared(path, options, tuning, out, show)
        try:
            answer = extension.run()
        except KeyboardInterrupt as interrupt:
            hint = f"the finished parts are in {one_line(out)}.unfinished, and the same command continues"
            interrupt.hint = hint  # type: ignore[attr-defined]
            raise
    show_answers([answer], None, options.json)
    if not options.json:
        print(f"Report: {one_line(out / 'retention.html')}, {one_line(out / 'retention.jsonl')}.")
    return 0


def _prepared(path: str, options: ExtendOptions, tuning: TuningOptions, out: Path, show: Show) -> "Extension":
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
    from lengthwise.measurements.retention import RetentionOptions, Tuning

    with named_as_options(RetentionOptions, Tuning):
        question = _question(original, methods, options, tuning, (text, training_text))
    return Extension(path, question, text, training_text, out, options.device, options.threads, show, original)


def _question(
    original: "Pretrained",
    methods: tuple[str, ...],
    options: ExtendOptions,
    tuning: TuningOptions,
    texts: "tuple[Text, Text | None]",
) -> "RetentionOptions":
    from lengthwise.extend.apply import extended_length
    from lengthwise.huggingface.own_encoding import train_length_of
    from lengthwise.measurements.retention import RetentionOptions

    text, training_text = texts
    train_length = train_length_of(original.model.config)
    if options.lengths is None:
        lengths = default_lengths(train_length, max(extended_length(original.model, method) for method in methods))
    else:
        lengths = number_ranges(options.lengths, "--lengths")
    settings: dict[str, Any] = {}
    if training_text is not None:
        tuning_options = {field.name: getattr(tuning, field.name) for field in fields(tuning)}
        longest = lengths[-1] if tuning.length is None else number_ranges(tuning.length, "--length")[0]
        settings = {"learning_rate": 2e-5 if tuning.lora is None else 2e-4} | DEFAULTS
        settings |= {name: value for name, value in tuning_options.items() if value is not None and name != "tune"}
        settings |= {"tune_sha256": training_text.sha256, "length": longest}
    return RetentionOptions(
        methods=methods,
        lengths=lengths,
        tasks=tuple(dict.fromkeys(name.strip() for name in options.tasks.split(",") if name.strip())),
        examples=options.examples,
        targets=options.targets,
        seed=options.seed,
        dtype=options.dtype,
        text_sha256=text.sha256,
        train_length=train_length,
        **settings,
    )


def default_lengths(original: int, extended: int) -> tuple[int, ...]:
    """Return the original length, and twice, 4 times ... as much up to the extended length; at least twice.

    >>> default_lengths(2048, 8192)
    (2048, 4096, 8192)
    """
    lengths = [original, 2 * original]
    while 2 * lengths[-1] <= extended:
        lengths.append(2 * lengths[-1])
    return tuple(lengths)
