"""Turn rows of the store into findings."""

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lengthwise.analysis.answers import summaries
from lengthwise.analysis.differences import LastUse, flat, plain, titles
from lengthwise.analysis.estimates import Estimate, interval_of
from lengthwise.analysis.findings import (
    SHIFTED,
    Baseline,
    Findings,
    Point,
    Published,
    RunInfo,
    Series,
    StudyInfo,
    TaskFindings,
)
from lengthwise.analysis.kinds import shortest_drawn, trained_lengths
from lengthwise.analysis.protocol import (
    canonical,
    encoding_settings,
    first_config,
    first_train_length,
    mixer_of,
    protocol,
    series_of,
    text_path,
)
from lengthwise.analysis.reading import reading
from lengthwise.measurements import MEASUREMENTS
from lengthwise.measurements.scores import OfEvaluation
from lengthwise.metrics import Metric, stored_metric
from lengthwise.store.rows import ScoreRow, Texts
from lengthwise.values import SCORES

RATE = "training.learning_rate"

if TYPE_CHECKING:
    from lengthwise.store import AnswerRow, RunRow, Store, StudyRow


def findings(store: "Store", study: str | None = None) -> Findings:
    """Return the findings of a study, or of all, as the store is in one moment. Runs that no study lists are counted
    (`unlisted`).

    Raises `StoreError` for an unknown study.
    """
    with store.snapshot() as now:
        runs, unlisted = now.runs(study), 0
        studies = [s for s in now.studies() if study is None or s.name == study]
        listed = listing_times(now, studies)
        if study is None:  # in the order of the studies' lists; a run of several studies keeps its first position
            order = {key: n for n, key in enumerate(listed)}
            total, runs = len(runs), sorted((run for run in runs if run.key in order), key=lambda run: order[run.key])
            unlisted = total - len(runs)
        keys = [r.key for r in runs]
        answers = now.answers(keys, *MEASUREMENTS)
        others = {str(a.question["against"]) for a in answers if a.question.get("against")} - set(keys)
        compared = [run for run in now.runs() if run.key in others] if others else []
    return dataclasses.replace(from_rows(studies, runs, answers, compared, listed), unlisted=unlisted)


def listing_times(store: "Store", studies: Iterable["StudyRow"]) -> dict[str, float]:
    """Return when a study last listed each run, in Unix seconds, by key. Runs that no study lists are omitted."""
    times: dict[str, float] = {}
    members = store.members()
    for study in studies:
        for key in members.get(study.name, ()):
            times[key] = max(times.get(key, 0.0), study.updated)
    return times


def metric_of(run: "RunRow") -> Metric:
    """Return the metric of a stored run."""
    return stored_metric(run.metric, run.better, run.facts)


def from_rows(
    studies: Iterable["StudyRow"],
    runs: Sequence["RunRow"],
    answers: Iterable["AnswerRow"],
    compared: Iterable["RunRow"] = (),
    listed: Mapping[str, float] | None = None,
) -> Findings:
    """Return findings from the store's rows, or from objects with the same attributes.

    `compared`: runs of other studies that the answers compare the runs with. `listed`: see `listing_times`.
    """
    known, studies = {run.key: run for run in (*compared, *runs)}, tuple(studies)
    times = {run.key: last_use(run, listed or {}) for run in runs}
    text, rest_text = Texts(canonical), Texts(lambda question: canonical(_without_length(question)))
    scores: dict[tuple[str, str], ScoreRow] = {}
    others: list[AnswerRow] = []
    for answer in answers:
        if answer.measurement == SCORES:
            scores[answer.key, text(answer.question)] = ScoreRow.of(answer)
        elif answer.measurement in MEASUREMENTS:
            others.append(answer)
    panels: dict[Any, _Panel] = {}
    alike: dict[str, dict[str, _Panel]] = defaultdict(dict)  # panels that differ only in the model
    for run in sorted(runs, key=lambda run: mixer_of(run) is not None):
        shared = protocol(run.config)
        rest = {k: v for k, v in shared.items() if k != "model"}
        questions: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {}  # those that differ only in the length
        for requested in run.questions:
            identity = rest_text(requested)
            if identity not in questions:
                questions[identity] = (_without_length(requested), [])
            questions[identity][1].append(requested)
        for question, lengths in questions.values():
            whole_identity, rest_identity = (
                canonical([run.task, run.metric, run.better, run.unit, first_train_length(run), some, question])
                for some in (shared, rest)
            )
            # A model without attention shares no model settings with the others, so it is shown beside all of them.
            matching = (
                alike[rest_identity]
                if mixer_of(run) is not None and alike[rest_identity]
                else {whole_identity: panels.get(whole_identity)}
            )
            for identity, panel in list(matching.items()):
                if panel is None:
                    panel = panels[identity] = alike[rest_identity][identity] = _Panel(
                        run, text_path(run.config) | flat(shared | {"question": question}), canonical(question)
                    )
                panel.add(run, {one["length"]: scores.get((run.key, text(one))) for one in lengths})
    if len(studies) == 1:
        panels = dict(enumerate(_with_chosen_rates(panels.values())))
    task_titles = titles(
        [p.first.task for p in panels.values()],
        [p.settings for p in panels.values()],
        [max(times[key] for key in p.runs) for p in panels.values()],
    )
    return Findings(
        studies=tuple(
            StudyInfo(**_fields(StudyInfo, study), published=Published(**study.published) if study.published else None)
            for study in studies
        ),
        tasks=tuple(
            panel.findings(title, panel.own(others, rest_text), known, times)
            for panel, title in zip(panels.values(), task_titles, strict=True)
        ),
        runs=tuple(RunInfo(**_fields(RunInfo, run), facts=flat(run.facts)) for run in runs),
    )


