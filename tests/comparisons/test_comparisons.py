"""`python -m comparisons` compares other libraries with the formulas, and detects wrong implementations.

What needs the libraries is skipped where they are not installed (`pip install '.[outside]'`).
"""

import importlib.metadata
import importlib.util
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from comparisons import answers, tables
from comparisons.__main__ import main
from comparisons.answers import Answer, Verdict, as_data, ask
from comparisons.implementation import Implementation, Model, OurModel, Ours, RowInputs
from comparisons.questions import FLOAT32_TOLERANCE, QUESTIONS, Question, row_inputs
from lengthwise.attention import KVCache, TokenInfo, attend
from lengthwise.config import ConfigError, choose
from lengthwise.conformance.answers import NotApplicable
from lengthwise.encodings import ALiBi, CoPE, DynamicNTK, FoX, LogN, PaTHFoX, RoPE, Wall
from lengthwise.encodings.alibi import slopes

ROOT = Path(__file__).parents[2]
BY_NAME = {question.name: question for question in QUESTIONS}


# ---- an implementation with a fault -----------------------------------------------------------------------------


class Faulty(Implementation):
    """Our own encoding in the place of another library's, with a fault put in."""

    library = "faulty"
    has_our_architecture = True

    def __init__(self, choice: Any = None, *, row: Callable[[Tensor], Tensor] | None = None, fault: str = ""):
        super().__init__("faulty", choice or choose(RoPE))
        self.spoil, self.fault = row or (lambda logits: logits), fault
        self.explanations = {"value at 512": "it was spoiled"}

    def row(self, inputs: RowInputs) -> Tensor:
        return self.spoil(self.our_row(inputs))

    def model(self) -> Model:
        return FaultyModel(self.decoder(), self.fault)


class FaultyModel(OurModel):
    def __init__(self, decoder: Any, fault: str):
        super().__init__(decoder)
        self.fault, self.longest = fault, 0

    @torch.no_grad()
    def forward(self, tokens: Tensor) -> Tensor:
        if self.fault == "too long" and tokens.shape[1] > 32:
            raise IndexError("position 32 of a table of 32")
        if self.fault == "weights":
            self.decoder.norm.weight.mul_(1.1)
        if self.fault == "history":
            self.longest = max(self.longest, tokens.shape[1])
            documents = torch.zeros_like(tokens)
            return self.decoder(
                tokens, positions=torch.arange(tokens.shape[1])[None] * self.longest, documents=documents
            )
        return super().forward(tokens)

    @torch.no_grad()
    def decode(self, tokens: Tensor, prompt: int) -> Tensor:
        if self.fault != "cache":
            return super().decode(tokens, prompt)
        cache = KVCache(self.decoder.config.num_layers)  # every step one position too far
        parts = [self.decoder(tokens[:, :prompt], cache=cache)]
        for n in range(prompt, tokens.shape[1]):
            at = torch.tensor([[n + 1]])
            parts.append(self.decoder(tokens[:, n : n + 1], positions=at, cache=cache))
        return torch.cat(parts, 1)

    @torch.no_grad()
    def padded(self, tokens: Tensor, padding: Sequence[int]) -> Tensor:
        return self.forward(tokens) if self.fault == "padding" else super().padded(tokens, padding)

    @torch.no_grad()
    def packed(self, tokens: Tensor, lengths: Sequence[int]) -> Tensor:
        return self.forward(tokens) if self.fault == "packing" else super().packed(tokens, lengths)

    packed_as_called = packed


def answer(name: str, implementation: Implementation) -> Answer:
    return ask(implementation, BY_NAME[name], "1.0")


@pytest.mark.parametrize("name", [q.name for q in QUESTIONS if q.name != "loaded at 32768"])
def test_without_a_fault_it_agrees(name: str) -> None:
    result = answer(name, Faulty())
    assert result.verdict is Verdict.AGREES, result.reason
    assert not result.ours_departs


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("model", "weights"),
        ("runs past", "too long"),
        ("decoding within", "cache"),
        ("decoding past", "cache"),
        ("history", "history"),
        ("left padding", "padding"),
        ("packed", "packing"),
        ("packed, as called", "packing"),
    ],
)
def test_a_fault_is_found(name: str, fault: str) -> None:
    result = answer(name, Faulty(fault=fault))
    assert result.verdict is Verdict.DIFFERS
    assert not result.explained
    assert not result.ours_departs


