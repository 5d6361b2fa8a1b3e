"""The commands for tasks, encodings, data sets and pretrained models. Each command imports what it needs when it runs."""

from typing import Annotated, Literal

from cyclopts import Parameter

from lengthwise.cli.options import RESULTS, Integer, NameList, Results, require_no_option, split_names
from lengthwise.values import ConfigError


def sample(
    task: str,
    /,
    *,
    length: Integer | None = None,
    count: Integer | None = None,
    seed: Integer | None = None,
    split: Literal["train", "test"] | None = None,
    all: Annotated[bool, Parameter(negative="")] = False,
    published: Literal["paper", "repository"] | None = None,
    json: bool = False,
) -> int:
    """Print examples of a task. The same seed prints the same examples.

    Example: lengthwise sample copy:symbols=10 --length 5 --count 3; lengthwise sample scan --all --json

    Parameters
    ----------
    task
        The task, optionally with settings: copy or copy:symbols=10.
    length
        Length in the task's unit. [default: 10; with --all, every length of a task with a fixed data set (SCAN, PCFG)]
    count
        Number of examples. [default: 3]
    seed
        Seed of the examples. In the test split, they are those of an evaluation with this seed. [default: 0]
    split
        Split to draw from. No example is in both splits, except at lengths with too few examples to divide (only 6 commands of
        SCAN have one action); there, both splits contain all of them. [default: test; with --all, both]
    all
        Print all examples, if the task has a fixed data set or the length has few enough of them.
    published
        Print the prompt, separator and target texts of the published study: as its paper prints them, or as its repository
        generates them for its runs.
    json
        Print one JSON object per line.
    """
    from lengthwise.cli.sampling import SampleOptions, show_all, show_examples

    options = SampleOptions(length=length, count=count, seed=seed, split=split, published=published, json=json)
    return (show_all if all else show_examples)(task, options)


def check(
    *names: Annotated[str, Parameter(name="ENCODINGS", show_default=False)],
    encodings: NameList = None,
    theorems: bool = False,
    outside: bool = False,
    json: bool = False,
) -> int:
    """Run the conformance suite: every encoding on every attention backend.

    Example: lengthwise check; lengthwise check rope fire; lengthwise check --theorems; lengthwise check --outside alibi

    Parameters
    ----------
    names
        Encodings to check, separated by spaces. [default: all]
    encodings
        The same names, comma-separated: rope,fire.
    theorems
        Check published theorems about the encodings numerically, instead of the conformance suite.
    outside
        Compare our encodings with those of transformers and x-transformers, instead of the conformance suite.
    json
        Print JSON.
    """
    if outside:
        if theorems:
            raise ConfigError("--theorems and --outside cannot be combined; give one of them")
        from lengthwise.conformance import outside as other_libraries

        return other_libraries.main(json=json, encodings=(*names, *split_names(encodings)))
    if theorems:
        from lengthwise.conformance import theorems as theorem_checks

        return theorem_checks.main(json=json, encodings=(*names, *split_names(encodings)))
    from lengthwise import conformance

    return conformance.main(json=json, encodings=(*names, *split_names(encodings)))


def inspect_(
    encoding: str,
    /,
    *,
    num_heads: Integer = 8,
    head_dim: Integer = 64,
    d_model: Integer | None = None,
    train_length: Integer = 128,
    length: Integer | None = None,
    set: Annotated[tuple[str, ...], Parameter(name="--set", show_default=False, negative="")] = (),
    seed: Integer = 0,
    json: bool = False,
) -> int:
    """Show what an encoding computes, such as its bias, wavelengths or vectors, at any length. Nothing is trained.

    Example: lengthwise inspect alibi; lengthwise inspect fire --set L=64 --length 256; lengthwise inspect rope --json

    Parameters
    ----------
    encoding
        The encoding, optionally with settings: fire or fire:hidden_layers=1.
    num_heads
        Number of attention heads.
    head_dim
        Dimensions of each head.
    d_model
        Width of the model. [default: num_heads x head_dim]
    train_length
        Training length that the encoding is built for.
    length
        Number of positions to show. [default: 2x the training length]
    set
        A setting of the encoding as name=value. May be repeated.
    seed
        Seed of the initial values of learned parameters.
    json
        Print one JSON object with unrounded numbers.
    """
    from lengthwise.cli.inspecting import show_inspection

    sizes = {"num_heads": num_heads, "head_dim": head_dim, "d_model": d_model, "train_length": train_length}
    return show_inspection(encoding, set, {**sizes, "length": length, "seed": seed}, json)


