"""The page which-encoding.md: which encoding to take for a purpose, from the results of the battery."""

import statistics
from collections import Counter
from collections.abc import Callable, Sequence

from battery_results import (
    LIMIT,
    MEASURED_COSTS,
    NOT_KEPT,
    TaskResult,
    compare_with,
    cost_texts,
    filled,
    labels_of,
    sizes,
    table,
    training_cost,
)

from lengthwise.analysis.statistics.paired import LEVEL
from lengthwise.values import join_names

NAMED = 3  # equally good encodings of a row
CHEAPER = 2  # how many times faster a training step has to be for a cheaper encoding to be shown
EXTENSION_LEVEL = LEVEL / 2  # because the extensions got more seeds after a first look
FAMILIES = {  # by purpose, the tasks that stand for it
    "longer text than in training": ("prose", "code"),
    "exact copying and retrieval": ("copying", "reversing", "recall"),
    "arithmetic and algorithms": ("addition", "sorting", "parity"),
    "learning in context": ("linear regression", "conjunctions"),
    "formal languages": ("even pairs", "stack manipulation", "bucket sort"),
}

GUIDE = """\
For each purpose: what to take, the evidence, what it costs, and what could not be told ([rules](#how-it-is-decided)).
The table is generated from the scores of [the battery](battery.md): {encodings} encodings in small models on {tasks}
tasks, with {seeds} seeds. The models were trained on short inputs and evaluated at up to eight times the length
([tasks](battery.md#tasks)). `1.85 ×` is an [effective length](battery.md#effective-lengths) in training lengths, and
scores are means over all longer lengths.
"""

RULES = """\
- Only tasks count that at least half of the encodings have learned, and on which the best one is clearly better than
  guessing beyond the training length.
- An encoding is **equally good** on a task if its mean score beyond the training length is the best, or is
  [shown to be](battery.md#which-differences-are-significant) at most {limit} worse than the best.
- Of the encodings that are equally good on more than half of the tasks of a purpose, the three with the fastest
  training step are named, the fastest first.
- If there are none, the row names the encoding with the highest mean reciprocal rank by the mean scores, which is 0 on
  tasks that it has not learned. This depends on the choice of tasks, and a cheaper encoding may be as good, but these
  scores do not show it.
- The last column lists encodings that are not significantly worse than the best on more than half of the tasks. That is
  a lack of evidence, and not a recommendation.
- If a training step of others is less than half as long, the one of them with the highest mean reciprocal rank is shown
  as *cheaper*.
- The evidence of a task is the [effective length](battery.md#effective-lengths) in training lengths (×), with its
  interval, and the mean score over all longer lengths with its 95 % interval, of the first encoding that is named.
- A method that extends a trained model is named if it is shown to be better than RoPE itself by more than that
  difference: by the paired t test over {extension_seeds} seeds, corrected by Holm's method for the methods, below 0.025
  (half of 0.05, because two of the seeds were added after a first look). The models were not trained further.
"""

AFTER = """\
Costs are relative to NoPE, at 2,048 tokens on a CPU; `lengthwise bench` measures them on your machine.

**Your model exists already and has RoPE?** Then the question is how to stretch it. `lengthwise extend MODEL` compares
the methods in your model and on your text ([Hugging Face models](huggingface.md)).

**Sums of more digits than in training** need more than an encoding. In the study of
[robust addition](../studies/addition/robust.py), models were trained on sums of two and three digits. None of them had
a sum of four digits right unless hints named the place of each digit, and the encoding was FIRE or the positions were
randomized. Even then no model was reliable ([log](log.md#2026-11-28-robust-addition-on-a-laptop)).

**Before you decide**, run your own text (`--text PATH`) or task. Recall, for example, as in the battery
([settings of its other tasks](../studies/battery/battery_tasks.py)):

```bash
lengthwise compare kerple_log sandwich --task recall:keys=64,values=8,queries=8 --train-length 8 --min-length 2 \\
  --lengths 8,16,32 --d-model 64 --num-layers 2 --num-heads 4 --steps 1000 --learning-rate 0.003 --seeds 3
```

Neither a success nor a failure of these small models shows what a large model will do.
"""


def guide(results: Sequence[TaskResult], others: Sequence[TaskResult], note: str) -> str:
    """Return the guide: for each purpose, what to take, the evidence, the cost, and what could not be told."""
    rows = [purpose(name, [r for r in results if r.title in tasks]) for name, tasks in FAMILIES.items()]
    rows += [extension(others), purpose("no idea yet", results)]
    head = ["for", "take", "evidence", f"costs ({', '.join(MEASURED_COSTS.values())})", "could not be told"]
    rules = filled(RULES.format(limit=LIMIT, extension_seeds=sizes(others)["seeds"]))
    parts = [filled(GUIDE.format(**sizes(results))), table(head, rows), AFTER.strip(), "## How it is decided", rules]
    return "\n\n".join([note, "# Which encoding to take", *parts]) + "\n"