@pytest.mark.parametrize(
    "name", ["value at 512", "value at 32768", "value at 10^5", "value at 10^6", "bfloat16 at 512"]
)
def test_a_wrong_row_is_found(name: str) -> None:
    off = 2 * BY_NAME[name].tolerance
    spoil = lambda row: row + off * (torch.arange(row.shape[-1]) == 3)  # noqa: E731
    result = answer(name, Faulty(row=spoil))
    assert result.verdict is Verdict.DIFFERS
    assert result.explained == (name == "value at 512")
    assert result.theirs == pytest.approx(off, rel=0.3)


def test_what_softmax_ignores_is_no_difference() -> None:
    assert answer("value at 512", Faulty(row=lambda row: row + 17.0)).verdict is Verdict.AGREES
    alibi = Faulty(choose(ALiBi), row=lambda row: row.masked_fill(row < -60, -1e9))
    assert answer("value at 32768", alibi).verdict is Verdict.AGREES


def test_numbers_that_are_none_differ() -> None:
    result = answer("value at 512", Faulty(row=lambda row: row * torch.nan))
    assert result.verdict is Verdict.DIFFERS
    assert result.theirs == float("inf")
    assert as_data([result])["answers"][0]["theirs"] is None
    assert json.dumps(as_data([result]), allow_nan=False)


@pytest.mark.parametrize("times", [1.01, 2, 50, 100, float("inf"), float("nan")])
def test_ours_is_asked_too(times: float) -> None:
    """A departure of ours is no agreement with ourselves, and turns the exit code."""
    wrong = Question(
        "wrong",
        "Is ours wrong?",
        FLOAT32_TOLERANCE,
        lambda implementation, side: times * FLOAT32_TOLERANCE if isinstance(side, Ours) else 0.0,
    )
    result = ask(Faulty(), wrong, "1.0")
    assert result.verdict is Verdict.AGREES
    assert result.ours_departs
    assert as_data([result])["ours_departs"] == ["faulty, wrong"]
    right = replace(wrong, measure=lambda implementation, side: 0.99 * FLOAT32_TOLERANCE)
    assert not ask(Faulty(), right, "1.0").ours_departs


def test_what_ours_raises_is_no_answer_of_theirs() -> None:
    class Broken(Faulty):
        def our_row(self, inputs: RowInputs, *, rounded_bias: bool = False) -> Tensor:
            raise IndexError("a table that is too short")

        def row(self, inputs: RowInputs) -> Tensor:
            return torch.zeros(self.heads, len(inputs.keys))

        def model(self) -> Model:
            return FaultyModel(Faulty().decoder(), "")

        def decoder(self) -> Any:
            raise RuntimeError("no decoder")

    for name in (question.name for question in QUESTIONS if question.name != "loaded at 32768"):
        result = answer(name, Broken())
        assert result.verdict is Verdict.OURS_RAISED, name
        assert result.ours_departs
        assert "too short" in result.reason or "no decoder" in result.reason
    excused = Broken()
    excused.explanations = {question.name: "it is known" for question in QUESTIONS}
    assert answer("value at 512", excused).ours_departs


def test_ours_has_figures_of_its_own_or_none() -> None:
    """None is taken for granted: our model in float32 is off from itself in float64, and a run that ends
    has no figure.
    """
    row = answer("model", Faulty())
    assert row.ours is not None
    assert 0 < row.ours < 1e-5
    runs = answer("runs past", Faulty())
    assert (runs.theirs, runs.ours, runs.tolerance) == (None, None, None)
    values = answer("value at 512", Faulty(choose(ALiBi)))
    assert values.ours is not None
    assert 0 < values.ours < 1e-5
    assert values.ours_on_gpu is None


