"""Probes of runs that learn functions in context: the question, its prompts, and the result as plain data.

`recency` and `induction` measure attention. `duplicates` and `lost-in-the-middle` measure scores, so they work with every model.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lengthwise.config import ConfigError, Run
from lengthwise.evaluation import check_lengths
from lengthwise.positions import position_scheme_for
from lengthwise.probes import prompts, recency
from lengthwise.probes.asking import TOKENS, ProbeQuestion, TrainedRun, require_attention
from lengthwise.probes.prompts import WHERE, Parts, Prompt
from lengthwise.tasks.base import Batch, generator
from lengthwise.tasks.functions import FunctionTask
from lengthwise.training.numerics import reproducible

RECENCY, DUPLICATES, MIDDLE, INDUCTION = "recency", "duplicates", "lost-in-the-middle", "induction"
IN_CONTEXT = (RECENCY, DUPLICATES, MIDDLE, INDUCTION)
OPTIONS: dict[str, tuple[str, ...]] = {  # in addition to length, examples and seed
    RECENCY: ("points", "repeats"),
    DUPLICATES: ("points", "noise", "resamples"),
    MIDDLE: ("points", "positions", "resamples"),
    INDUCTION: ("points", "repeats", "neighbours"),
}
SCORING_TOKENS = 16_384  # tokens per forward pass if only scores are needed
GROUPS = 40  # of prompts; their means are stored for a later bootstrap over groups

OnProgress = Callable[[float], None] | None


# ---- questions ----------------------------------------------------------------------------------------------------


def in_context_question(
    probe: str,
    train_length: int,
    length: int | None = None,
    *,
    examples: int | None = None,
    seed: int = 0,
    **options: Any,
) -> ProbeQuestion:
    """Return the question for one of the `IN_CONTEXT` probes.

    Lengths and `points` are numbers of examples in a prompt, `examples` is the number of prompts. Arguments that are None take the
    published values (in parentheses, for runs trained on 50 examples: 4 or 8 times the training length).

    recency: `length` of the prompts (200); `points` (50) and `repeats` (4) of the repeated prompts; 64 prompts.
    duplicates, lost-in-the-middle: `length` (400) and `points` (50) of the prompts, see `prompts`; counts of `noise` (5 to 20);
    number of `positions` (21) of a duplicate; `resamples` (100) of the bootstrap; 100 prompts.
    induction: `points` (12) and `repeats` (4) of the repeated prompts; `length` (80) of the prompts in whose second half attention
    to the nearest `neighbours` (1) is measured; 100 prompts.
    """
    defaults: dict[str, dict[str, Any]] = {
        RECENCY: {"length": 4 * train_length, "points": train_length, "repeats": 4, "examples": 64},
        DUPLICATES: {"length": 8 * train_length, "points": train_length, "noise": None, "resamples": 100},
        MIDDLE: {"length": 8 * train_length, "points": train_length, "positions": 21, "resamples": 100},
        INDUCTION: {"length": 80, "points": 12, "repeats": 4, "neighbours": 1},
    }
    arguments = {"length": length, "examples": examples, **options}
    if unknown := sorted(set(options) - set(OPTIONS[probe])):
        raise ConfigError(
            f"{probe} has no setting {unknown[0]!r}; its settings are: length, examples, {', '.join(OPTIONS[probe])}"
        )
    question: ProbeQuestion = {"probe": probe, "examples": 100, **defaults[probe]}
    question |= {name: value for name, value in arguments.items() if value is not None}
    if probe == DUPLICATES:
        question["noise"] = _noise_counts(question["noise"], question["points"])
    question["seed"] = seed
    for name, value in question.items():
        minimum = 2 if name in ("length", "repeats", "positions") else 1
        if name not in ("probe", "seed", "noise") and (type(value) is not int or value < minimum):
            raise ConfigError(f"{name} must be a whole number of at least {minimum}, got {value!r}")
    if probe == INDUCTION and question["neighbours"] > (limit := question["length"] // 2):
        raise ConfigError(
            f"neighbours must be at most {limit} in prompts of {question['length']} examples, got {question['neighbours']}; use "
            "fewer, or longer prompts"
        )
    return question


def _noise_counts(noise: Sequence[int] | None, points: int) -> list[int]:
    if noise is None:
        noise = range(5, 21) if points > 20 else range(1, max(2, points))
    if not noise or any(type(n) is not int or n < 1 for n in noise):
        raise ConfigError(f"noise must be counts of examples, each at least 1, got {noise!r}")
    return sorted(set(noise))


def require_in_context(run: Run, question: ProbeQuestion) -> None:
    """Raise `ConfigError` if the question does not apply to the run: it has another kind of task, the prompts cannot be built, or
    they are too long for its encoding. Builds no model."""
    if not issubclass(run.task.cls, FunctionTask):
        raise ConfigError(
            f"{question['probe']} needs a run that learns functions in context, got run {run.key[:8]} on {run.task.label}; name a "
            "run of such a task (linear regression, for example)"
        )
    if question["probe"] in (RECENCY, INDUCTION):
        require_attention(run)
    check_lengths(run, sorted(prompt_lengths(question, int(run.task.build().dims)), reverse=True))


def prompt_lengths(question: ProbeQuestion, dims: int) -> set[int]:
    """Return the lengths of a question's prompts. Raise `ConfigError` if one of them cannot be built."""
    if question["probe"] in (DUPLICATES, MIDDLE):
        return {question["points"], *(len(prompt.examples) for prompt in prompts_of(question, dims))}
    return {question["length"], question["points"] * question["repeats"]}


