"""`lengthwise harness`: write our tasks as tasks of lm-evaluation-harness."""

from dataclasses import dataclass

from lengthwise.cli.options import FLATTENED, Integer, whole_numbers
from lengthwise.cli.printing import column, one_line, plain_table, stdout
from lengthwise.config import ConfigError
from lengthwise.new_folder import require_new

MAX_EXAMPLES = 100_000


@FLATTENED
@dataclass(frozen=True, kw_only=True)
class HarnessOptions:
    """The options of the command."""

    out: str
    """The folder to create. A folder that exists is never overwritten."""
    lengths: str = "5,10,20,40"
    """Lengths in the unit of each task, comma-separated: words for retrieval tasks. Each task at each length is a task
    of its own."""
    examples: Integer = 200
    """Examples of each length, which are those of an evaluation with the same number and seed."""
    seed: Integer = 0
    """Seed of the examples."""
    prompt: str | None = None
    """The text that the model continues, in which {input} stands for the question. Exported runs need the default;
    other models need words such as "Copy: {input} Copy:". Retrieval tasks have sentences of their own. [default:
    {input} [SEP]]"""
    text: str | None = None
    """Text file in UTF-8 into which retrieval tasks (needle, keys, ...) insert sentences."""


def command(*tasks: str, options: HarnessOptions) -> int:
    """Write tasks of questions and answers for lm-evaluation-harness, at several lengths each.

    The harness then evaluates a model with `lm_eval --include_path tasks --tasks lengthwise_copy`, or at one length
    with `--tasks lengthwise_copy_20`.

    Example: lengthwise harness copy reverse addition --lengths 10,20,40 --out tasks; lengthwise harness needle --text
    novel.txt --lengths 500,2000 --out needles

    Args:
        tasks: The tasks, optionally with settings: copy or copy:symbols=10. With --text, also the retrieval tasks of
            `lengthwise reach`: needle, keys, values, variables, copying.
    """
    from lengthwise.evaluation.harness import INPUT, WORDS, question_rows, write_rows
    from lengthwise.reach.harness import retrieval_rows
    from lengthwise.reach.tasks import TASKS as RETRIEVAL_TASKS
    from lengthwise.reach.text import read_text
    from lengthwise.tasks import TASKS

    if not tasks:
        raise ConfigError("harness needs at least one task, such as copy; lengthwise list tasks lists them")
    if not 1 <= options.examples <= MAX_EXAMPLES:
        raise ConfigError(f"--examples must be from 1 to {MAX_EXAMPLES:,}, got {options.examples}")
    lengths = whole_numbers(options.lengths, "--lengths", 1, "5,10,20,40")
    retrieval = [task for task in tasks if task in RETRIEVAL_TASKS]
    choices = [TASKS.parse(task) for task in tasks if task not in RETRIEVAL_TASKS]
    require_new(options.out)
    if retrieval and options.text is None:
        raise ConfigError(f"{retrieval[0]} needs --text; name a text file into which its sentences are inserted")
    if not retrieval and options.text is not None:
        raise ConfigError(f"--text belongs to retrieval tasks; name one of {', '.join(RETRIEVAL_TASKS)}, or omit it")
    if not choices and options.prompt is not None:
        raise ConfigError("--prompt has no effect on retrieval tasks, which have sentences of their own; omit it")
    prompt = WORDS if options.prompt is None else options.prompt
    if INPUT not in prompt:
        raise ConfigError(f"--prompt must contain {INPUT} where the question belongs, got {prompt!r}")
    rows = question_rows(choices, lengths, count=options.examples, seed=options.seed, prompt=prompt)
    if options.text is not None:
        text = read_text(options.text)
        rows += retrieval_rows(retrieval, text, lengths, count=options.examples, seed=options.seed)
    written = write_rows(options.out, rows)
    table = plain_table(column("task", no_wrap=True))
    for name in ("examples", "tokens of an answer, at most"):
        table.add_column(name, justify="right")
    for task in written:
        table.add_row(task.name, f"{task.count:,}", f"{task.tokens:,}")
    stdout().print(table)
    print(
        f"\nlm_eval --model hf --model_args pretrained=FOLDER,max_length=TOKENS "
        f"--include_path {one_line(options.out)} --tasks {','.join(task.name for task in written)}\n"
        "TOKENS: of the longest prompt with its answer, or more; without it, the harness cuts longer texts than in "
        "training."
    )
    return 0
