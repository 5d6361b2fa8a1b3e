"""Probes of runs that learn functions in context: which prompts are asked, and the answer as plain data.

`recency` and `induction` look at attention; `duplicates` and `lost-in-the-middle` at scores, so that they go with every model.
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
from lengthwise.probes.prompts import WHERE, Made, Parts
from lengthwise.tasks.base import Batch, generator
from lengthwise.tasks.functions import FunctionTask
from lengthwise.training.numerics import reproducible

RECENCY, DUPLICATES, MIDDLE, INDUCTION = "recency", "duplicates", "lost-in-the-middle", "induction"
IN_CONTEXT = (RECENCY, DUPLICATES, MIDDLE, INDUCTION)
OPTIONS: dict[str, tuple[str, ...]] = {  # beside length, examples and seed
    RECENCY: ("points", "repeats"),
    DUPLICATES: ("points", "noise", "resamples"),
    MIDDLE: ("points", "positions", "resamples"),
    INDUCTION: ("points", "repeats", "neighbours"),
}
FORWARD = 16_384  # places of a forward that is only scored
GROUPS = 40  # of prompts, whose means are kept: what a bootstrap over them needs

Told = Callable[[float], None] | None


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
    """What names the answer to one of the `IN_CONTEXT` probes. Lengths and `points` count examples of a prompt, `examples` counts
    prompts; what is None is as published, for runs trained on 50 examples: 4 or 8 times the trained length.

    recency: `length` of the prompts (200); `points` (50) times `repeats` (4) that of the repeated ones; 64 prompts.
    duplicates, lost-in-the-middle: `length` (400), `points` (50) that the prompts are made of, see `prompts`; counts of `noise`
    (5 to 20); so many `positions` (21) of a duplicate; `resamples` (100) of the bootstrap; 100 prompts.
    induction: `points` (12) times `repeats` (4); `length` (80) of the prompts whose second half looks for its nearest
    `neighbours` (1); 100 prompts.
    """
    usual: dict[str, dict[str, Any]] = {
        RECENCY: {"length": 4 * train_length, "points": train_length, "repeats": 4, "examples": 64},
        DUPLICATES: {"length": 8 * train_length, "points": train_length, "noise": None, "resamples": 100},
        MIDDLE: {"length": 8 * train_length, "points": train_length, "positions": 21, "resamples": 100},
        INDUCTION: {"length": 80, "points": 12, "repeats": 4, "neighbours": 1},
    }
    given = {"length": length, "examples": examples, **options}
    if odd := sorted(set(options) - set(OPTIONS[probe])):
        raise ConfigError(f"{probe} has no setting {odd[0]!r}; it has: length, examples, {', '.join(OPTIONS[probe])}")
    asked: ProbeQuestion = {"probe": probe, "examples": 100, **usual[probe]}
    asked |= {name: value for name, value in given.items() if value is not None}
    if probe == DUPLICATES:
        asked["noise"] = _counts(asked["noise"], asked["points"])
    asked["seed"] = seed
    for name, value in asked.items():
        least = 2 if name in ("length", "repeats", "positions") else 1
        if name not in ("probe", "seed", "noise") and (type(value) is not int or value < least):
            raise ConfigError(f"{name} is {value!r}; it has to be a whole number, at least {least}")
    if probe == INDUCTION and asked["neighbours"] > (most := asked["length"] // 2):
        raise ConfigError(
            f"neighbours is {asked['neighbours']}; in a prompt of {asked['length']} the first x that looks for its nearest has "
            f"{most} before it; take at most {most}, or longer prompts"
        )
    return asked


def _counts(noise: Sequence[int] | None, points: int) -> list[int]:
    if noise is None:
        noise = range(5, 21) if points > 20 else range(1, max(2, points))
    if not noise or any(type(n) is not int or n < 1 for n in noise):
        raise ConfigError(f"noise is {noise!r}; it has to be counts of examples, each at least 1")
    return sorted(set(noise))


def require_in_context(run: Run, asked: ProbeQuestion) -> None:
    """Raise `ConfigError` where the question cannot be put to the run: of another kind, prompts that cannot be made or are beyond
    its encoding. Builds no model."""
    if not issubclass(run.task.make, FunctionTask):
        raise ConfigError(
            f"run {run.key[:8]} is trained on {run.task.label}, and {asked['probe']} is for functions learned in context; name a "
            "run of such a task (linear regression, say)"
        )
    if asked["probe"] in (RECENCY, INDUCTION):
        require_attention(run)
    check_lengths(run, sorted(lengths_of(asked, int(run.task.build().dims)), reverse=True))


def lengths_of(asked: ProbeQuestion, dims: int) -> set[int]:
    """The lengths of the prompts that a question is put with. `ConfigError` where one of them cannot be made."""
    if asked["probe"] in (DUPLICATES, MIDDLE):
        return {asked["points"], *(len(made.examples) for made in made_of(asked, dims))}
    return {asked["length"], asked["points"] * asked["repeats"]}


def made_of(asked: ProbeQuestion, dims: int) -> list[Made]:
    """The prompts of `duplicates` or `lost-in-the-middle`."""
    parts = Parts(dims, asked["points"], asked["length"])
    if asked["probe"] == DUPLICATES:
        return list(prompts.duplicates(parts, asked["noise"]))
    places = prompts.positions(asked["length"], asked["positions"])
    curve = [prompts.serial(asked["length"], place) for place in [*places, None]]
    return [*(prompts.answered(parts, where) for where in WHERE), *curve]


# ---- answers ------------------------------------------------------------------------------------------------------


def ask_in_context(subject: TrainedRun, asked: ProbeQuestion, on_portion: Told = None) -> dict[str, Any]:
    """The answer to an `in_context_question`. Of what it names:

    recency: `layers` [layer][head][key], the weights of the last x on the y's before it, the farthest first, the mean over the
    prompts; key j of n examples is at j / (n − 1). `last`: of the last layer, [head][key], on the x's: in prompts of the trained
    length (`trained`), of `length` (`long`) and of repeated points (`repeated`).
    duplicates, lost-in-the-middle: `prompts`, of each its `kind` and `at`, what is scored (`start`, `stop`), there the `score` with
    the means of `groups` of prompts, and its interval (`low`, `high`); the same for each place (`curve`), but not for a duplicate
    at some position: that is the last of the points amid copies of the last but one. Intervals are of a bootstrap over prompts, 2.5
    to 97.5 percent.
    induction: `induction` and `nearest` [layer][head] as in `recency.induction` and `recency.nearest`; `uniform` what equal weights
    would have; `prefix_score` and `nearest_score` as published, the means over all layers and heads (the former of the weights on
    single occurrences, so that it is at most 2 / `repeats`).
    """
    begin, device = time.perf_counter(), next(subject.model.parameters()).device
    answer = {RECENCY: _recency, DUPLICATES: _scores, MIDDLE: _scores, INDUCTION: _induction}[asked["probe"]]
    with torch.no_grad(), reproducible(device):
        found = answer(subject, asked, device, on_portion)
    return {**found, "n": asked["examples"], "seconds": round(time.perf_counter() - begin, 3)}


def _recency(subject: TrainedRun, asked: ProbeQuestion, device: torch.device, on_portion: Told) -> dict[str, Any]:
    trained, points = subject.run.training.train_length, asked["points"]
    again = torch.tensor(prompts.repeated(points, asked["repeats"]).examples)
    layers: list[Any] = []
    last = {}
    for name, length in (("trained", trained), ("long", asked["length"]), ("repeated", points)):
        xs, ys = _examples(subject, asked, length)
        if name == "repeated":
            xs, ys = xs[:, again], ys[:, again]
        sums: list[Tensor] = []
        for batch, positions in _portions(subject, asked, xs, ys, device, TOKENS):
            weights = [part.sum(0).cpu() for part in recency.last_question(subject.model, batch.inputs, positions)]
            sums = [a + b for a, b in zip(sums, weights, strict=True)] if sums else weights
            _tell(on_portion, len(batch) / 3)
        means = torch.stack(sums) / asked["examples"]
        if name == "long":
            layers = _plain(recency.of_labels(means))
        last[name] = _plain(recency.of_inputs(means[-1]))
    return {"layers": layers, "last": last, "train_length": trained}


def _induction(subject: TrainedRun, asked: ProbeQuestion, device: torch.device, on_portion: Told) -> dict[str, Any]:
    points, repeats = asked["points"], asked["repeats"]
    start = asked["length"] // 2 + 1
    again = torch.tensor(prompts.repeated(points, repeats).examples)
    found: dict[str, Tensor] = {}
    uniform: dict[str, float | None] = {}
    for name, length in (("induction", points), ("nearest", asked["length"])):
        xs, ys = _examples(subject, asked, length)
        if name == "induction":
            xs, ys = xs[:, again], ys[:, again]
        parts, even = [], 0.0
        for batch, positions in _portions(subject, asked, xs, ys, device, TOKENS):
            if name == "induction":
                mass = recency.induction(subject.model, batch.inputs, points, positions)
            else:
                mass = recency.nearest(subject.model, batch.inputs, start, asked["neighbours"], positions)
            parts.append(mass.shares.cpu())
            even += mass.uniform * len(batch)
            _tell(on_portion, len(batch) / 2)
        found[name] = torch.cat(parts, 1).mean(1)
        uniform[name] = _number(even / asked["examples"])
    return {
        **{name: _plain(shares) for name, shares in found.items()},
        "uniform": uniform,
        # Of repeats 2, 3, ... there are 1, 2, ... earlier occurrences: R (R − 1) / 2 pairs for R − 1 queries.
        "prefix_score": _number(float(found["induction"].mean()) * 2 / repeats),
        "nearest_score": _number(float(found["nearest"].mean())),
        "start": start,
    }


def _scores(subject: TrainedRun, asked: ProbeQuestion, device: torch.device, on_portion: Told) -> dict[str, Any]:
    task = cast(FunctionTask, subject.task)
    every = made_of(asked, task.dims)
    chosen = _resamples(asked)
    xs, ys = _examples(subject, asked, asked["points"])
    found = []
    for made in every:
        examples = torch.tensor(made.examples) + (asked["points"] - 2 if made.kind == "serial" else 0)
        parts = []
        for batch, positions in _portions(subject, asked, xs[:, examples], ys[:, examples], device, FORWARD):
            inputs = batch.inputs
            logits = subject.model(inputs) if positions is None else subject.model(inputs, positions=positions)
            parts.append(task.curve(logits, batch).cpu())
            _tell(on_portion, len(batch) / len(every))
        found.append(_scored(made, torch.cat(parts).double(), chosen))
    return {"prompts": found, "metric": task.metric, "better": task.better}


def _scored(made: Made, values: Float[Tensor, "b n"], chosen: Int[Tensor, "r b"]) -> dict[str, Any]:
    own = values[:, made.start : made.stop].mean(1)
    low, high = interval(own[:, None], chosen)
    data: dict[str, Any] = {"kind": made.kind, "at": made.at, "start": made.start, "stop": made.stop}
    data |= {"score": _number(float(own.mean())), "low": _number(float(low)), "high": _number(float(high))}
    data["groups"] = _plain(torch.stack([part.mean() for part in own.tensor_split(min(GROUPS, len(own)))]))
    if made.kind != "serial":
        low, high = interval(values, chosen)
        data["curve"] = {"mean": _plain(values.mean(0)), "low": _plain(low), "high": _plain(high)}
    return data


def interval(
    values: Float[Tensor, "b n"], chosen: Int[Tensor, "r b"]
) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
    """The 2.5 and 97.5 percent points of the means of resamples: each row of `chosen` says which prompts are one."""
    counts = torch.nn.functional.one_hot(chosen, len(values)).sum(1).double()
    low, high = torch.quantile(counts @ values.double() / len(values), torch.tensor([0.025, 0.975]).double(), 0)
    return low, high


def _resamples(asked: ProbeQuestion) -> Int[Tensor, "r b"]:
    """Which prompts each resample has: the same ones for every run that is asked the same."""
    chance = generator(asked["seed"], "bootstrap", asked["examples"])
    return torch.randint(asked["examples"], (asked["resamples"], asked["examples"]), generator=chance)


# ---- prompts ------------------------------------------------------------------------------------------------------


def _examples(subject: TrainedRun, asked: ProbeQuestion, length: int) -> tuple[Tensor, Tensor]:
    """xs and ys of the test prompts of a length."""
    task = cast(FunctionTask, subject.task)
    return task.examples_of(task.examples(asked["seed"], asked["examples"], length, "test"))


def _portions(
    subject: TrainedRun, asked: ProbeQuestion, xs: Tensor, ys: Tensor, device: torch.device, places: int
) -> Iterator[tuple[Batch, Tensor | None]]:
    """Prompts, some at a time, and the positions that their tokens claim."""
    batch = cast(FunctionTask, subject.task).pack(xs, ys)
    drawn = position_scheme_for(subject.task, subject.run.training.positions).positions(
        batch.inputs, None, generator(asked["seed"], "layout", xs.shape[1]), training=False
    )
    size = max(1, places // batch.inputs.shape[1])
    for start in range(0, len(batch), size):
        cut = slice(start, start + size)
        yield batch[cut].to(device), None if drawn is None else drawn[cut].to(device)


def _tell(on_portion: Told, examples: float) -> None:
    if on_portion is not None:
        on_portion(examples)


def _plain(values: Tensor) -> list[Any]:
    return [_plain(row) for row in values] if values.ndim > 1 else [_number(value) for value in values.tolist()]


def _number(value: float) -> float | None:
    """With six digits: a page shows fewer, and there are many. None where it is not finite."""
    return float(f"{value:.6g}") if math.isfinite(value) else None