def test_our_row_is_what_attention_computes() -> None:
    """The row's weights are those of `attend`: with a gain, a bias, content and a rewrite too."""
    for choice in (
        choose(RoPE),
        choose(ALiBi),
        choose(LogN),
        choose(FoX),
        choose(CoPE, max_position=8),
        choose(PaTHFoX),
        choose(Wall),
    ):
        implementation = Faulty(choice)
        implementation.train_length = 8
        implementation.copy_weights = lambda encoding: None  # type: ignore[method-assign]
        for parameter in implementation.encoding.parameters():
            torch.nn.init.normal_(parameter)
        inputs = row_inputs(implementation, 24, torch.float32)
        inputs = replace(
            inputs, keys=torch.arange(24), k=torch.randn(implementation.heads, 24, implementation.head_dim)
        )
        q = torch.cat([torch.zeros(implementation.heads, 23, implementation.head_dim), inputs.q[:, None]], 1)[None]
        values = torch.eye(24).expand(1, implementation.heads, -1, -1)
        values = torch.cat([values, values.new_zeros(*values.shape[:-1], implementation.head_dim - 24)], -1)
        x = implementation.layer_inputs(inputs) if implementation.encoding.reads_content() else None
        out = attend(q, inputs.k[None], values, implementation.encoding, tokens=TokenInfo(x=x), backend="reference")
        weights = out[0, :, -1, :24]
        torch.testing.assert_close(implementation.our_row(inputs).softmax(-1).float(), weights, rtol=1e-4, atol=1e-6)


def test_a_bias_is_rounded_as_on_a_gpu_in_half_precision_alone() -> None:
    alibi = answer("bfloat16 at 512", Faulty(choose(ALiBi)))
    assert alibi.ours is not None
    assert alibi.ours_on_gpu is not None
    assert alibi.ours < 1e-5 < alibi.tolerance < alibi.ours_on_gpu  # type: ignore[operator]
    assert not alibi.ours_departs
    assert alibi.ours_departs_on_gpu
    rope = answer("bfloat16 at 512", Faulty())
    assert rope.ours == rope.ours_on_gpu  # no bias
    # The numbers that the fused kernel gets on a GPU.
    implementation = Faulty(choose(ALiBi))
    inputs = row_inputs(implementation, 512, torch.bfloat16)
    bias = -torch.tensor(slopes(12), dtype=torch.float64)[:, None] * (inputs.query - inputs.keys)
    product = (inputs.q.float()[:, None] @ inputs.k.float().mT)[:, 0] * implementation.head_dim**-0.5
    expected = product.double() + bias.bfloat16().double()
    torch.testing.assert_close(
        implementation.our_row(inputs, rounded_bias=True), expected, rtol=torch.finfo(torch.float32).eps, atol=1e-6
    )


def test_what_has_nothing_to_ask_says_why() -> None:
    result = answer("loaded at 32768", Faulty())
    assert result.verdict is Verdict.NOT_APPLICABLE
    assert "casting" in result.reason

    class Part(Faulty):
        def model(self) -> Model:
            raise NotApplicable("only a part")

    assert answer("decoding past", Part()).reason == "only a part"


@pytest.mark.medium
def test_our_dynamic_method_needs_no_excuse() -> None:
    """Decoding past the trained length, history, padding and packing, with the scale that changes."""
    for name in ("decoding past", "history", "left padding", "packed"):
        assert answer(name, Faulty(choose(DynamicNTK, factor=2.0))).verdict is Verdict.AGREES, name


# ---- the command ------------------------------------------------------------------------------------------------