def _with_chosen_rates(panels: "Iterable[_Panel]") -> "list[_Panel]":
    """Return the panels of one study. Those that differ only in the learning rate are merged if no encoding has two
    rates there, because then the study has chosen one for each encoding."""
    alike: dict[str, list[_Panel]] = defaultdict(list)
    for panel in panels:
        alike[panel.without_rate()].append(panel)
    merged = []
    for first, *others in alike.values():
        every = [series for panel in (first, *others) for series in panel.encodings]
        if len(set(every)) < len(every):
            merged += [first, *others]
            continue
        for other in others:
            first.merge(other)
        merged.append(first)
    return merged


def _without_length(question: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in question.items() if name != "length"}


def _fields(info: Any, row: Any) -> dict[str, Any]:
    """Return the attributes of a row that a dataclass has under the same name, without those that need a conversion."""
    names = {field.name for field in dataclasses.fields(info)} - {"facts", "published"}
    return {name: getattr(row, name) for name in names}


class _Panel:
    """The runs whose scores may be compared: the same task, protocol and question."""

    def __init__(self, first: "RunRow", settings: dict[str, Any], question: str):
        """`question`: without its length, as canonical JSON."""
        self.first, self.settings, self.question, self.metric = first, settings, question, metric_of(first)
        self.train_length = first_train_length(first)
        self.runs: dict[str, RunRow] = {}
        self.lengths: set[int] = set()
        self.scores: dict[str, dict[int, list[tuple[RunRow, ScoreRow]]]] = {}
        self.encodings: dict[str, RunRow] = {}
        self.rates: dict[float, list[str]] = {}  # the encodings of each learning rate, if there are several

    def without_rate(self) -> str:
        """Return what identifies the panel, except for the learning rate."""
        settings = {name: value for name, value in self.settings.items() if name != RATE}
        return canonical([self.first.task, self.first.metric, self.first.unit, RATE in self.settings, settings])

    def merge(self, other: "_Panel") -> None:
        """Add the runs of a panel that differs in its learning rate alone and has none of these encodings."""
        for panel in (self, other):
            if not panel.rates:
                panel.rates[panel.settings[RATE]] = [run.label for run in panel.encodings.values()]
        self.settings.pop(RATE, None)
        self.rates |= other.rates
        self.lengths |= other.lengths
        self.runs |= other.runs
        self.scores |= other.scores
        self.encodings |= other.encodings

    def add(self, run: "RunRow", scores: Mapping[int, ScoreRow | None]) -> None:
        """Add a run with its scores by length, None for those that it does not have yet."""
        self.runs[run.key] = run
        self.lengths.update(scores)
        series = series_of(run)
        self.encodings.setdefault(series, run)
        by_length = self.scores.setdefault(series, defaultdict(list))
        for length, score in scores.items():
            if score is not None:
                by_length[length].append((run, score))

    def own(self, answers: Iterable["AnswerRow"], rest_text: Texts) -> list["AnswerRow"]:
        """Return the answers to show: those of the evaluation that belong to these questions, and those of probes.

        Probes use the task as it was trained, and are shown there.
        """
        shifted = any(name.startswith(SHIFTED) for name in self.settings)
        return [
            answer
            for answer in answers
            if (
                rest_text(answer.question) == self.question and answer.question["length"] in self.lengths
                if isinstance(MEASUREMENTS[answer.measurement], OfEvaluation)
                else not shifted
            )
        ]

    def findings(
        self,
        title: str,
        answers: Sequence["AnswerRow"],
        known: Mapping[str, "RunRow"],
        times: Mapping[str, LastUse],
    ) -> TaskFindings:
        runs = list(self.encodings.values())
        latest = dict.fromkeys(self.encodings, (0.0, 0.0))
        for run in self.runs.values():
            latest[series_of(run)] = max(latest[series_of(run)], times[run.key])
        labels = titles([r.label for r in runs], [flat(encoding_settings(r)) for r in runs], list(latest.values()))
        first = self.first
        label_of = dict(zip(self.encodings, labels, strict=True))
        of_run = {run.key: label_of[series_of(run)] for run in self.runs.values()}
        series = tuple(
            Series(label=label, encoding=run.encoding, points=points)
            for label, run, points in zip(labels, runs, self.points(), strict=True)
        )
        task = TaskFindings(
            title=title,
            name=first.task,
            metric=self.metric,
            unit=first.unit,
            train_length=self.train_length,
            shortest=shortest_drawn(first_config(first.config), self.train_length),
            trained=trained_lengths(first_config(first.config), self.train_length, first.questions[0]),
            lengths=tuple(sorted(self.lengths)),
            series=series,
            settings=self.settings,
            keys=tuple(self.runs),
            notes=self.notes(),
            answers=summaries(answers, of_run, known, self.metric),
            baselines=self.baselines(),
        )
        done = sum(r.status == "done" for r in self.runs.values())
        return dataclasses.replace(task, reading=reading(task, done))

    def points(self) -> list[tuple[Point, ...]]:
        """Return the points of each encoding, by length."""
        return [
            tuple(
                self.point(length, tuple(_estimate(*row) for row in by_length[length])) for length in sorted(by_length)
            )
            for by_length in self.scores.values()
        ]

    def point(self, length: int, seeds: tuple[Estimate, ...]) -> Point:
        interval = interval_of(seeds, self.metric.limits, share=self.metric.share)
        return Point(length=length, interval=interval, seeds=seeds)

    def baselines(self) -> tuple[Baseline, ...]:
        """Return the baselines that are stored with the scores. All runs have the same examples, so any row will do."""
        scores_by_name: dict[str, dict[int, float]] = {}
        floors: set[str] = set()
        for length, score in self.stored_scores():
            for baseline in score.baselines:
                scores_by_name.setdefault(baseline["name"], {}).setdefault(length, float(baseline["score"]))
                floors |= {baseline["name"]} if baseline["floor"] else set()
        return tuple(
            Baseline(label=name, scores=dict(sorted(scores.items())), floor=name in floors)
            for name, scores in scores_by_name.items()
        )

    def stored_scores(self) -> Iterator[tuple[int, ScoreRow]]:
        """Yield all scores with their lengths."""
        for by_length in self.scores.values():
            for length, rows in by_length.items():
                yield from ((length, score) for _, score in rows)

    def notes(self) -> tuple[str, ...]:
        """Return the task's notes on its scores, each once and by length, and the sizes of models without attention."""
        rows = sorted(self.stored_scores(), key=lambda row: row[0])
        on_scores = [score.note for _, score in rows if score.note]
        others = [run for run in self.encodings.values() if mixer_of(run) is not None and run is not self.first]
        sizes = [
            f"{run.label} has "
            + ", ".join(f"{k} {plain(v)}" for k, v in run.config["model"].items() if v and k != "mixer")
            for run in others
        ]
        return tuple(dict.fromkeys(on_scores + sizes + self._note_on_rates()))

    def _note_on_rates(self) -> list[str]:
        if not self.rates:
            return []
        *few, (common, _) = sorted(self.rates.items(), key=lambda item: len(item[1]))
        listed = "; ".join(f"{plain(rate)} for {', '.join(sorted(labels))}" for rate, labels in few)
        return [f"each encoding has its own learning rate: {listed}; {plain(common)} for all others"]


def _estimate(run: "RunRow", score: ScoreRow) -> Estimate:
    return Estimate(
        key=run.key,
        seed=run.seed,
        mean=score.mean,
        standard_error=score.standard_error,
        n=score.n,
        groups=tuple(score.groups),
    )


def last_use(run: "RunRow", listed: Mapping[str, float]) -> LastUse:
    """Return when a study last listed a run (0 if none does), and when it finished, or else was last started or
    created.

    The first decides which code a study file had last: restored code is current although other code was trained later.
    """
    return listed.get(run.key, 0.0), run.finished or run.started or run.created