def prompts_of(question: ProbeQuestion, dims: int) -> list[Prompt]:
    """Return the prompts of `duplicates` or `lost-in-the-middle`."""
    parts = Parts(dims, question["points"], question["length"])
    if question["probe"] == DUPLICATES:
        return list(prompts.duplicates(parts, question["noise"]))
    positions = prompts.positions(question["length"], question["positions"])
    curve = [prompts.duplicate_prompt(question["length"], position) for position in [*positions, None]]
    return [*(prompts.answers_prompt(parts, where) for where in WHERE), *curve]


# ---- measurements -------------------------------------------------------------------------------------------------


def measure_in_context(trained: TrainedRun, question: ProbeQuestion, on_progress: OnProgress = None) -> dict[str, Any]:
    """Return the result of an `in_context_question`, with these entries:

    recency: `layers` [layer][head][key], the mean weights of the last x on the y's before it over the prompts, the farthest first;
    key j of n examples is at j / (n − 1). `last`: the last layer's weights [head][key] on the x's, in prompts of the training
    length (`trained`), of `length` (`long`) and of repeated points (`repeated`).
    duplicates, lost-in-the-middle: `prompts`, each with its `kind` and `at`, the range of scored examples (`start`, `stop`), their
    mean `score`, its means over `groups` of prompts, and its interval (`low`, `high`). `curve` has the same for each example of the
    prompt, except for prompts with one duplicate, which is the last of the points among copies of the second to last. Intervals
    are the 2.5 to 97.5 percentiles of a bootstrap over prompts.
    induction: `induction` and `nearest` [layer][head] as in `recency.induction` and `recency.nearest`; `uniform`: the same for
    equal weights; `prefix_score` and `nearest_score` as published, the means over all layers and heads (the former of the weights
    on single occurrences, so it is at most 2 / `repeats`).
    """
    start, device = time.perf_counter(), next(trained.model.parameters()).device
    measure = {RECENCY: _recency, DUPLICATES: _scores, MIDDLE: _scores, INDUCTION: _induction}[question["probe"]]
    with torch.no_grad(), reproducible(device):
        result = measure(trained, question, device, on_progress)
    return {**result, "n": question["examples"], "seconds": round(time.perf_counter() - start, 3)}


def _recency(
    trained: TrainedRun, question: ProbeQuestion, device: torch.device, on_progress: OnProgress
) -> dict[str, Any]:
    train_length, points = trained.run.training.train_length, question["points"]
    repeated = torch.tensor(prompts.repeated_prompt(points, question["repeats"]).examples)
    layers: list[Any] = []
    last = {}
    for name, length in (("trained", train_length), ("long", question["length"]), ("repeated", points)):
        xs, ys = _examples(trained, question, length)
        if name == "repeated":
            xs, ys = xs[:, repeated], ys[:, repeated]
        sums: list[Tensor] = []
        for batch, positions in _batches(trained, question, xs, ys, device, TOKENS):
            weights = [
                part.sum(0).cpu() for part in recency.last_question_weights(trained.model, batch.inputs, positions)
            ]
            sums = [a + b for a, b in zip(sums, weights, strict=True)] if sums else weights
            _report(on_progress, len(batch) / 3)
        means = torch.stack(sums) / question["examples"]
        if name == "long":
            layers = _numbers(recency.on_labels(means))
        last[name] = _numbers(recency.on_inputs(means[-1]))
    return {"layers": layers, "last": last, "train_length": train_length}


def _induction(
    trained: TrainedRun, question: ProbeQuestion, device: torch.device, on_progress: OnProgress
) -> dict[str, Any]:
    points, repeats = question["points"], question["repeats"]
    start = question["length"] // 2 + 1
    repeated = torch.tensor(prompts.repeated_prompt(points, repeats).examples)
    shares: dict[str, Tensor] = {}
    uniform: dict[str, float | None] = {}
    for name, length in (("induction", points), ("nearest", question["length"])):
        xs, ys = _examples(trained, question, length)
        if name == "induction":
            xs, ys = xs[:, repeated], ys[:, repeated]
        parts, uniform_sum = [], 0.0
        for batch, positions in _batches(trained, question, xs, ys, device, TOKENS):
            if name == "induction":
                mass = recency.induction(trained.model, batch.inputs, points, positions)
            else:
                mass = recency.nearest(trained.model, batch.inputs, start, question["neighbours"], positions)
            parts.append(mass.shares.cpu())
            uniform_sum += mass.uniform * len(batch)
            _report(on_progress, len(batch) / 2)
        shares[name] = torch.cat(parts, 1).mean(1)
        uniform[name] = _number(uniform_sum / question["examples"])
    return {
        **{name: _numbers(values) for name, values in shares.items()},
        "uniform": uniform,
        # Repeats 2, 3, ... have 1, 2, ... earlier occurrences: R (R − 1) / 2 pairs for R − 1 queries.
        "prefix_score": _number(float(shares["induction"].mean()) * 2 / repeats),
        "nearest_score": _number(float(shares["nearest"].mean())),
        "start": start,
    }