@pytest.fixture
def replace_implementations(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Replace the libraries by given implementations, and ask three questions."""

    def put(*ones: Implementation) -> None:
        monkeypatch.setattr(answers, "installed_versions", lambda: {"faulty": "1.0"})
        monkeypatch.setattr(answers, "select_implementations", lambda names: list(ones))
        few = (BY_NAME["value at 512"], BY_NAME["value at 32768"], BY_NAME["loaded at 32768"])
        monkeypatch.setattr(answers, "QUESTIONS", few)

    return put


def test_the_output_fits_a_terminal_and_holds_every_reason(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, replace_implementations: Callable[..., None]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    replace_implementations(Faulty(row=lambda row: row * 1.01))
    assert main([]) == 1  # no explanation is stored for 32768
    out = capsys.readouterr().out
    assert "…" not in out
    assert max(map(len, out.splitlines())) <= 80
    words = " ".join(out.split())
    assert "faulty faulty RoPE 0 2 1" in words
    assert "faulty 1.0: errors of log-probabilities" in words
    assert "faulty: it was spoiled: faulty, value at 512" in words
    assert "faulty: the reason is unknown: faulty, value at 32768" in words


def test_the_exit_code_is_0_when_all_is_known(
    capsys: pytest.CaptureFixture[str], replace_implementations: Callable[..., None]
) -> None:
    implementation = Faulty(row=lambda row: row * 1.01)
    implementation.explanations = {"value at 512": "spoiled", "value at 32768": "spoiled"}
    replace_implementations(implementation)
    assert main(["--json"]) == 0
    output = json.loads(capsys.readouterr().out)
    assert output["libraries"] == {"faulty": "1.0"}
    assert [a["verdict"] for a in output["answers"]] == ["differs", "differs", "not applicable"]
    assert output["answers"][0]["theirs"] > output["answers"][0]["tolerance"] > output["answers"][0]["ours"]
    assert output["ours_departs"] == []


def test_a_departure_of_ours_is_printed(
    capsys: pytest.CaptureFixture[str], replace_implementations: Callable[..., None]
) -> None:
    class Wrong(Faulty):
        def our_row(self, inputs: RowInputs, *, rounded_bias: bool = False) -> Tensor:
            row = super().our_row(inputs)
            return row if inputs.dtype == torch.float64 else row * 1.01

    replace_implementations(Wrong())
    assert main([]) == 1
    assert "OURS departs from the formula: faulty, value at 512" in capsys.readouterr().out


def test_without_the_libraries_one_line_says_how_to_get_them(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    assert main([]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.count("\n") == 1
    assert "the package transformers is not installed" in output.err
    assert "pip install '.[outside]'" in output.err


def test_the_package_does_not_import_the_comparison() -> None:
    for path in (ROOT / "src").rglob("*.py"):
        assert not re.search(r"^\s*(?:from|import) comparisons\b", path.read_text(encoding="utf-8"), re.M), path


# ---- what is written down ---------------------------------------------------------------------------------------

KEPT = json.loads((ROOT / "benchmarks" / "results" / "outside.json").read_text(encoding="utf-8"))
SAVED = KEPT["figures"]
PAGE = (ROOT / "comparisons" / "README.md").read_text(encoding="utf-8")


def test_the_saved_run_has_every_answer_and_no_riddle() -> None:
    names = [question["name"] for question in SAVED["questions"]]
    assert names == [question.name for question in QUESTIONS]
    implementations = {(a["library"], a["implementation"]) for a in SAVED["answers"]}
    assert len(SAVED["answers"]) == len(implementations) * len(names)
    assert SAVED["ours_departs"] == []
    assert all(answer["explained"] for answer in SAVED["answers"])
    for name, version in SAVED["libraries"].items():
        assert f"{name}=={version}" in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()


def test_the_page_has_the_figures_of_the_saved_run() -> None:
    cells = {
        (implementation, question): (said, ours)
        for implementation, question, said, ours in re.findall(
            r"^\| ([^|]+?) \| ([^|]+?) \| ([^|]+?) \| ([^|]+?) \|$", PAGE, flags=re.M
        )
    }
    shown = 0
    for said in SAVED["answers"]:
        key = said["implementation"], said["question"]
        if said["verdict"] == "differs":
            theirs = tables.error(said["theirs"]) or "raises"
            assert cells[key] == (theirs, tables.error(said["ours"]) or "runs"), key
            shown += 1
        else:
            assert key not in cells, key
    assert shown > 50
    counts = {v: sum(a["verdict"] == v for a in SAVED["answers"]) for v in ("agrees", "differs", "not applicable")}
    assert f"{counts['agrees']} agree, {counts['differs']} differ and {counts['not applicable']} do not apply" in PAGE
    assert KEPT["made"]["date"] in PAGE
    on_gpu = set(re.findall(r"^\| ([^|]+?) \| ([^|]+?) \| ([^|]+?) \| ([^|]+?) \| ([^|]+?) \|$", PAGE, flags=re.M))
    others = [a for a in SAVED["answers"] if a["ours_on_gpu"] not in (None, a["ours"])]
    assert others
    for said in others:
        figures = (tables.error(said[who]) for who in ("theirs", "ours", "ours_on_gpu"))
        assert (said["implementation"], said["question"], *figures) in on_gpu
    beyond = len(SAVED["ours_departs_on_gpu"])
    assert f"{beyond} of these {len(others)} figures" in " ".join(PAGE.split())
    for name, version in SAVED["libraries"].items():
        assert f"{name} {version}" in PAGE


# ---- the libraries themselves -----------------------------------------------------------------------------------


@pytest.fixture
def libraries() -> None:
    why = "the libraries of the comparison are an extra: pip install '.[outside]'"
    pytest.importorskip("transformers", "5.23", reason=why)
    pytest.importorskip("x_transformers", reason=why)
    if importlib.util.find_spec("fla") is None:  # importing it would import all its kernels
        pytest.skip(why)


@pytest.mark.usefixtures("libraries")
def test_theirs_agree_where_they_always_did() -> None:
    for implementation in answers.select_implementations(["rope", "alibi", "t5", "yarn"]):
        for name in ("value at 512", "model", "decoding within"):
            result = answer(name, implementation)
            assert result.verdict is not Verdict.DIFFERS, (
                f"{result.implementation}, {name}: {result.theirs} {result.reason}"
            )


@pytest.mark.usefixtures("libraries")
def test_what_is_computed_from_the_content_agrees() -> None:
    """The published gates of PaTH-FoX are scaled, which is a known difference from the formula and agrees with
    `scaled_gate`.
    """
    names = ["path", "path_fox", "wall", "stick_breaking", "lerope"]
    differing = {"naive_path_attn, gates"}
    implementations = answers.select_implementations(names)
    assert len(implementations) == 8
    for implementation in implementations:
        result = answer("value at 512", implementation)
        assert (result.verdict is Verdict.DIFFERS) == (result.implementation in differing), result
        assert result.explained
        assert not result.ours_departs


@pytest.mark.usefixtures("libraries")
def test_a_wrong_setting_of_ours_is_seen_in_a_whole_model() -> None:
    (llama,) = (
        implementation
        for implementation in answers.select_implementations(["pi"])
        if implementation.library == "transformers"
    )
    usual = llama.model_choice  # type: ignore[attr-defined]
    llama.model_choice = lambda: choose(RoPE, layout="half")  # type: ignore[attr-defined]
    assert answer("model", llama).verdict is Verdict.DIFFERS
    llama.model_choice = lambda: replace(
        usual(), settings=tuple({**dict(usual().settings), "layout": "interleaved"}.items())
    )  # type: ignore[attr-defined]
    assert answer("model", llama).verdict is Verdict.DIFFERS


@pytest.mark.usefixtures("libraries")
def test_what_has_no_counterpart_is_said() -> None:
    with pytest.raises(
        ConfigError, match="no other library's KerpleLog is compared; available: ALiBi, BandedBias, Beam, CoPE"
    ):
        answers.select_implementations(["kerplelog"])


@pytest.mark.slow
@pytest.mark.usefixtures("libraries")
def test_the_saved_run_is_still_true() -> None:
    versions = answers.installed_versions()
    implementations = answers.select_implementations()
    result = [ask(each, question, versions[each.library]) for each in implementations for question in QUESTIONS]
    assert not [row for row in result if row.ours_departs or not row.explained]
    if {row.library: row.version for row in result} != SAVED["libraries"]:
        return
    verdicts = {(a["library"], a["implementation"], a["question"]): a for a in SAVED["answers"]}
    for row in result:
        said = verdicts[row.library, row.implementation, row.question]
        figure, limit = said["theirs"], said["tolerance"]
        if figure is None or not limit / 2 < figure < 2 * limit:  # another processor rounds otherwise
            assert row.verdict == said["verdict"], row
