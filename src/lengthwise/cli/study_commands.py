"""The commands for studies and their runs. Each command imports what it needs when it runs."""

from typing import Annotated, Any

from cyclopts import Parameter

from lengthwise.cli.options import (
    DEFAULT_EXECUTION,
    EVERY_FILE,
    RESULTS,
    Execution,
    Integer,
    NameList,
    Results,
    split_names,
)
from lengthwise.cli.probe_options import with_probe_options


def run(study: str, /, *, execution: Execution = DEFAULT_EXECUTION) -> int:
    """Train and evaluate the runs of a study file, then write the report.

    You can interrupt it at any time: the same command continues, and no finished run is repeated. Several such commands at the
    same time share the runs between them.

    Example: lengthwise run studies/quickstart.py --workers 2

    Parameters
    ----------
    study
        A Python file that defines a variable named `study`.
    """
    from lengthwise.cli.running import run_file

    return run_file(study, execution)


def compare(
    *names: Annotated[str, Parameter(name="ENCODINGS", show_default=False)],
    encodings: NameList = None,
    text: str | None = None,
    glob: str = EVERY_FILE,
    task: str | None = None,
    positions: NameList = None,
    train_length: Integer,
    min_length: Integer | None = None,
    train_examples: Integer | None = None,
    lengths: str | None = None,
    seeds: Integer = 1,
    steps: Integer = 500,
    batch_size: Integer = 16,
    learning_rate: float = 1e-3,
    d_model: Integer = 128,
    num_layers: Integer = 4,
    num_heads: Integer = 4,
    examples: Integer = 256,
    tokens: Integer = 65_536,
    name: str | None = None,
    execution: Execution = DEFAULT_EXECUTION,
) -> int:
    """Compare encodings on your own text or on a task: train at one length, evaluate at several.

    The same command continues after an interruption. Adding lengths later does not repeat any training.

    Example: lengthwise compare rope alibi fire --text notes/ --train-length 256 --lengths 256,512,1024 --seeds 3

    Parameters
    ----------
    names
        Encodings to compare, optionally with settings: rope alibi fire:hidden_layers=1 fire-s (FIRE shared by all layers).
    encodings
        The same names, comma-separated: rope,alibi,fire.
    text
        Text to train on: a file, a folder, or python for Python's own manual, docstrings and source.
    glob
        Pattern of the files to read if --text is a folder.
    task
        Task to train on instead of a text, optionally with settings: copy or copy:symbols=10.
    positions
        Position schemes to compare, comma-separated, e.g. randomized:max_length=4096. [default: consecutive]
    train_length
        Length of the training sequences, in the task's unit (bytes of text, symbols to copy).
    min_length
        Shortest training length; lengths are drawn uniformly between it and --train-length. [default: the training length]
    train_examples
        Train on a fixed set of this many examples for several epochs. [default: new examples at every step]
    lengths
        Lengths to evaluate, comma-separated. [default: 1x, 2x, 4x and 8x the training length]
    seeds
        Models to train for each encoding. Intervals need at least 2.
    steps
        Number of training steps.
    batch_size
        Sequences per training step.
    learning_rate
        Peak learning rate.
    d_model
        Width of the model.
    num_layers
        Number of layers.
    num_heads
        Attention heads per layer.
    examples
        Test examples at each length, for tasks that are scored per example.
    tokens
        Test tokens at each length, for text.
    name
        Name of the study. Calls with the same name are one study, and its report shows the encodings, lengths and seeds of the
        last call; stored runs are not trained again. [default: built from the task, the training length, the encodings and the
        training and model settings that differ from their defaults]
    """
    from lengthwise.cli.comparing import Comparison, study_of
    from lengthwise.cli.running import run_study

    comparison = Comparison(
        encodings=(*names, *split_names(encodings)),
        text=text,
        glob=glob,
        task=task,
        positions=tuple(split_names(positions)) if positions is not None else None,
        train_length=train_length,
        lengths=lengths,
        seeds=seeds,
        training={
            "steps": steps,
            "batch_size": batch_size,
            "learning_rate": learning_rate,
            "min_length": min_length,
            "train_examples": train_examples,
        },
        model={"d_model": d_model, "num_layers": num_layers, "num_heads": num_heads},
        evaluation={"examples": examples, "tokens": tokens},
        name=name,
    )
    return run_study(study_of(comparison), execution)