def purpose(name: str, results: Sequence[TaskResult]) -> list[str]:
    """Return the row of the guide for a purpose: equally good encodings by their cost, or the best one by mean."""
    judged = [r for r in results if r.is_judged and r.is_kept]
    unlearned = [r.title for r in results if not r.is_judged]
    lost = [r.title for r in results if r.is_judged and not r.is_kept]
    left_out = [f"fewer than half of the encodings learned {join_names(unlearned)}"] if unlearned else []
    left_out += [f"{NOT_KEPT} on {join_names(lost)}"] if lost else []
    if not judged:
        return [name, "none", "<br>".join(left_out), "", ""]
    ranks = {label: statistics.fmean(r.reciprocal_ranks.get(label, 0.0) for r in judged) for label in labels_of(judged)}
    good = on_most(judged, lambda r: r.as_good)
    if good:
        names = sorted(good, key=lambda label: (training_cost(label), -ranks[label]))[:NAMED]
        counts = [str(good[label]) for label in names]
        numbers = counts[0] if len(set(counts)) == 1 else join_names(counts)
        evidence = [f"{join_names(names)}: the best or equally good on {numbers} of {counted(judged)}"]
    else:
        best, *after = sorted(ranks, key=lambda label: -ranks[label])
        names, second = [best], f" (next: {after[0]}, {ranks[after[0]]:.2f})" if after else ""
        evidence = [f"{best}: a mean reciprocal rank of {ranks[best]:.2f} on {counted(judged)}{second}"]
    evidence += [f"{r.title}: {r.score_text(names[0])}" for r in judged]
    fast = [label for label in ranks if CHEAPER * training_cost(label) < training_cost(names[0])]
    cheaper = max(fast, key=lambda label: ranks[label], default="")
    if cheaper:
        means = [f"{r.title} {r.mean_text(cheaper).partition(' [')[0]}" for r in judged]
        evidence.append(f"cheaper: {cheaper}, with mean scores of {', '.join(means)}")
    undecided = [label for label in on_most(judged, lambda r: r.not_worse) if label not in good and label not in names]
    worse = [r.title for r in judged if names[0] in r.order and names[0] not in {*r.not_worse, *r.as_good}]
    untold = [f"{names[0]} is significantly worse than the best on {join_names(worse)}"] if worse else []
    guessing = [r.title for r in judged if (g := r.best_baseline(floors=True)) and names[0] in r.worse_than(g[1])]
    untold += [f"{names[0]} is worse than guessing on {join_names(guessing)}"] if guessing else []
    failed = [r.title for r in results if r not in judged and r.reasons.get(names[0])]
    untold += [f"{names[0]} has not learned {join_names(failed)}"] if failed else []
    untold += [f"not significantly worse than the best: {join_names(undecided)}"] if undecided else []
    return [name, join_names(names), "<br>".join(evidence), priced([*names, cheaper]), "<br>".join(untold + left_out)]


def on_most(results: Sequence[TaskResult], labels: Callable[[TaskResult], Sequence[str]]) -> dict[str, int]:
    """Return the encodings that are among these labels in more than half of the results, with the number of results."""
    counts = Counter(label for result in results for label in labels(result))
    return {label: count for label, count in counts.items() if count > len(results) / 2}


def extension(others: Sequence[TaskResult]) -> list[str]:
    """Return the row of the guide about encodings that stretch the trained rotations of RoPE without training.

    For each task that RoPE has learned, the one to take is that with the best mean over all longer lengths among those
    that are significantly better than RoPE itself made better by the limit.
    """
    name, taken, evidence, without = "extending a trained RoPE model", dict[str, list[str]](), list[str](), list[str]()
    judged = [result for result in others if "RoPE" in result.order and methods(result)]
    if not judged:
        reason = "RoPE has learned none of the tasks" if others else "`lengthwise run battery/others` is not stored yet"
        return [name, "none", reason, "", ""]
    for result in judged:
        scores = {label: result.scores[label] for label in methods(result)}
        improved = {seed: score - result.sign * result.limit for seed, score in result.scores["RoPE"].items()}
        verdicts = compare_with(improved, scores, result.task.metric.better, EXTENSION_LEVEL)
        better = [label for label in scores if verdicts[label] > 0]
        if not better:
            without.append(result.title)
            continue
        best, *more = better
        also = f"; also shown to be better: {join_names(list(map(method, more)))}" if more else ""
        scored = f"{method(best)} {result.score_text(best)}; RoPE {result.score_text('RoPE')}"
        evidence.append(f"{result.title}: {scored}{also}")
        taken.setdefault(method(best), []).append(result.title)
    untold = [f"no method is shown to be clearly better than RoPE itself on {join_names(without)}"] if without else []
    untold += [loss for label in taken for result in judged if (loss := loss_at_training_length(result, label))]
    untold += ["the methods were not compared with each other", "a model of this size says little about a large one"]
    take = [f"{label} ({join_names(tasks)})" for label, tasks in taken.items()]
    return [name, ", ".join(take) or "none", "<br>".join(evidence), priced(list(taken)), "<br>".join(untold)]


def loss_at_training_length(result: TaskResult, label: str) -> str:
    """Return what a method loses at the training length by more than the limit; nothing if it does not."""
    own, rope = result.mean_at_training_length(f"{label} from RoPE"), result.mean_at_training_length("RoPE")
    if own is None or rope is None or result.sign * (own - rope) <= result.limit:
        return ""
    return f"{label} costs scores at the training length on {result.title}: {rope:.2f} becomes {own:.2f}"


def methods(result: TaskResult) -> list[str]:
    """Return the encodings that were put into trained weights without training, the best mean first."""
    return [label for label in result.order if not any(run["steps"] for run in result.runs_of(label))]


def method(label: str) -> str:
    """Return `YaRN` for `YaRN from RoPE`."""
    return label.removesuffix(" from RoPE")


def counted(results: Sequence[TaskResult]) -> str:
    return f"{len(results)} task{'s' if len(results) > 1 else ''}"


def priced(labels: Sequence[str]) -> str:
    return "<br>".join(f"{label}: {', '.join(cost_texts(label))}" for label in labels if any(cost_texts(label)))
