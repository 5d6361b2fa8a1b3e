"""`lengthwise harness`: write our tasks as tasks of lm-evaluation-harness."""

from lengthwise.cli.options import Integer, option_class, whole_numbers
from lengthwise.cli.printing import column, one_line, plain_table, stdout
from lengthwise.config import ConfigError

MAX_EXAMPLES = 100_000


@option_class
class HarnessOptions:
    """The options of the command."""

    out: str
    """The folder to create. A folder that exists is never overwritten."""
    lengths: str = "5,10,20,40"
    """Lengths in the unit of each task, comma-separated. Each task at each length is a task of its own."""
    examples: Integer = 200
    """Examples of each length, which are those of an evaluation with the same number and seed."""
    seed: Integer = 0
    """Seed of the examples."""
    prompt: str = "{input} [SEP]"
    """The text that the model continues, in which {input} stands for the question. The default is the prompt of exported
    runs; other models need words such as "Copy: {input} Copy:"."""


def command(*tasks: str, options: HarnessOptions) -> int:
    """Write tasks of questions and answers for lm-evaluation-harness, at several lengths each.

    Example: lengthwise harness copy reverse addition --lengths 10,20,40 --out tasks; lm_eval --include_path tasks --tasks
    lengthwise_copy (a task of each length also has a name of its own, such as lengthwise_copy_20)

    Args:
        tasks: The tasks, optionally with settings: copy or copy:symbols=10.
    """
    from lengthwise.evaluation.harness import write_tasks
    from lengthwise.tasks import TASKS

    if not tasks:
        raise ConfigError("harness needs at least one task, such as copy; lengthwise list tasks lists them")
    if not 1 <= options.examples <= MAX_EXAMPLES:
        raise ConfigError(f"--examples must be from 1 to {MAX_EXAMPLES:,}, got {options.examples}")
    lengths = whole_numbers(options.lengths, "--lengths", 1, "5,10,20,40")
    choices = [TASKS.parse(task) for task in tasks]
    written = write_tasks(
        options.out, choices, lengths, count=options.examples, seed=options.seed, prompt=options.prompt
    )
    table = plain_table(column("task", no_wrap=True))
    for name in ("examples", "tokens of an answer, at most"):
        table.add_column(name, justify="right")
    for task in written:
        table.add_row(task.name, f"{task.count:,}", f"{task.tokens:,}")
    stdout().print(table)
    print(f"\nlm_eval --include_path {one_line(options.out)} --tasks {','.join(task.name for task in written)} ...")
    return 0
