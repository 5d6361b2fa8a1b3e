"""Our tasks as tasks of lm-evaluation-harness: a folder with examples, which `lm_eval --include_path` reads.

Source of the format: https://github.com/EleutherAI/lm-evaluation-harness, version 0.4.13.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lengthwise.config import Choice, ConfigError
from lengthwise.new_folder import new_folder
from lengthwise.tasks.sequences import SequenceTask

INPUT = "{input}"
WORDS = "{input} [SEP]"  # the prompt of our own models
MODULE = '''"""The examples of these tasks, which lm-evaluation-harness loads with functions of this module."""

import json
import re
from functools import partial
from pathlib import Path

import datasets


def load(name, **_):
    with open(Path(__file__).parent / f"{name}.jsonl", encoding="utf-8") as lines:
        return {"test": datasets.Dataset.from_list([json.loads(line) for line in lines])}


def whole(doc, results):
    """Return 1 if the generated text is the answer. Most tokenizers generate a space before it, which does
    not count.
    """
    return {"exact_match": float(results[0].strip() == doc["answer"])}


def beginning(doc, results):
    """Return 1 if the generated text begins with the answer. A number that has further digits is another number."""
    return {"exact_match": float(re.match(rf"\\s*{re.escape(doc['answer'])}(?!\\w)", results[0]) is not None)}


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
process_results: !function examples.{score}
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
    """A task at one length, as it was written, with `count` examples. `tokens`: how many an answer may have."""

    name: str
    count: int
    tokens: int


@dataclass(frozen=True)
class TaskRows:
    """The examples of a task at one length: prompt, answer and length of each.

    `is_continued`: whether text may follow the answer, as in a sentence that goes on.
    """

    label: str
    length: int
    rows: Sequence[Mapping[str, str | int]]
    is_continued: bool = False


def question_rows(
    choices: Sequence[Choice], lengths: Sequence[int], *, count: int, seed: int = 0, prompt: str = WORDS
) -> list[TaskRows]:
    """Return the examples of each task at each length: those of `evaluate` with the same seed and count.

    `prompt`: the text that a model continues, in which {input} stands for the question. Raises `ConfigError` for a task
    without words, and for a length that a task does not have.
    """
    return [
        TaskRows(choice.label, length, _examples(choice.build(), choice, length, count, seed, prompt))
        for choice in dict.fromkeys(choices)
        for length in dict.fromkeys(lengths)
    ]


def write_rows(folder: str | Path, tasks: Sequence[TaskRows]) -> list[HarnessTask]:
    """Write a task of lm-evaluation-harness for each element, with names such as lengthwise_copy_20.

    The score is the exact match of the answer, without spaces around it. The folder appears complete, or not at all.
    """
    files: dict[str, str] = {}
    written = []
    for task in tasks:
        tag = "lengthwise_" + re.sub(r"[^a-z0-9]+", "_", task.label.lower()).strip("_")
        name = f"{tag}_{task.length}"
        # A tokenizer of bytes needs as many tokens as an answer has bytes; a space before it and the end may need two
        # others.
        tokens = max(len(str(row["answer"]).encode()) for row in task.rows) + 2
        files[f"{name}.yaml"] = TASK.format(
            name=name, tag=tag, tokens=tokens, score="beginning" if task.is_continued else "whole"
        )
        files[f"{name}.jsonl"] = "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in task.rows)
        written.append(HarnessTask(name, len(task.rows), tokens))
    files["examples.py"] = MODULE + "".join(f'{task.name} = partial(load, "{task.name}")\n' for task in written)
    with new_folder(folder) as draft:
        for name, text in files.items():
            (draft / name).write_text(text, encoding="utf-8")
    return written


def _examples(
    task: object, choice: Choice, length: int, count: int, seed: int, prompt: str
) -> list[Mapping[str, str | int]]:
    if not isinstance(task, SequenceTask):
        raise ConfigError(
            f"{choice.label} has no questions and answers in words; take a task such as Copy, Reverse or Addition"
        )
    task.check_length(length)
    return [
        {"prompt": prompt.replace(INPUT, row["input"]), "answer": row["target"], "length": row["length"]}
        for row in task.render(task.examples(seed, count, length))
    ]
