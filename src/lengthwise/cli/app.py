"""The verbs: what can be written after `lengthwise`. Each imports what it needs when it runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from cyclopts import App, Parameter, Token

import lengthwise
from lengthwise.choices import between_commas
from lengthwise.values import ConfigError

app = App(
    name="lengthwise",
    help="Train short, test long: position encodings and the length generalization of Transformers.",
    help_format="plaintext",
    help_epilogue=(
        "First steps: lengthwise list encodings; lengthwise sample copy --length 5;\n"
        "lengthwise run studies/quickstart.py. Help on a command: lengthwise run --help"
    ),
    version=lengthwise.__version__,
    suppress_keyboard_interrupt=False,  # `main` says how to go on
)


def _whole(kind: type, tokens: Sequence[Token]) -> int:
    """A whole number as it is written; cyclopts by itself rounds 2.5 to 2, and a study would be another than asked."""
    try:
        return int(tokens[0].value)
    except ValueError:
        raise ValueError(f"{tokens[0].value!r} is no whole number") from None


def _a_folder(kind: type, value: str) -> None:
    if not value.strip():
        raise ValueError("Name a folder, or leave it out")


def _no_option(kind: type, value: str) -> None:
    if value.startswith("-") and value != "-":
        raise ValueError(f"There is no option {value}; a file of that name is ./{value}")


Whole = Annotated[int, Parameter(converter=_whole)]

Listed = Annotated[str | None, Parameter(show_default=False)]


def words(listed: str | None) -> list[str]:
    """The encodings of `rope,fire:c=1,L=8,alibi`: a comma also parts the settings of one."""
    found: list[str] = []
    for part in filter(None, (p.strip() for p in between_commas(listed or ""))):
        if found and "=" in part and ":" not in part.partition("=")[0]:
            found[-1] += f",{part}"
        else:
            found.append(part)
    return found


RESULTS = "lengthwise-results"
Results = Annotated[str, Parameter(env_var="LENGTHWISE_RESULTS", validator=_a_folder)]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Execution:
    """How runs are executed; none of it changes what comes out, but `threads` and `device` change the last digits."""

    results: Results = RESULTS
    """Folder of the results database, the trained models and the report."""
    workers: Whole | None = None
    """Runs at a time; usually one for each core, on a GPU one."""
    device: str = "cpu"
    """cpu, cuda, cuda:1, ..."""
    threads: Annotated[Whole, Parameter(env_var="LENGTHWISE_THREADS")] = 1
    """Threads of each run."""
    backend: str = "auto"
    """Attention backend; auto takes the fastest that serves an encoding."""


@app.command(sort_key=1, help_epilogue="")
def run(study: str, /, *, execution: Execution = Execution()) -> int:
    """Train and evaluate what a study file lists, and report what came out.

    Stop it at any moment: the same command continues, and repeats no finished run. Two at once share the work.

    Example: lengthwise run studies/quickstart.py --workers 2

    Parameters
    ----------
    study
        The study: a Python file that leaves a `study`.
    """
    from lengthwise.cli.running import run_file

    return run_file(study, execution)


@app.command(sort_key=2, help_epilogue="")
def compare(
    *names: Annotated[str, Parameter(name="ENCODINGS", show_default=False)],
    encodings: Listed = None,
    text: str | None = None,
    glob: str = "**/*",
    task: str | None = None,
    layout: Listed = None,
    train_length: Whole,
    min_length: Whole | None = None,
    lengths: str | None = None,
    seeds: Whole = 1,
    steps: Whole = 500,
    batch_size: Whole = 16,
    learning_rate: float = 1e-3,
    d_model: Whole = 128,
    num_layers: Whole = 4,
    num_heads: Whole = 4,
    examples: Whole = 256,
    tokens: Whole = 65_536,
    name: str | None = None,
    execution: Execution = Execution(),
) -> int:
    """Compare encodings on your own text, or on a task: train at one length, score at many.

    Continues like `run`. Asking for more lengths later trains nothing again.

    Example: lengthwise compare rope alibi fire --text notes/ --train-length 256 --lengths 256,512,1024 --seeds 3

    Parameters
    ----------
    names
        Names, with settings if wanted: rope alibi fire:hidden_layers=1 fire-s (FIRE with shared layers).
    encodings
        The same names with commas, for those who prefer an option: rope,alibi,fire.
    text
        A text file or a folder; python is Python's own manual, docstrings and source.
    glob
        Which files of a folder.
    task
        A task instead of a text, with settings if wanted: copy or copy:symbols=10.
    layout
        The positions that tokens claim: randomized:max_length=4096. Usually consecutive; several, with commas, are compared.
    train_length
        The length of the sequences in training, in the task's unit (bytes of text, symbols to copy).
    min_length
        The shortest length in training, of which all up to train_length are drawn. Usually train_length: one length.
    lengths
        Lengths to score, with commas: 256,512,1024. Usually 1, 2, 4 and 8 times the trained one.
    seeds
        How many models of each encoding are trained; intervals need more than one.
    steps
        Training steps.
    batch_size
        Sequences in a step.
    learning_rate
        The highest of the schedule.
    d_model
        Width of the model.
    num_layers
        Layers of the model.
    num_heads
        Attention heads of a layer.
    examples
        Examples that are scored at each length, for tasks that are scored by example.
    tokens
        Tokens that are scored at each length, for text.
    name
        The study's name; usually made of the task and the trained length.
    """
    from lengthwise.cli.comparing import Comparison, study_of
    from lengthwise.cli.running import run_study

    asked = Comparison(
        encodings=(*names, *words(encodings)),
        text=text,
        glob=glob,
        task=task,
        layouts=tuple(words(layout)) if layout is not None else None,
        train_length=train_length,
        lengths=lengths,
        seeds=seeds,
        training={"steps": steps, "batch_size": batch_size, "learning_rate": learning_rate, "min_length": min_length},
        model={"d_model": d_model, "num_layers": num_layers, "num_heads": num_heads},
        evaluation={"examples": examples, "tokens": tokens},
        name=name,
    )
    return run_study(study_of(asked), execution)


@app.command(sort_key=3, help_epilogue="")
def report(
    *, study: str | None = None, results: Results = RESULTS, output: str | None = None, json: bool = False
) -> int:
    """Make the report of what has been found so far: a table here, and a page to look at and to send to others.

    Example: lengthwise report --study quickstart --output quickstart.html

    Parameters
    ----------
    study
        One study; usually all in the folder.
    results
        Folder of the results.
    output
        The HTML file; usually report.html in the folder of the results.
    json
        Print the findings as JSON; the page is made only with --output.
    """
    from lengthwise.cli.reporting import make_report

    return make_report(results, study, output, json)


@app.command(name="list", sort_key=4, help_epilogue="")
def list_(what: str, /, *names: str, study: str | None = None, results: Results = RESULTS, json: bool = False) -> int:
    """List encodings, tasks, layouts, runs or studies; with names of the first three, all that is to be said about them.

    Example: lengthwise list encodings; lengthwise list encodings fire; lengthwise list runs --study quickstart

    Parameters
    ----------
    what
        encodings, tasks, layouts, runs or studies.
    names
        Encodings, tasks or layouts to describe.
    study
        Runs of this study alone.
    results
        Folder of the results.
    json
        Print JSON.
    """
    from lengthwise.cli.listing import show_list

    return show_list(what, names, study, results, json)


@app.command(sort_key=5, help_epilogue="")
def show(run: str, /, *, results: Results = RESULTS, json: bool = False) -> int:
    """Show a run: its settings, its scores, its training curve, and where the numbers come from.

    Example: lengthwise show 3f9a (`lengthwise list runs` shows the keys)

    Parameters
    ----------
    run
        The run's key, or how it begins.
    results
        Folder of the results.
    json
        Print JSON.
    """
    from lengthwise.cli.showing import show_run

    return show_run(run, results, json)


@app.command(sort_key=6, help_epilogue="")
def sample(
    task: str,
    /,
    *,
    length: Whole | None = None,
    count: Whole | None = None,
    seed: Whole | None = None,
    split: Literal["train", "test"] | None = None,
    all: Annotated[bool, Parameter(negative="")] = False,
    published: Annotated[bool, Parameter(negative="")] = False,
    json: bool = False,
) -> int:
    """Look at examples of a task before training on them. The same seed shows the same examples.

    Example: lengthwise sample copy:symbols=10 --length 5 --count 3; lengthwise sample scan --all --json

    Parameters
    ----------
    task
        The task, with settings if wanted.
    length
        Length in the task's unit; usually 10, and with --all each length of a task that is a given set (SCAN, PCFG).
    count
        How many; usually 3.
    seed
        Which; in the split test those that an evaluation with this seed asks. Usually 0.
    split
        train or test; no example is in both. Usually test, and with --all both.
    all
        Print every example there is, of a task that is a given set, or of a length that has few enough.
    published
        Print the text of the published study instead of words: prompt, separator and target.
    json
        Print one JSON object a line.
    """
    from lengthwise.cli.sampling import Asked, show_all, show_examples

    asked = Asked(length=length, count=count, seed=seed, split=split, published=published, json=json)
    return (show_all if all else show_examples)(task, asked)


@app.command(sort_key=7, help_epilogue="")
def check(
    *names: Annotated[str, Parameter(name="ENCODINGS", show_default=False)],
    encodings: Listed = None,
    theorems: bool = False,
    outside: bool = False,
    json: bool = False,
) -> int:
    """Put the same questions to every encoding on every attention backend, and print what each answers.

    Example: lengthwise check; lengthwise check rope fire; lengthwise check --theorems; lengthwise check --outside alibi

    Parameters
    ----------
    names
        Encodings to ask; all that there are, when none is named.
    encodings
        The same names with commas, for those who prefer an option: rope,fire.
    theorems
        Instead of the questions, build what published theorems construct, and compare it in numbers.
    outside
        Ask the implementations of other libraries (transformers, x-transformers) instead, and compare them with ours.
    json
        Print JSON.
    """
    if outside:
        if theorems:
            raise ConfigError("--theorems and --outside are two different questions; ask one at a time")
        from lengthwise.conformance import outside as others

        return others.main(json=json, encodings=(*names, *words(encodings)))
    if theorems:
        from lengthwise.conformance import theorems as proofs

        return proofs.main(json=json, encodings=(*names, *words(encodings)))
    from lengthwise import conformance

    return conformance.main(json=json, encodings=(*names, *words(encodings)))


@app.command(name="inspect", sort_key=8, help_epilogue="")
def inspect_(
    encoding: str,
    /,
    *,
    num_heads: Whole = 8,
    head_dim: Whole = 64,
    d_model: Whole | None = None,
    train_length: Whole = 128,
    length: Whole | None = None,
    set: Annotated[tuple[str, ...], Parameter(name="--set", show_default=False, negative="")] = (),
    seed: Whole = 0,
    json: bool = False,
) -> int:
    """Look at what an encoding does: its bias, its wavelengths, its vectors, at any length. Nothing is trained.

    Example: lengthwise inspect alibi; lengthwise inspect fire --set L=64 --length 256; lengthwise inspect rope --json

    Parameters
    ----------
    encoding
        The encoding, with settings if wanted: fire or fire:hidden_layers=1.
    num_heads
        Attention heads.
    head_dim
        Dims of each head.
    d_model
        Width of the model; usually num_heads times head_dim.
    train_length
        The length that the model is said to be trained at.
    length
        How many positions are shown; usually twice the trained length.
    set
        One more setting, key=value; may be repeated.
    seed
        Of the numbers that are learned, as they are drawn before training.
    json
        Print one JSON object, nothing rounded.
    """
    from lengthwise.cli.inspecting import show_inspection

    sizes = {"num_heads": num_heads, "head_dim": head_dim, "d_model": d_model, "train_length": train_length}
    return show_inspection(encoding, set, {**sizes, "length": length, "seed": seed}, json)


@app.command(sort_key=9, help_epilogue="")
def lengths(
    file: Annotated[str, Parameter(allow_leading_hyphen=True, validator=_no_option)],
    /,
    *,
    field: str = "input",
    json: bool = False,
) -> int:
    """Count how long the examples of a data set are: JSON lines, such as `lengthwise sample scan --all --json` prints.

    Example: lengthwise lengths data.jsonl --field target; lengthwise sample pcfg --all --json | lengthwise lengths -

    Parameters
    ----------
    file
        The file, one JSON object a line; - reads what comes through a pipe.
    field
        What is counted: the words of a text (input, target), or a whole number as it stands (length).
    json
        Print JSON, each length by itself.
    """
    from lengthwise.cli.counting import show_lengths

    return show_lengths(file, field, json)


@app.command(sort_key=10, help_epilogue="")
def probe(
    what: str,
    run: Annotated[str | None, Parameter(show_default=False)] = None,
    /,
    *,
    against: str | None = None,
    study: str | None = None,
    lengths: str | None = None,
    examples: Whole | None = None,
    across_seeds: Annotated[bool, Parameter(negative="")] = False,
    variant: str | None = None,
    seed: Whole = 0,
    results: Results = RESULTS,
    device: str = "cpu",
    threads: Annotated[Whole, Parameter(env_var="LENGTHWISE_THREADS")] = 1,
    json: bool = False,
) -> int:
    """Look inside trained models: what their attention learned. Answers are kept, and shown in the report.

    attention-distance: how far a run's attention is from another run's, in each layer, in nats: from 0 to ln 2.
    attended-distance: how far back its heads look, from 0 (the token itself) to 1 (the first one).

    Example: lengthwise probe attention-distance 3f9a --against 77c0; lengthwise probe attended-distance 3f9a --lengths 20,40;
    lengthwise probe attention-distance --study quickstart --against nope

    Parameters
    ----------
    what
        attention-distance or attended-distance.
    run
        The run's key, or how it begins.
    against
        The run to compare with: its key, or an encoding, for its run with the same task and seed (for a run of that encoding
        itself: the next seed).
    study
        All finished runs of a study instead of one run.
    lengths
        Lengths with commas: 20,40. Usually those of the run's evaluation; for attended-distance those never trained.
    examples
        Test examples at each length; usually 10, for attended-distance 100.
    across_seeds
        Compare with the next seed of that encoding: runs of one seed begin with the same weights, which keeps them close.
    variant
        Of the distance: jensen-shannon, or published for what the NoPE study's code computes.
    seed
        Of the test examples.
    results
        Folder of the results.
    device
        cpu, cuda, cuda:1, ...
    threads
        Threads of the computation.
    json
        Print JSON.
    """
    from lengthwise.cli import probing

    wanted = probing.Wanted(what, run, against, study, lengths, examples, seed, variant, across_seeds)
    return probing.probe(wanted, results, device, threads, json)
