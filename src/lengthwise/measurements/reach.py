"""How far a causal language model reaches: cross-entropy, retrieval and Boolean functions at growing lengths."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from lengthwise.config import ConfigError
from lengthwise.measurements.base import (
    Chart,
    Column,
    Measurement,
    Number,
    Numbers,
    OnProgress,
    Options,
    key,
    note,
    option,
    value,
)
from lengthwise.measurements.table import Row, Table
from lengthwise.values import near_miss

if TYPE_CHECKING:
    from lengthwise.reach.measure import MeasuredModel

OWN = "own"  # the method that leaves the model as transformers computes it
TEXT = "text"  # the task that measures cross-entropy
FUNCTIONS = "functions"  # the task with Boolean functions in prompts, whose lengths are numbers of examples
RETRIEVAL = {
    "needle": "one needle",
    "keys": "one of 4 keys",
    "values": "all of 4 values of one key, in order",
    "variables": "variable tracking over 3 assignments",
    "copying": "copying a passage of 12 words",
}
WITH_DEPTH = ("needle", "keys", "copying")  # measured at several depths of the sentence that is asked for
KINDS = ("standard", "duplicated", "noise")
HEADLINE = "text and needle"
MARGIN = 0.05  # nats per token
PASS = 0.8  # share of correct answers


@dataclass(frozen=True, kw_only=True)
class ReachOptions(Options):
    """Lengths, tasks and methods, with numbers of examples. A file belongs to one such question and one model."""

    lengths: tuple[int, ...] = option(
        "Lengths in tokens, comma-separated; 1k is 1,024. The shortest should be one that the model surely handles, "
        "because the others are compared with it.",
        (1024, 2048, 4096, 8192),
        shown="1k,2k,4k,8k",
    )
    tasks: tuple[str, ...] = option(
        "What to measure, comma-separated. text is cross-entropy; needle, keys, values, variables and copying are "
        "retrieval tasks; functions are Boolean functions to learn from the examples of a prompt.",
        (TEXT, *RETRIEVAL),
        shown=",".join((TEXT, *RETRIEVAL)),
    )
    methods: tuple[str, ...] = option(
        "own (the model as it is), and encodings to put in place of its own: own,pi:factor=4,yarn:factor=4.",
        (OWN,),
        shown=OWN,
    )
    examples: int = option("Examples of each task, length and depth.", 10)
    targets: int = option(
        "Tokens at the end of each text whose cross-entropy is compared. They are the same at every length.", 64
    )
    depths: int = option(
        "Number of depths at which retrieval tasks place a sentence, from the beginning of the text to its end.", 5
    )
    seed: int = option("Seed of names, numbers, passages and functions.", 0, minimum=None)
    chat: bool = option(
        "Put the prompts of retrieval tasks into the tokenizer's chat template, for models that were trained with one.",
        False,
        shown="no",
    )
    dtype: Literal["float32", "bfloat16", "float16"] = option("Data type of the weights.", "float32")
    functions: tuple[str, ...] = option(
        "Classes of Boolean functions for the task functions, comma-separated, optionally with settings.",
        (),
        shown="all",
    )
    dims: int = option("Bits of an input of the task functions.", 8)
    shots: tuple[int, ...] = option(
        "Numbers of examples before the question of the task functions, comma-separated.",
        (0, 5, 10, 20, 40),
        shown="0,5,10,20,40",
        minimum=0,
    )
    prompts: tuple[str, ...] = option(
        "Kinds of prompts of the task functions, comma-separated. standard: independent examples. duplicated: one "
        "example repeated, whose input is also the question. noise: the second half of the examples repeats one "
        "example.",
        KINDS[:2],
        shown=",".join(KINDS[:2]),
    )
    form: Literal["auto", "mpt", "llama-2", "plain"] = option(
        "Prompt template of the task functions. mpt and llama-2 (a chat with [INST] <<SYS>>): those in the thesis “How "
        "Do Position Encodings Affect Length Generalization?”. plain: that of Bhattamishra et al. 2023. auto: llama-2 "
        "for Llama "
        "models and mpt for all others.",
        "auto",
    )
    text_sha256: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("lengths", "shots"):
            object.__setattr__(self, name, tuple(sorted(set(getattr(self, name)))))
        _require_known("task", self.tasks, (TEXT, *RETRIEVAL, FUNCTIONS))
        _require_known("kind of prompts", self.prompts, KINDS)
        for name in ("lengths", "tasks", "methods", "shots", "prompts"):
            if not getattr(self, name):
                raise ConfigError(f"{name} must not be empty; name at least one, or omit the option")
        if TEXT in self.tasks and self.lengths[0] < self.targets + 2:
            raise ConfigError(
                f"lengths must be at least {self.targets + 2} for {self.targets} targets, got {self.lengths[0]}; take "
                "longer ones, or fewer targets"
            )
        if self.chat and not set(self.tasks) & set(RETRIEVAL):
            raise ConfigError(
                "--chat changes only retrieval tasks; name one in --tasks, such as needle, or omit --chat"
            )

    @property
    def reads_text(self) -> bool:
        return set(self.tasks) != {FUNCTIONS}

    def to_data(self) -> dict[str, Any]:
        """Return what is stored: the options that the tasks need."""
        of_functions = ("functions", "dims", "shots", "prompts", "form")
        unused = set() if FUNCTIONS in self.tasks else set(of_functions)
        unused |= set() if self.reads_text else {"lengths", "text_sha256"}
        unused |= set() if TEXT in self.tasks else {"targets"}
        unused |= set() if set(self.tasks) & set(RETRIEVAL) else {"depths", "chat"}
        return {name: cell for name, cell in super().to_data().items() if name not in unused}

    def depths_of(self, task: str) -> tuple[float | None, ...]:
        """Return the depths of a task as shares of the text; a task without a depth has one entry, None."""
        if task not in WITH_DEPTH:
            return (None,)
        return tuple(n / (self.depths - 1) for n in range(self.depths)) if self.depths > 1 else (0.5,)


def _require_known(what: str, names: Sequence[str], known: Sequence[str]) -> None:
    for name in names:
        if name not in known:
            raise ConfigError(
                f"there is no {what} {name[:40]!r}{near_miss(name, known)}; available: {', '.join(known)}"
            )


def _scores(task: str, y: str, title: str, text: str) -> Chart:
    return Chart(
        kind="lines",
        title=title,
        x="length",
        y=y,
        where={"task": task, "depth": None, "position": None},
        from_zero=task != TEXT,
        across="tokens that the model reads",
        about=text,
    )


def _by_length(y: str, **where: Any) -> Number:
    return Number(head="{length:,}", y=y, by=("length",), where={"position": None, **where})


class Reach(Measurement):
    """How far a causal language model reaches: cross-entropy and retrieval at growing lengths. Measured by
    `lengthwise reach`.

    `text` is the cross-entropy of the same tokens at every length. The retrieval tasks ask for sentences in the text,
    and `functions` for Boolean functions that the examples of a prompt show.
    """

    name = "reach"
    Options: ClassVar[type[Options]] = ReachOptions
    columns: ClassVar[tuple[Column, ...]] = (
        key("method"),
        key("task"),
        key("length", unit="tokens", whole=True),
        key("depth", "depth of the sentence", percent=True),
        key("position", "first position", whole=True),
        key("function"),
        key("prompts", "kind of prompts"),
        key("shots", "examples before the question", whole=True),
        key("program", "other program"),
        key("not_reached", "length that was not reached"),
        value("loss", "cross-entropy", "nats per token", groups="losses"),
        value("correct", "share of correct answers", bounds=(0.0, 1.0), examples="n"),
        value("constant", "accuracy of the more frequent label", bounds=(0.0, 1.0)),
        value("mass", "probability of both labels", bounds=(0.0, 1.0)),
        note("effective", "effective length"),
        note("n", "number of examples"),
        note("losses", "cross-entropy of each text"),
        note("answers", "1 for each correct answer, 0 for each wrong one"),
        note("labels", "correct labels"),
        note("log_probabilities", "log-probabilities of the labels 0 and 1"),
        note("tokens", "tokens of the longest prompt"),
        note("form", "prompt template"),
        note("bins", "first positions of ranges of positions"),
        note("bin_tokens", "tokens in each range of each text"),
        note("bin_losses", "cross-entropy of each text in each range"),
        note("seconds"),
        note("reason", "why a length was not reached, or why there are no flags"),
        note("flags", "flags with which the other program computes the method"),
    )
    charts = (
        _scores(
            TEXT,
            "loss",
            "Cross-entropy of the same targets",
            "The cross-entropy of the last tokens of each text. They are the same at every length, and only the text "
            "before them grows. Cross-entropies are per token of each model's own tokenizer, so compare them between "
            "models with the same tokenizer only.",
        ),
        *(
            _scores(
                task,
                "correct",
                f"Retrieval: {about}",
                "An answer is correct if greedy decoding gives all of its tokens.",
            )
            for task, about in RETRIEVAL.items()
        ),
        Chart(
            kind="curves",
            title="Cross-entropy by position",
            x="position",
            y="loss",
            where={"task": TEXT},
            across="first position of a range of positions",
            about="At the longest length that was measured. The first range begins at 0.",
        ),
        *(
            Chart(
                kind="lines",
                title=f"Boolean functions: {kind} prompts",
                x="shots",
                y="correct",
                where={"task": FUNCTIONS, "prompts": kind},
                about="The share of correct labels, over all functions.",
            )
            for kind in KINDS
        ),
    )
    tables = (
        Numbers(
            title="Effective length",
            numbers=(Number(head="{task}", y="effective", by=("task",)),),
            about="The longest length up to which a non-increasing curve through the scores passes, with its 95 % "
            f"interval. The cross-entropy of the same target tokens passes up to {MARGIN:g} nats above that of the "
            f"model as it is at the shortest tested length, and a retrieval task with at least {PASS:.0%} of the "
            "answers correct. Scores between tested lengths are interpolated. Intervals are over examples and say "
            "nothing about other texts.",
        ),
        Numbers(
            title="Cross-entropy by length",
            numbers=(_by_length("loss", task=TEXT),),
        ),
        Numbers(
            title="Retrieval: share of correct answers by length",
            numbers=(_by_length("correct", depth=None),),
            rows=("task",),
        ),
        Numbers(
            title="Retrieval by depth of the sentence",
            numbers=(_by_length("correct"),),
            rows=("task", "depth"),
            on_page_only=True,
        ),
        Numbers(
            title="Cross-entropy by position, from this position to the next",
            numbers=(Number(head="{position:,}", y="loss", by=("position",)),),
            on_page_only=True,
        ),
        *(
            Numbers(
                title=f"Boolean functions: {title} by number of examples in the prompt",
                numbers=(Number(head="{shots:,}", y=y, by=("shots",)),),
                rows=("function", "prompts"),
                about=about,
            )
            for y, title, about in (
                ("correct", "share of correct labels", ""),
                ("constant", "share of the more frequent label", "A constant prediction has this accuracy."),
                ("mass", "mean probability of both labels together", "Near 0, the model predicts other text."),
            )
        ),
        Numbers(
            title="Not reached on the machine of the measurement",
            numbers=(Number(head="reason", y="reason", by=()),),
            rows=("not_reached",),
        ),
        Numbers(
            title="Flags with which other programs compute these methods in the original model",
            numbers=(Number(head="flags", y="flags"), Number(head="why there are none", y="reason")),
            rows=("program",),
            on_page_only=True,
        ),
    )
    chapter = "How far do these models reach?"
    command = "lengthwise reach FOLDER"
    series = "method"

    def label(self, subject: Mapping[str, Any], value: Any) -> str:
        return str(subject["name"]) if value == OWN else f"{subject['name']}, {value}"

    def derive(self, answer: Table, facts: Mapping[str, Any]) -> Table:
        """Add scores over all depths, cross-entropies by position at the longest length, and effective lengths.

        A reason why a length was not reached is left out if the length was measured by a later call.
        """
        rows: list[Row] = []
        reasons: dict[tuple[str, str], Row] = {}
        measured: dict[tuple[str, str], dict[int, list[Row]]] = {}  # method and task, then length
        for row in answer:
            is_length = row.get("length") is not None
            at = f"{row['length']:,} tokens" if is_length else f"{row.get('shots')} examples"
            if row.get("program") is None and row.get("reason"):
                reasons[row["method"], at] = row | {"not_reached": at}
                continue
            reasons.pop((row["method"], at), None)
            rows.append(row)
            if is_length:
                measured.setdefault((row["method"], row["task"]), {}).setdefault(row["length"], []).append(row)
        for (method, task), lengths in measured.items():
            about = {"method": method, "task": task}
            if task in WITH_DEPTH:
                rows += [about | {"length": n, "correct": _share(own), "n": own[0]["n"]} for n, own in lengths.items()]
            if task == TEXT:
                (longest,) = lengths[max(lengths)]
                cells = zip(longest["bins"], longest["bin_losses"], longest["bin_tokens"], strict=True)
                for start, losses, tokens in cells:
                    mean = math.fsum(losses) / len(losses)
                    rows.append(about | {"position": start, "loss": mean, "losses": losses, "tokens": tokens})
        order = {task: n for n, task in enumerate((HEADLINE, TEXT, *RETRIEVAL, FUNCTIONS, None))}
        rows += [*reasons.values(), *_effective_lengths(measured)]
        return Table.from_rows(sorted(rows, key=lambda row: (order[row.get("task")], row.get("length") or 0)))

    def measure(self, model: "MeasuredModel", options: ReachOptions, progress: OnProgress) -> Iterator[Row]:
        """Yield a row for each task, method, length and depth, other programs' flags, and what was not reached."""
        yield from model.measure()


