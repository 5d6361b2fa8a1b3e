"""Probes of a store's runs: who is compared with whom, and that nothing is asked twice."""

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from lengthwise.config import ConfigError, EvaluationConfig, ModelConfig, TrainingConfig
from lengthwise.measurements import PROBES, Table
from lengthwise.store import StoreError, open_store
from lengthwise.studies import Study, grid, probing
from lengthwise.training import train
from tests.made_answers import score_answer

ATTENDED, DISTANCE = PROBES["attended-distance"], PROBES["attention-distance"]
MODEL = ModelConfig(d_model=16, num_layers=2, num_heads=2)
TRAINING = TrainingConfig(train_length=4, steps=2, batch_size=2)


def study(seeds: int = 3, encodings=("nope", "rope"), name: str = "s") -> Study:
    runs = grid(encodings, ["copy"], seeds, training=TRAINING, model=MODEL)
    return Study(name=name, runs=runs, evaluation=EvaluationConfig(lengths=(4, 8), examples=4))


def fill(store, folder: Path, of: Study, without=()) -> None:
    """As if the study had run: weights in the folder, rows in the store."""
    store.add_study(**of.metadata(), runs=of.rows())
    for run in of.runs:
        if (run.label, run.seed) in without:
            continue
        train(run, folder / "runs" / run.key)
        row = store.claim(of.name, "elsewhere:1:w")
        store.add_answers(row.key, [score_answer(q, 0.0, 4) for q in row.questions], worker="elsewhere:1:w")
        store.finish(row.key, "elsewhere:1:w", {})


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("results")
    with open_store(folder) as store:
        fill(store, folder, study())
    return folder


def named(pairs):
    return [(a.label, a.seed, b.label, b.seed) for a, b in pairs]


def test_partners_of_a_study(folder):
    with open_store(folder) as store:
        pairs, left_out = probing.partners(store.runs("s"), "nope")
    ring = [("NoPE", 0, "NoPE", 1), ("NoPE", 1, "NoPE", 2), ("NoPE", 2, "NoPE", 0)]
    assert sorted(named(pairs)) == sorted(ring + [("RoPE", seed, "NoPE", seed) for seed in range(3)])
    assert left_out == []


def test_runs_of_a_task_by_its_settings_or_its_label(tmp_path):
    """Whatever is not said is as usual; of a text its bytes count, and not where it lies."""
    one, same, other = (tmp_path / name for name in ("one", "same", "other"))
    for path in (one, same, other):
        path.mkdir()
        (path / "a.txt").write_text("something else" * 99 if path == other else "to be or not to be " * 99)
    words = ["addition", "addition:scratchpad=full", "addition:scratchpad=full,zeros=published", f"text:path={one}"]
    words.append(f"text:path={other}")
    runs = [
        SimpleNamespace(n=n, task=run.task.label, config=json.loads(json.dumps(run.to_data())))
        for n, run in enumerate(grid(["nope"], words, 1, training=TRAINING, model=MODEL))
    ]

    def found(word):
        return [run.n for run in probing.runs_with_task(runs, word, "s")]

    assert [found(word) for word in words] == [[0], [1], [2], [3], [4]]
    assert found("Addition(scratchpad=full)") == found("ADDITION:scratchpad=full") == [1]
    assert found(f"text:path={same}") == [3]
    assert found("Text") == [3, 4]
    with pytest.raises(ConfigError, match=r"no run of Addition\(scratchpad=minimal\); did you mean 'Addition"):
        found("addition:scratchpad=minimal")
    with pytest.raises(ConfigError, match="'addition:scratchpad=full,scratchpad=none' sets"):
        found("addition:scratchpad=full,scratchpad=none")


def test_partners_across_seeds(folder):
    with open_store(folder) as store:
        runs = store.runs("s")
        pairs, _ = probing.partners(runs, "nope", across_seeds=True)
        assert {pair for pair in named(pairs) if pair[0] == "RoPE"} == {
            ("RoPE", 0, "NoPE", 1),
            ("RoPE", 1, "NoPE", 2),
            ("RoPE", 2, "NoPE", 0),
        }
        rope = next(run for run in runs if (run.label, run.seed) == ("RoPE", 2))
        nope = next(run for run in runs if (run.label, run.seed) == ("NoPE", 2))
        assert probing.partner(rope, runs, "nope").seed == 2
        assert probing.partner(rope, runs, "nope", across_seeds=True).seed == 0
        assert probing.partner(nope, runs, "nope").seed == 0


def test_runs_without_attention_are_left_out_and_why(tmp_path):
    mambas = grid(["nope"], ["copy"], 2, training=TRAINING, model=ModelConfig.mamba(d_model=16, num_layers=2))
    both = dataclasses.replace(study(2), runs=(*study(2).runs, *mambas))
    with open_store(tmp_path) as store:
        fill(store, tmp_path, both)
        runs = store.runs("s")
        pairs, left_out = probing.partners(runs, "nope")
        assert {label for a, _, b, _ in named(pairs) for label in (a, b)} == {"NoPE", "RoPE"}
        assert left_out == list(filter(None, map(probing.unsupported_reason, runs)))
        assert [line.partition(" ")[2] for line in left_out] == [
            f"(Mamba, seed {seed}) has no attention" for seed in (0, 1)
        ]
        mamba = next(run for run in runs if run.label == "Mamba")
        with pytest.raises(ConfigError, match="is Mamba, which has no attention"):
            probing.probe_all(probing.Prober(store), probing.jobs_of_runs(ATTENDED, [mamba], [4]))