def report(
    *,
    study: str | None = None,
    ties: str = "average",
    results: Results = RESULTS,
    output: str | None = None,
    json: bool = False,
) -> int:
    """Print a table of the stored results and write the report, one HTML file.

    Example: lengthwise report --study quickstart --output quickstart.html

    Parameters
    ----------
    study
        Study to report. [default: all studies in the results folder]
    ties
        How encodings with equal scores are ranked. The summary of several tasks shows the mean of 1 / rank of each encoding.
        average: they share the mean of their ranks. published: ranks follow the order of the study's list, as in the NoPE study.
    results
        Results folder.
    output
        The HTML file to write. [default: report.html in the results folder]
    json
        Print the results as JSON; the HTML file is then written only with --output.
    """
    from lengthwise.cli.reporting import make_report

    return make_report(results, study, output, json, ties)


def list_(what: str, /, *names: str, study: str | None = None, results: Results = RESULTS, json: bool = False) -> int:
    """List encodings, tasks, position schemes, probes, runs or studies.

    If names of encodings, tasks, position schemes or probes follow, print their full descriptions.

    Example: lengthwise list encodings; lengthwise list encodings fire; lengthwise list runs --study quickstart

    Parameters
    ----------
    what
        What to list: encodings, tasks, positions (position schemes), probes, runs or studies.
    names
        Encodings, tasks, position schemes or probes to describe.
    study
        List only the runs of this study.
    results
        Results folder.
    json
        Print JSON.
    """
    from lengthwise.cli.listing import show_list

    return show_list(what, names, study, results, json)


def show(run: str, /, *, results: Results = RESULTS, json: bool = False) -> int:
    """Show one run: its settings, scores and training curve, and the software and hardware that produced it.

    Example: lengthwise show 3f9a (`lengthwise list runs` shows the keys)

    Parameters
    ----------
    run
        The run's key, or its first digits.
    results
        Results folder.
    json
        Print JSON.
    """
    from lengthwise.cli.showing import show_run

    return show_run(run, results, json)


def drop(
    *runs: Annotated[str, Parameter(name="RUNS", show_default=False)],
    study: str | None = None,
    finished: Annotated[bool, Parameter(negative="")] = False,
    results: Results = RESULTS,
) -> int:
    """Delete runs or a study, with checkpoints and scores. Finished runs are deleted only with --finished.

    Deleting a study deletes its runs, except those that another study also lists. Runs that are being trained are not deleted,
    and neither is their study. The command prints what it deleted and what it did not. If a study file still lists a deleted run,
    `lengthwise run` trains it from the beginning.

    Example: lengthwise drop 3f9a 77c0; lengthwise drop --study quickstart; lengthwise drop --study quickstart --finished

    Parameters
    ----------
    runs
        Keys of the runs, or their first digits.
    study
        Study to delete, with its runs.
    finished
        Also delete finished runs, with their trained models and all results.
    results
        Results folder.
    """
    from lengthwise.cli.dropping import drop_runs

    return drop_runs(runs, study, finished, results)


@with_probe_options
def probe(
    what: str,
    run: Annotated[str | None, Parameter(show_default=False)] = None,
    /,
    *,
    against: str | None = None,
    study: str | None = None,
    task: str | None = None,
    across_seeds: Annotated[bool, Parameter(negative="")] = False,
    results: Results = RESULTS,
    device: str = "cpu",
    threads: Annotated[Integer, Parameter(env_var="LENGTHWISE_THREADS")] = 1,
    json: bool = False,
    **options: Any,
) -> int:
    """Measure attention inside trained models. Results are stored and shown in the report.

    {probes}

    Example: lengthwise probe attention-distance 3f9a --against 77c0; lengthwise probe attended-distance 3f9a --lengths 20,40;
    lengthwise probe attention-distance --study quickstart --against nope; lengthwise probe recency --study icfl;
    lengthwise probe attended-distance --study sums --task addition:scratchpad=full

    Parameters
    ----------
    what
        Name of the probe; `lengthwise list probes` lists them.
    run
        The run's key, or its first digits.
    against
        The run to compare with: its key, or an encoding, which selects its run with the same task and seed (the next seed if the
        run itself has that encoding).
    study
        Probe all finished runs of this study instead of one run.
    task
        Only the study's runs with this task, including its settings: addition:scratchpad=full or "Addition(scratchpad=full)".
    across_seeds
        Compare with the other encoding's run of the next seed. Runs of the same seed start from the same weights, which keeps
        their attention similar.
    results
        Results folder.
    device
        Device to run on: cpu, cuda, cuda:1, ...
    threads
        Number of CPU threads.
    json
        Print JSON.
    """
    from lengthwise.cli.probing import Selection, probe_runs

    selection = Selection(run, study, task, against, across_seeds, lengths=options.pop("lengths", None))
    return probe_runs(what, selection, options, results=results, device=device, threads=threads, json=json)