def lengths(
    file: Annotated[str, Parameter(allow_leading_hyphen=True, validator=require_no_option)],
    /,
    *,
    field: str = "input",
    results: Results = RESULTS,
    json: bool = False,
) -> int:
    """Count the lengths of a data set's examples: a file of JSON lines, or a stored run's training and test examples.

    Counts of a run are stored and shown in the report. `lengthwise sample scan --all --json` prints a task as JSON lines.

    Example: lengthwise lengths data.jsonl --field target; lengthwise sample pcfg --all --json | lengthwise lengths -;
    lengthwise lengths 3f9a

    Parameters
    ----------
    file
        A file with one JSON object per line, - for standard input, or a run's key (or its first digits).
    field
        Field to count: the number of words of a text (input, target), or the value of a whole number (length).
    results
        Results folder, if a run's key is given.
    json
        Print JSON with one entry per length.
    """
    from lengthwise.cli.counting import show_lengths

    return show_lengths(file, field, results, json)


def pretrained(
    folder: Annotated[str, Parameter(validator=require_no_option)],
    /,
    *,
    tasks: NameList = None,
    dims: Integer = 8,
    examples: str = "0,5,10,20,40",
    settings: str = "standard,duplicated",
    form: Literal["auto", "mpt", "llama-2", "plain"] = "auto",
    prompts: Integer = 100,
    seed: Integer = 0,
    batch_size: Integer = 8,
    device: str = "cpu",
    dtype: Literal["float32", "bfloat16", "float16"] = "float32",
    threads: Annotated[Integer, Parameter(env_var="LENGTHWISE_THREADS")] = 1,
    output: str | None = None,
    json: bool = False,
) -> int:
    """Test whether a pretrained language model learns Boolean functions from the examples in its prompt.

    The model is a local Hugging Face folder with safetensors files. Nothing is downloaded, and no code from the folder is run.
    This command needs transformers: pip install 'lengthwise[outside]'.

    Example: lengthwise pretrained models/mpt-7b --tasks conjunction,parity-function --examples 0,10,40 --output mpt.json

    Parameters
    ----------
    folder
        The model's folder, with config.json, the tokenizer and *.safetensors.
    tasks
        Classes of Boolean functions, comma-separated, optionally with settings. [default: all]
    dims
        Bits per input.
    examples
        Numbers of examples before the question, comma-separated.
    settings
        Kinds of prompts, comma-separated. standard: independent examples. duplicated: one example repeated, whose
        input is also the question. noise: the second half of the examples repeats one example.
    form
        Prompt template. mpt and llama-2 (a chat with [INST] <<SYS>>): those in the thesis "How Do Position Encodings Affect Length
        Generalization?". plain: that of Bhattamishra et al. 2023. auto: llama-2 for Llama models and mpt for all others.
    prompts
        Number of prompts for each task, setting and number of examples; each prompt has its own function.
    seed
        Seed of the functions and the examples.
    batch_size
        Prompts per forward pass.
    device
        Device to run on: cpu, cuda, cuda:1, ...
    dtype
        Data type of the weights.
    threads
        Number of CPU threads.
    output
        JSON file for the results of all prompts. [default: nothing is saved]
    json
        Print the same JSON instead of a table.
    """
    from lengthwise.cli.pretrained import PretrainedOptions, check

    options = PretrainedOptions(
        folder=folder,
        tasks=tuple(split_names(tasks)),
        dims=dims,
        examples=examples,
        settings=settings,
        form=form,
        prompts=prompts,
        seed=seed,
        batch_size=batch_size,
        device=device,
        dtype=dtype,
        threads=threads,
        output=output,
    )
    return check(options, json)