def test_two_seeds_of_the_reference_are_one_pair(folder):
    with open_store(folder) as store:
        runs = [run for run in store.runs("s") if run.seed < 2]
        pairs, _ = probing.partners(runs, "nope")
        assert [pair for pair in named(pairs) if pair[0] == "NoPE"] == [("NoPE", 0, "NoPE", 1)]
        one = [run for run in runs if run.seed == 0]
        pairs, left_out = probing.partners(one, "nope")
        assert named(pairs) == [("RoPE", 0, "NoPE", 0)]
        assert "has no finished run of NoPE with its task, model, training and another seed" in left_out[0]
        nope = next(run for run in one if run.label == "NoPE")
        with pytest.raises(ConfigError, match="has no finished run of nope with its task"):
            probing.partner(nope, one, "nope")


def test_only_what_may_be_compared_is_paired(folder):
    with open_store(folder) as store:
        runs = store.runs("s")
    rope = next(run for run in runs if run.label == "RoPE")
    changes = {"task": {"is": "Reverse"}, "model": {**rope.config["model"], "num_layers": 3}}
    for name, value in changes.items():
        other = dataclasses.replace(rope, key="other", config={**rope.config, name: value})
        pairs, left_out = probing.partners([other, *runs], "nope")
        assert "other" not in [run.key for run, _ in pairs]
        assert len(left_out) == 1
    laid_out = {**rope.config, "training": {**rope.config["training"], "positions": {"is": "Shift"}}}
    pairs, _ = probing.partners([dataclasses.replace(rope, key="other", config=laid_out), *runs], "nope")
    assert "other" in [run.key for run, _ in pairs], "a position scheme is compared, as an encoding is"


def test_answers_are_stored_and_not_asked_twice(folder, monkeypatch):
    with open_store(folder) as store:
        pairs, _ = probing.partners(store.runs("s"), "nope")
        items = probing.jobs_of_pairs(DISTANCE, pairs, [4, 6], examples=3) + probing.jobs_of_runs(
            ATTENDED, store.runs("s"), None, examples=3
        )
        assert [item.options.length for item in items if item.against is None] == [8] * 6, "what was never trained"
        told = []
        answers = probing.probe_all(probing.Prober(store), items, lambda item, n: told.append((item, n)))
        assert [answer.job for answer in answers] == items
        assert all(answer.new for answer in answers)
        assert sum(n for _, n in told) == pytest.approx(len(items))
        for answer in answers:
            assert answer.row.key == answer.job.run.key
            assert answer.row.question == answer.job.question
            assert answer.row.facts["versions"]["torch"]
            assert set(Table.from_data(answer.row.rows).column("layer")) == {1, 2}

        monkeypatch.setattr(probing, "load_model", None)  # nothing is loaded for what is known
        again = probing.probe_all(probing.Prober(store), items)
        assert [answer.row for answer in again] == [answer.row for answer in answers]
        assert not any(answer.new for answer in again)


def test_an_interrupted_call_keeps_what_it_has(folder):
    with open_store(folder) as store:
        items = probing.jobs_of_runs(ATTENDED, store.runs("s"), [5], examples=2)
        asker = probing.Prober(store)

        def stop(item, n):
            if item is not items[0]:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            probing.probe_all(asker, sorted(items, key=lambda item: item.run.key), stop)
        known = probing.Prober(store).stored(items)
        assert len(known) < len(items)
        answers = probing.probe_all(probing.Prober(store), items)
        assert sum(answer.new for answer in answers) == len(items) - len(known)


def test_what_cannot_be_asked_is_refused_before_anything_is(tmp_path):
    with open_store(tmp_path) as store:
        fill(store, tmp_path, study(2), without=[("RoPE", 1)])
        runs = {(run.label, run.seed): run for run in store.runs("s")}
        asker = probing.Prober(store)

        def refused(a, b, length=4, **change) -> str:
            a, b = (dataclasses.replace(runs[key], **change) for key in (a, b))
            with pytest.raises((ConfigError, StoreError)) as caught:
                probing.probe_all(asker, probing.jobs_of_pairs(DISTANCE, [(a, b)], [length]))
            assert "\n" not in str(caught.value)
            return str(caught.value)

        assert "is pending, and only a finished run has a trained model" in refused(("RoPE", 1), ("NoPE", 1))
        assert "is pending" in refused(("NoPE", 1), ("RoPE", 1))
        assert "cannot be compared with itself" in refused(("NoPE", 1), ("NoPE", 1))
        (tmp_path / "runs" / runs["NoPE", 0].key / "weights.safetensors").unlink()
        assert "run its study again" in refused(("RoPE", 0), ("NoPE", 0))  # a finished run is not repeated
        assert "was created by another version of lengthwise" in refused(("RoPE", 0), ("NoPE", 1), key="0" * 16)
        no_study = dataclasses.replace(runs["NoPE", 1], questions=[])
        with pytest.raises(ConfigError, match="give the lengths"):
            probing.jobs_of_pairs(DISTANCE, [(no_study, runs["RoPE", 0])], None)
        assert {a.measurement for a in store.answers(run.key for run in runs.values())} == {"scores"}


def test_at_most_two_models_are_kept(folder, monkeypatch):
    most = 0
    real = probing.Prober._trained_run

    def watched(self, row, beside):
        nonlocal most
        found = real(self, row, beside)
        most = max(most, len(self._loaded))
        return found

    monkeypatch.setattr(probing.Prober, "_trained_run", watched)
    with open_store(folder) as store:
        pairs, _ = probing.partners(store.runs("s"), "nope")
        probing.probe_all(probing.Prober(store), probing.jobs_of_pairs(DISTANCE, pairs, [3], examples=2))
    assert most == 2
