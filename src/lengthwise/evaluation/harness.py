"""Our tasks as tasks of lm-evaluation-harness: a folder with examples, which `lm_eval --include_path` reads.

Source of the format: https://github.com/EleutherAI/lm-evaluation-harness, version 0.4.13.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lengthwise.config import Choice, ConfigError
from lengthwise.new_folder import new_folder, require_new
from lengthwise.tasks.sequences import SequenceTask

INPUT = "{input}"
WORDS = "{input} [SEP]"  # the prompt of our own models
MODULE = '''"""The examples of these tasks, which lm-evaluation-harness loads with functions of this module."""

import json
from functools import partial
from pathlib import Path

import datasets


def load(name, **_):
    lines = (Path(__file__).parent / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return {"test": datasets.Dataset.from_list([json.loads(line) for line in lines])}


'''
TASK = """task: {name}
tag:
  - {tag}
output_type: generate_until
custom_dataset: !function examples.{name}
test_split: test
doc_to_text: "{{{{prompt}}}}"
doc_to_target: "{{{{answer}}}}"
target_delimiter: " "
num_fewshot: 0
generation_kwargs:
  do_sample: false
  max_gen_toks: {tokens}
  until:
    - "\\n"
metric_list:
  - metric: exact_match
    aggregation: mean
    higher_is_better: true
metadata:
  version: 1.0
"""


@dataclass(frozen=True)
class HarnessTask:
    """A task at one length, as it was written. `tokens`: how many tokens an answer may have; `count`: the number of examples."""

    name: str
    count: int
    tokens: int


def write_tasks(
    folder: str | Path,
    choices: Sequence[Choice],
    lengths: Sequence[int],
    *,
    count: int,
    seed: int = 0,
    prompt: str = WORDS,
) -> list[HarnessTask]:
    """Write a task of lm-evaluation-harness for each of our tasks and each length. Their names are such as lengthwise_copy_20.

    The examples are those of `evaluate` with the same seed and count. `prompt`: the text that a model continues, in which {input}
    stands for the question. The score is the exact match of the answer's words. The folder appears complete, or not at all.
    Raises `ConfigError` for a folder that exists, for a task without words, and for a length that a task does not have.
    """
    path = require_new(folder)
    if INPUT not in prompt:
        raise ConfigError(f"a prompt must contain {INPUT} where the question belongs, got {prompt!r}")
    files: dict[str, str] = {}
    written = []
    for choice in dict.fromkeys(choices):
        label = re.sub(r"[^a-z0-9]+", "_", choice.label.lower()).strip("_")
        for length in dict.fromkeys(lengths):
            task, name = choice.build(), f"lengthwise_{label}_{length}"
            rows = _examples(task, choice, length, count, seed, prompt)
            # A tokenizer of bytes needs as many tokens as an answer has bytes; the end may need another one.
            tokens = max(len(str(row["answer"]).encode()) for row in rows) + 1
            files[f"{name}.yaml"] = TASK.format(name=name, tag=f"lengthwise_{label}", tokens=tokens)
            files[f"{name}.jsonl"] = "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)
            written.append(HarnessTask(name, len(rows), tokens))
    files["examples.py"] = MODULE + "".join(f'{task.name} = partial(load, "{task.name}")\n' for task in written)
    with new_folder(path) as draft:
        for name, text in files.items():
            (draft / name).write_text(text, encoding="utf-8")
    return written


def _examples(
    task: object, choice: Choice, length: int, count: int, seed: int, prompt: str
) -> list[dict[str, str | int]]:
    if not isinstance(task, SequenceTask):
        raise ConfigError(
            f"{choice.label} has no questions and answers in words; take a task such as Copy, Reverse or Addition"
        )
    task.check_length(length)
    return [
        {"prompt": prompt.replace(INPUT, row["input"]), "answer": row["target"], "length": row["length"]}
        for row in task.render(task.examples(seed, count, length))
    ]
