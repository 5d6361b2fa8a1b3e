"""What can be written after `lengthwise` about studies and their runs. Each verb imports what it needs when it runs."""

from typing import Annotated

from cyclopts import Parameter

from lengthwise.cli.options import EVERY_FILE, RESULTS, USUAL, Execution, Listed, Results, Whole, words


def run(study: str, /, *, execution: Execution = USUAL) -> int:
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


def compare(
    *names: Annotated[str, Parameter(name="ENCODINGS", show_default=False)],
    encodings: Listed = None,
    text: str | None = None,
    glob: str = EVERY_FILE,
    task: str | None = None,
    positions: Listed = None,
    train_length: Whole,
    min_length: Whole | None = None,
    train_examples: Whole | None = None,
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
    execution: Execution = USUAL,
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
    positions
        Position schemes to compare, comma-separated, e.g. randomized:max_length=4096. [default: consecutive]
    train_length
        The length of the sequences in training, in the task's unit (bytes of text, symbols to copy).
    min_length
        The shortest length in training, of which all up to train_length are drawn. Usually train_length: one length.
    train_examples
        Train on a fixed set of this many examples, epoch after epoch. Default: fresh examples at every step.
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
        The study's name. Default: made of the task, the trained length, the encodings, and each training or model setting that
        differs from its default, so that comparisons with other settings stay beside each other (`lengthwise list studies`).
        Calls with the same name are one study, and its report shows what the last call listed: repeat all encodings, lengths and
        seeds that it should have. Nothing that is stored is trained twice.
    """
    from lengthwise.cli.comparing import Comparison, study_of
    from lengthwise.cli.running import run_study

    asked = Comparison(
        encodings=(*names, *words(encodings)),
        text=text,
        glob=glob,
        task=task,
        positions=tuple(words(positions)) if positions is not None else None,
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
    return run_study(study_of(asked), execution)


def report(
    *,
    study: str | None = None,
    ties: str = "average",
    results: Results = RESULTS,
    output: str | None = None,
    json: bool = False,
) -> int:
    """Make the report of what has been found so far: a table here, and a page to look at and to send to others.

    Example: lengthwise report --study quickstart --output quickstart.html

    Parameters
    ----------
    study
        One study; usually all in the folder.
    ties
        Of the mean reciprocal rank, where encodings have equal scores: average (they share the mean of their ranks) or published
        (ranks in the order of the list, as the NoPE study's evaluation gives them).
    results
        Folder of the results.
    output
        The HTML file; usually report.html in the folder of the results.
    json
        Print the findings as JSON; the page is made only with --output.
    """
    from lengthwise.cli.reporting import make_report

    return make_report(results, study, output, json, ties)


def list_(what: str, /, *names: str, study: str | None = None, results: Results = RESULTS, json: bool = False) -> int:
    """List encodings, tasks, position schemes, runs or studies; with names of the first three, all that is to be said about them.

    Example: lengthwise list encodings; lengthwise list encodings fire; lengthwise list runs --study quickstart

    Parameters
    ----------
    what
        encodings, tasks, position schemes, runs or studies.
    names
        Encodings, tasks or position schemes to describe.
    study
        Runs of this study alone.
    results
        Folder of the results.
    json
        Print JSON.
    """
    from lengthwise.cli.listing import show_list

    return show_list(what, names, study, results, json)


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


def drop(
    *runs: Annotated[str, Parameter(name="RUNS", show_default=False)],
    study: str | None = None,
    finished: Annotated[bool, Parameter(negative="")] = False,
    results: Results = RESULTS,
) -> int:
    """Delete runs, or a whole study: checkpoints, scores, and places in studies. What is finished stays without --finished.

    A study is deleted with its runs, but for those that another study lists too. Runs that are being worked on stay, and the
    study with them. What is deleted and what stays is listed. A study file that still lists a deleted run begins it anew.

    Example: lengthwise drop 3f9a 77c0; lengthwise drop --study quickstart; lengthwise drop --study quickstart --finished

    Parameters
    ----------
    runs
        The runs' keys, or how they begin.
    study
        A study to delete, with its runs.
    finished
        Delete runs that are finished too: their trained models and all that was found.
    results
        Folder of the results.
    """
    from lengthwise.cli.dropping import drop_runs

    return drop_runs(runs, study, finished, results)


def probe(
    what: str,
    run: Annotated[str | None, Parameter(show_default=False)] = None,
    /,
    *,
    against: str | None = None,
    study: str | None = None,
    task: str | None = None,
    lengths: str | None = None,
    examples: Whole | None = None,
    across_seeds: Annotated[bool, Parameter(negative="")] = False,
    variant: str | None = None,
    points: Whole | None = None,
    repeats: Whole | None = None,
    noise: str | None = None,
    positions: Whole | None = None,
    neighbours: Whole | None = None,
    resamples: Whole | None = None,
    seed: Whole = 0,
    results: Results = RESULTS,
    device: str = "cpu",
    threads: Annotated[Whole, Parameter(env_var="LENGTHWISE_THREADS")] = 1,
    json: bool = False,
) -> int:
    """Look inside trained models: what their attention learned. Answers are kept, and shown in the report.

    attention-distance: how far a run's attention is from another run's, in each layer, in nats: from 0 to ln 2.
    attended-distance: how far back its heads look, from 0 (the token itself) to 1 (the first one).

    Of runs that learn functions in context:
    recency: where the last x of a prompt looks, layer by layer.
    duplicates: scores of prompts in which examples are repeated.
    lost-in-the-middle: scores by where in the prompt the answer stands.
    induction: how much a head looks at what followed the same x before.

    Example: lengthwise probe attention-distance 3f9a --against 77c0; lengthwise probe attended-distance 3f9a --lengths 20,40;
    lengthwise probe attention-distance --study quickstart --against nope; lengthwise probe recency --study icfl;
    lengthwise probe attended-distance --study sums --task addition:scratchpad=full

    Parameters
    ----------
    what
        attention-distance, attended-distance, recency, duplicates, lost-in-the-middle or induction.
    run
        The run's key, or how it begins.
    against
        The run to compare with: its key, or an encoding, for its run with the same task and seed (for a run of that encoding
        itself: the next seed).
    study
        All finished runs of a study instead of one run.
    task
        Of a study's runs those of this task alone, with its settings or as the report calls it: addition:scratchpad=full or
        "Addition(scratchpad=full)".
    lengths
        Lengths with commas: 20,40. Usually those of the run's evaluation; for attended-distance those never trained; in
        context 4 (recency) or 8 times the trained one, and 80 (induction).
    examples
        Test examples at each length; usually 10, for attended-distance and in context 100, for recency 64.
    across_seeds
        Compare with the next seed of that encoding: runs of one seed begin with the same weights, which keeps them close.
    variant
        Of the distance: jensen-shannon, or published for what the NoPE study's code computes.
    points
        Examples that prompts are made of: usually the trained length, for induction 12.
    repeats
        How often a prompt repeats its points: usually 4.
    noise
        Counts of repeated examples before the target: 5-20 or 5,10,20.
    positions
        Of the answer in the prompt, evenly from the first to the last: usually 21.
    neighbours
        Nearest ones that induction looks for: usually 1.
    resamples
        Of the bootstrap: usually 100.
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

    options = {"points": points, "repeats": repeats, "noise": noise, "positions": positions}
    options |= {"neighbours": neighbours, "resamples": resamples}
    wanted = probing.ProbeOptions(
        what, run, against, study, lengths, examples, seed, variant, across_seeds, options, task
    )
    return probing.probe(wanted, results, device, threads, json)