def _scores(
    trained: TrainedRun, question: ProbeQuestion, device: torch.device, on_progress: OnProgress
) -> dict[str, Any]:
    task = cast(FunctionTask, trained.task)
    all_prompts = prompts_of(question, task.dims)
    resamples = _resamples(question)
    xs, ys = _examples(trained, question, question["points"])
    results = []
    for prompt in all_prompts:
        examples = torch.tensor(prompt.examples) + (question["points"] - 2 if prompt.kind == "serial" else 0)
        parts = []
        for batch, positions in _batches(trained, question, xs[:, examples], ys[:, examples], device, SCORING_TOKENS):
            inputs = batch.inputs
            logits = trained.model(inputs) if positions is None else trained.model(inputs, positions=positions)
            parts.append(task.curve(logits, batch).cpu())
            _report(on_progress, len(batch) / len(all_prompts))
        results.append(_prompt_result(prompt, torch.cat(parts).double(), resamples))
    return {"prompts": results, "metric": task.metric, "better": task.better}


def _prompt_result(prompt: Prompt, values: Float[Tensor, "b n"], resamples: Int[Tensor, "r b"]) -> dict[str, Any]:
    scores = values[:, prompt.start : prompt.stop].mean(1)
    low, high = interval(scores[:, None], resamples)
    data: dict[str, Any] = {"kind": prompt.kind, "at": prompt.at, "start": prompt.start, "stop": prompt.stop}
    data |= {"score": _number(float(scores.mean())), "low": _number(float(low)), "high": _number(float(high))}
    data["groups"] = _numbers(torch.stack([part.mean() for part in scores.tensor_split(min(GROUPS, len(scores)))]))
    if prompt.kind != "serial":
        low, high = interval(values, resamples)
        data["curve"] = {"mean": _numbers(values.mean(0)), "low": _numbers(low), "high": _numbers(high)}
    return data


def interval(
    values: Float[Tensor, "b n"], resamples: Int[Tensor, "r b"]
) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
    """Return the 2.5 and 97.5 percentiles of the means of resamples. Each row of `resamples` has the indices of its prompts."""
    counts = torch.nn.functional.one_hot(resamples, len(values)).sum(1).double()
    low, high = torch.quantile(counts @ values.double() / len(values), torch.tensor([0.025, 0.975]).double(), 0)
    return low, high


def _resamples(question: ProbeQuestion) -> Int[Tensor, "r b"]:
    """Return the indices of the prompts in each resample, which are the same for every run with the same question."""
    rng = generator(question["seed"], "bootstrap", question["examples"])
    return torch.randint(question["examples"], (question["resamples"], question["examples"]), generator=rng)


# ---- examples -----------------------------------------------------------------------------------------------------


def _examples(trained: TrainedRun, question: ProbeQuestion, length: int) -> tuple[Tensor, Tensor]:
    """Return xs and ys of the test prompts with this length."""
    task = cast(FunctionTask, trained.task)
    return task.examples_of(task.examples(question["seed"], question["examples"], length, "test"))


def _batches(
    trained: TrainedRun, question: ProbeQuestion, xs: Tensor, ys: Tensor, device: torch.device, tokens: int
) -> Iterator[tuple[Batch, Tensor | None]]:
    """Yield batches of prompts with at most `tokens` tokens, and the tokens' position IDs."""
    prompts_batch = cast(FunctionTask, trained.task).pack(xs, ys)
    position_ids = position_scheme_for(trained.task, trained.run.training.positions).positions(
        prompts_batch.inputs, None, generator(question["seed"], "layout", xs.shape[1]), training=False
    )
    size = max(1, tokens // prompts_batch.inputs.shape[1])
    for start in range(0, len(prompts_batch), size):
        rows = slice(start, start + size)
        yield prompts_batch[rows].to(device), None if position_ids is None else position_ids[rows].to(device)


def _report(on_progress: OnProgress, examples: float) -> None:
    if on_progress is not None:
        on_progress(examples)


def _numbers(values: Tensor) -> list[Any]:
    return [_numbers(row) for row in values] if values.ndim > 1 else [_number(value) for value in values.tolist()]


def _number(value: float) -> float | None:
    """Return the value with six significant digits, which suffice for the report, or None if it is not finite."""
    return float(f"{value:.6g}") if math.isfinite(value) else None
