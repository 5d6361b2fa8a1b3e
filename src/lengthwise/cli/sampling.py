"""`lengthwise sample`: examples of a task."""

from lengthwise.cli.printing import print_json
from lengthwise.config import ConfigError
from lengthwise.tasks import TASKS, Task, generator

MOST = 100_000


def show_examples(word: str, length: int, count: int, seed: int, split: str, json: bool) -> int:
    if not 1 <= count <= MOST:
        raise ConfigError(f"--count is {count}; it has to lie in 1 ... {MOST}")
    choice = TASKS.parse(word)
    task: Task = choice.build()
    if split == "test":  # what an evaluation with that seed asks
        batch = task.examples(seed, count, length, split)
    else:
        batch = task.sample(generator(seed, split, 0), count, length, split)
    examples = task.render(batch)
    for number, example in enumerate(examples):
        if json:
            row = {"task": choice.label, "split": split, "seed": seed, "number": number, **example}
            print_json(row, indent=None)
        else:
            print(f"{number}  input   {example['input']}\n{' ' * len(str(number))}  target  {example['target']}")
    if not json:
        about = f"{choice.label}: length {length} {task.unit}, {split}, seed {seed}"
        notes = [note for note in (task.note(length),) if note]
        if len(examples) < count:
            notes.append(f"there are only {len(examples)} different ones")
        print("; ".join([about, *notes]))
    return 0
