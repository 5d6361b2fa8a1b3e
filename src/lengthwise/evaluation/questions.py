"""The questions of an evaluation: what identifies a score, and whether a run supports it."""

import json
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from lengthwise.config import Choice, ConfigError, EvaluationConfig, Run, choose
from lengthwise.evaluation.decoding import decodable
from lengthwise.evaluation.untrained import baselines_of
from lengthwise.measurements.scores import ScoresOptions
from lengthwise.positions import PositionScheme, position_scheme_for
from lengthwise.tasks.base import PrefixTask, Task, same_tokenizer
from lengthwise.training.setup import original_train_length

Shift = Mapping[str, Any]
"""Settings of the task in which a test differs from training. An empty mapping stands for the task as trained."""


def evaluation_question(
    task: Task | type[Task], config: EvaluationConfig, length: int, shift: Shift = MappingProxyType({})
) -> dict[str, Any]:
    """Return the settings that identify the evaluation at one length, which is not repeated once it has a score."""
    has_prefixes = issubclass(task if isinstance(task, type) else type(task), PrefixTask)
    options = ScoresOptions(
        length=length,
        examples=None if task.per_token else config.examples,
        tokens=config.tokens if task.per_token else None,
        seed=config.seed,
        prompt=prompt_length(config) if has_prefixes else None,
        shift=dict(shift) or None,
    )
    return options.to_data()


def questions(task: Choice, config: EvaluationConfig) -> list[dict[str, Any]]:
    """Return all evaluations of a run (see `evaluation_question`): every length, for the task as trained and for every
    shift.

    `task`: that of the run. A shift is stored as all settings that it changes, for example with the hash of another
    text.
    """
    trained = dict(task.settings)
    shifts: list[Shift] = [{}]
    for shift in config.shifts:
        settings = dict(shifted(task, shift).settings)
        shifts.append({name: value for name, value in settings.items() if value != trained[name]})
    return [evaluation_question(task.cls, config, length, shift) for shift in shifts for length in config.lengths]


def together(questions: Iterable[Mapping[str, Any]]) -> Iterator[tuple[EvaluationConfig, dict[str, Any]]]:
    """Yield configurations that cover these questions, each with its shift.

    Questions that one forward pass answers share a configuration; each of the others has its own.
    """
    groups: dict[str, list[int]] = {}
    for question in questions:
        key = json.dumps({k: v for k, v in question.items() if k != "length"}, sort_keys=True)
        if "prompt" not in question:
            key += f" {question['length']}"
        groups.setdefault(key, []).append(question["length"])
    for key, lengths in groups.items():
        settings, _ = json.JSONDecoder().raw_decode(key)
        shift = settings.pop("shift", {})
        yield EvaluationConfig(lengths=tuple(lengths), **settings), shift


def shifted(task: Choice, shift: Shift) -> Choice:
    """Return the task of a test, which differs from the trained task in the settings of `shift`.

    Raises `ConfigError` for invalid settings and for a shift without effect.
    """
    task_class: Any = task.cls
    changed = choose(task_class, **task_class.changed(dict(task.settings), shift))
    if changed == task:
        raise ConfigError(f"the shift {dict(shift)} must change the trained task, got the same task {task.label}")
    return changed


def check_lengths(run: Run, lengths: Iterable[int], shifts: Iterable[Shift] = (), prompt: int | None = None) -> None:
    """Raise `ConfigError` for a length that the run's task, position scheme or encoding does not support.

    Also for a shift that the task does not have. `prompt`: the prompt length of a task with prefixes. Builds no model.
    """
    task: Task = run.task.build()
    lengths = list(lengths)
    if prompt is not None and not isinstance(task, PrefixTask):
        raise ConfigError(
            f"prompt is {prompt}, but {run.task.name} is not a task whose lengths are prefixes of one prompt; leave "
            "prompt out"
        )
    for choice in (run.task, *(shifted(run.task, shift) for shift in shifts)):
        test_task: Task = task if choice is run.task else choice.build()
        prompts = [prompt] if prompt and isinstance(test_task, PrefixTask) and test_task.prefixes_are_examples() else []
        all_lengths = dict.fromkeys([*lengths, *prompts])
        scheme = position_scheme_for(task, run.training.positions)
        check_supported(test_task, encodings_of(run, task), scheme, all_lengths, task.decodes)
        for name in ("input_width", "vocab_size", "output_size"):
            if (other := getattr(test_task, name)) != (own := getattr(task, name)):
                raise ConfigError(f"a shift must keep the {name} {own} of the trained model, got {other}")
        if not same_tokenizer(test_task, task):
            raise ConfigError(
                f"the shifted task {choice.located_label} has another tokenizer than the trained task "
                f"{run.task.located_label}, so the same token IDs mean other text; prepare the text with the same "
                "tokenizer (lengthwise tokenize --tokenizer FOLDER)"
            )


def encodings_of(run: Run, task: Task) -> list[Any]:
    """Return one instance of every encoding in the run's model."""
    context = {"num_heads": run.model.num_heads, "head_dim": run.model.head_dim, "d_model": run.model.d_model}
    train_length = original_train_length(run, task)
    return [choice.build(**context, train_length=train_length) for choice in dict.fromkeys(run.encoding.layers)]


def prompt_length(config: EvaluationConfig) -> int:
    """Return the length of the sequences whose prefixes are scored."""
    return config.prompt or max(config.lengths)


def num_examples(task: Task, config: EvaluationConfig, length: int) -> int:
    """Return the number of examples that an evaluation takes at a length, at most as many as there are."""
    count = task.num_examples(config.tokens, length) if task.per_token else config.examples
    available = task.available(length, "test")
    return count if available is None else min(count, available)


def check_supported(
    task: Task, encodings: Iterable[Any], scheme: PositionScheme, lengths: Iterable[int], decode: bool
) -> None:
    """Raise `ConfigError` for a length that the task, an encoding or the position scheme does not support."""
    encodings = list(encodings)
    if decode:
        decodable(task, scheme)
    scheme.require_axes_of(encodings)
    baselines_of(task)  # raises an error now for a baseline that cannot be computed
    for length in lengths:
        task.check_length(length, "test")
        scheme.require(task.tokens(length), training=False)
        num_positions = scheme.num_positions(task.tokens(length), training=False)
        for encoding in encodings:
            if encoding.max_length is not None and num_positions > encoding.max_length:
                with_scheme = "" if num_positions == task.tokens(length) else f" with {type(scheme).__name__}"
                raise ConfigError(
                    f"length {length} {task.unit} needs {num_positions} positions{with_scheme}, but "
                    f"{type(encoding).__name__} has {encoding.max_length}; give it a larger max_length, or leave this "
                    "length out"
                )
