"""What can be written after `lengthwise` about tasks, encodings and data sets. Each verb imports what it needs when it runs."""

from typing import Annotated, Literal

from cyclopts import Parameter

from lengthwise.cli.options import RESULTS, Listed, Results, Whole, no_option, words
from lengthwise.values import ConfigError


def sample(
    task: str,
    /,
    *,
    length: Whole | None = None,
    count: Whole | None = None,
    seed: Whole | None = None,
    split: Literal["train", "test"] | None = None,
    all: Annotated[bool, Parameter(negative="")] = False,
    published: Literal["paper", "repository"] | None = None,
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
        train or test. No example is in both, but where a length has too few to split (6 commands of SCAN have one action), both
        have all of them. Usually test, and with --all both.
    all
        Print every example there is, of a task that is a given set, or of a length that has few enough.
    published
        Print the text of the published study instead of words (prompt, separator and target): as its paper prints examples, or
        as its repository makes them, which its runs were trained on.
    json
        Print one JSON object a line.
    """
    from lengthwise.cli.sampling import SampleOptions, show_all, show_examples

    asked = SampleOptions(length=length, count=count, seed=seed, split=split, published=published, json=json)
    return (show_all if all else show_examples)(task, asked)


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


def lengths(
    file: Annotated[str, Parameter(allow_leading_hyphen=True, validator=no_option)],
    /,
    *,
    field: str = "input",
    results: Results = RESULTS,
    json: bool = False,
) -> int:
    """Count how long the examples of a data set are: JSON lines, such as `lengthwise sample scan --all --json` prints.

    Of a stored run: its training examples beside test examples; kept, and shown in the report.

    Example: lengthwise lengths data.jsonl --field target; lengthwise sample pcfg --all --json | lengthwise lengths -;
    lengthwise lengths 3f9a

    Parameters
    ----------
    file
        The file, one JSON object a line; - reads what comes through a pipe. Or a run's key, or how it begins.
    field
        What is counted: the words of a text (input, target), or a whole number as it stands (length).
    results
        Folder of the results, for a run's key.
    json
        Print JSON, each length by itself.
    """
    from lengthwise.cli.counting import show_lengths

    return show_lengths(file, field, results, json)


def pretrained(
    folder: Annotated[str, Parameter(validator=no_option)],
    /,
    *,
    tasks: Listed = None,
    dims: Whole = 8,
    examples: str = "0,5,10,20,40",
    settings: str = "standard,duplicated",
    form: Literal["auto", "mpt", "llama-2", "plain"] = "auto",
    prompts: Whole = 100,
    seed: Whole = 0,
    batch_size: Whole = 8,
    device: str = "cpu",
    dtype: Literal["float32", "bfloat16", "float16"] = "float32",
    threads: Annotated[Whole, Parameter(env_var="LENGTHWISE_THREADS")] = 1,
    output: str | None = None,
    json: bool = False,
) -> int:
    """Ask a pretrained language model for the labels of Boolean functions, after so many examples in its prompt.

    A Hugging Face model on this machine, in safetensors; nothing is fetched, and none of its own code is run. Needs
    transformers: pip install 'lengthwise[outside]'.

    Example: lengthwise pretrained models/mpt-7b --tasks conjunction,parity-function --examples 0,10,40 --output mpt.json

    Parameters
    ----------
    folder
        The model's folder: config.json, tokenizer, *.safetensors.
    tasks
        Classes of Boolean functions with commas, with settings if wanted; usually all.
    dims
        Bits of an input.
    examples
        Numbers of examples before the question, with commas.
    settings
        standard: examples drawn one by one; duplicated: one example over and over, and asked again; noise: the second half of
        the examples repeats one.
    form
        The prompt's words: mpt and llama-2 (a chat, [INST] <<SYS>>) as the thesis printed them, plain as Bhattamishra et al.
        2023 had them; auto takes llama-2 for Llama and mpt for all others.
    prompts
        Functions, each with its prompt, for every task, setting and number of examples.
    seed
        Of functions and examples.
    batch_size
        Prompts in one forward.
    device
        cpu, cuda, cuda:1, ...
    dtype
        Of the weights.
    threads
        Threads of the computation.
    output
        A file for all questions and answers, as JSON; nothing is kept without.
    json
        Print that JSON.
    """
    from lengthwise.cli.pretrained import PretrainedOptions, check

    wanted = PretrainedOptions(
        folder=folder,
        tasks=tuple(words(tasks)),
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
    return check(wanted, json)