def _share(rows: Sequence[Row]) -> float:
    """Return the share of correct answers at all depths, which have the same text and names: one example."""
    answers = [answer for row in rows for answer in row["answers"]]
    return math.fsum(answers) / len(answers)


def _effective_lengths(measured: Mapping[tuple[str, str], Mapping[int, Sequence[Row]]]) -> Iterator[Row]:
    """Yield the effective length of each method for each task, and the smaller one of cross-entropy and one needle.

    The losses of the task text are compared with those of the model as it is at the shortest length, or with those of
    the method itself if that was not measured. A task with fewer depths at a length than at another one was interrupted
    there, so only shorter lengths count.
    """
    from lengthwise.analysis.estimates import Estimate, interval_of
    from lengthwise.analysis.statistics import EffectiveLength, longest_passing

    def lengths_of(method: str, task: str) -> list[int]:
        counts = {length: len(rows) for length, rows in sorted(measured[method, task].items())}
        return list(itertools.takewhile(lambda length: counts[length] == max(counts.values()), counts))

    def of_task(method: str, task: str, lengths: Sequence[int]) -> EffectiveLength:
        parts = [measured[method, task][length] for length in lengths]
        if task != TEXT:  # with Wilson's intervals alone
            shares = [Estimate(mean=_share(rows), standard_error=0.0, n=rows[0]["n"]) for rows in parts]
            return longest_passing(lengths, [interval_of([one], share=True) for one in shares], PASS, "higher")
        (own,) = measured.get((OWN, TEXT), {}).get(lengths[0], parts[0])
        changes = [[a - b for a, b in zip(row["losses"], own["losses"], strict=True)] for (row,) in parts]
        means = [Estimate(mean=math.fsum(texts) / len(texts), groups=tuple(texts)) for texts in changes]
        return longest_passing(lengths, [interval_of([one]) for one in means], MARGIN, "lower")

    for method in dict.fromkeys(method for method, _ in measured):
        tasks = {task: (task,) for other, task in measured if other == method}
        both = {HEADLINE: (TEXT, "needle")} if {TEXT, "needle"} <= set(tasks) else {}
        for name, of_name in {**both, **tasks}.items():
            if lengths := min((lengths_of(method, task) for task in of_name), key=len):
                of_tasks = [of_task(method, task, lengths) for task in of_name]
                known = not any(math.isnan(one.low) for one in of_tasks)
                low, high = (
                    min(getattr(one, end) for one in of_tasks) if known else math.nan for end in ("low", "high")
                )
                shorter = replace(min(of_tasks, key=lambda one: one.value), low=low, high=high)
                interval = shorter.interval_text or "no interval"
                yield {"method": method, "task": name, "effective": f"{shorter.text} ({interval})"}
