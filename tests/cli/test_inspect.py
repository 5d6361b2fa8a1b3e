"""`lengthwise inspect`: tables of 80 columns, or JSON; bad input is one plain line."""

import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from rich.console import Console

from lengthwise import inspection
from lengthwise.cli.inspect import summary, tables
from lengthwise.cli.printing import FittedTable
from lengthwise.encodings import ENCODINGS

Call = Callable[..., Any]
SMALL = ("--num-heads", 2, "--head-dim", 8, "--train-length", 16)


@pytest.mark.parametrize("name", ENCODINGS.names())
def test_every_encoding_has_tables_of_80_columns(here: Call, name: str) -> None:
    ran = here("inspect", name, *SMALL)
    assert (ran.code, ran.err) == (0, "")
    assert name in ran.out.splitlines()[0]
    assert max(len(line) for line in ran.out.splitlines()) <= 80
    assert len(ran.out.splitlines()) > 5
    assert "nan" not in ran.out.lower().split()


@pytest.mark.parametrize("name", ENCODINGS.names())
def test_a_narrow_terminal_loses_columns_and_no_digits(name: str) -> None:
    def numbers(width: int) -> list[set[str]]:
        lines = io.StringIO()
        console = Console(width=width, file=lines)
        for part in tables(data, ""):
            if isinstance(part, FittedTable):
                console.print(part)
        text = lines.getvalue()
        assert max(map(len, text.splitlines()), default=0) <= width
        assert not re.search(r"\S…", text)
        return [set(re.findall(r"\S+", line)) for line in text.splitlines() if re.match(r" *(\d+|all) ", line)]

    data = inspection.inspect(ENCODINGS.parse(name), num_heads=2, head_dim=64, train_length=64)
    wide = numbers(200)
    for width in (40, 32):
        narrow = numbers(width)
        assert len(narrow) == len(wide)
        assert all(few <= all_of_them for few, all_of_them in zip(narrow, wide, strict=True))


def test_a_bias_is_a_table_of_heads_and_distances(here: Call) -> None:
    out = here("inspect", "alibi", "--num-heads", 2, "--length", 9).out
    assert "slopes, nats per token: 0.0625, 0.003906" in out
    assert (
        "head  0          1          2         4         8\n   0  0    -0.0625     -0.125     -0.25      -0.5\n" in out
    )


def test_a_rotation_is_a_table_of_wavelengths(here: Call) -> None:
    out = here("inspect", "rope", "--head-dim", 4, "--length", 20).out
    assert "   1     0.01       628.3     0.0318" in out


def test_fires_coordinate_is_a_table_of_queries_and_keys(here: Call) -> None:
    out = here("inspect", "fire", "--set", "L=4", "--set", "c=1", "--num-heads", 1, "--length", 4).out
    assert "FIRE(c=1.0, L=4.0)" in out
    assert "query       0       1       2  3\n    0       0" in out
    assert "\n    3  0.8614  0.6826  0.4307  0\n" in out


def test_json_has_everything_and_nothing_rounded(here: Call) -> None:
    ran = here("inspect", "ROPE", "--head-dim", 8, "--length", 5, "--seed", 4, "--json")
    assert ran.code == 0
    assert ran.out.count("\n") == 1
    data = json.loads(ran.out, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    assert data["frequencies"] == pytest.approx([1.0, 0.1, 0.01, 0.001], rel=1e-15)
    assert data["gain"] == 1.0
    assert data["settings"] == {"base": 10000.0, "rotary_fraction": 1.0, "layout": "interleaved"}
    assert (data["name"], data["num_heads"], data["d_model"], data["length"], data["seed"]) == ("RoPE", 8, 64, 5, 4)
    twice = json.loads(here("inspect", "rope", "--train-length", 30, "--json").out)
    assert (twice["length"], twice["head_dim"], twice["d_model"]) == (60, 64, 512)
    wide = json.loads(here("inspect", "sinusoidal", "--d-model", 6, "--length", 3, "--json").out)
    assert [len(row) for row in wide["embedding"]] == [6, 6, 6]


@pytest.mark.parametrize(
    ("words", "settings"),
    [
        (["Kerple-Log"], {}),
        (["fire:hidden_layers=1"], {"hidden_layers": 1}),
        (["FIRE", "--set", "hidden-layers=1", "--set", "c=2"], {"hidden_layers": 1, "c": 2.0}),
        (["f_ire:hidden_layers=1", "--set", "c=2"], {"hidden_layers": 1, "c": 2.0}),
        (["t5:num_buckets=8", "--set", "max_distance=9"], {"num_buckets": 8, "max_distance": 9}),
    ],
)
def test_names_and_settings_as_elsewhere(here: Call, words: list[str], settings: dict[str, object]) -> None:
    ran = here("inspect", *words, *SMALL, "--length", 4, "--json")
    assert ran.code == 0, ran.err
    data = json.loads(ran.out)
    assert settings.items() <= data["settings"].items()
    assert data["name"].lower() == words[0].partition(":")[0].lower().replace("-", "").replace("_", "")


@pytest.mark.medium
def test_pictures(here: Call, tmp_path: Path) -> None:
    words = ("alibi", "--num-heads", 2, "--train-length", 10, "--length", 300)
    ran = here("inspect", *words, "--picture", tmp_path / "a.svg", "--json")
    assert ran.code == 0 and json.loads(ran.out)["num_heads"] == 2
    svg = (tmp_path / "a.svg").read_text()
    texts = {element.text for element in ElementTree.fromstring(svg).iter() if element.tag.endswith("text")}
    assert {"bias, nats", "training length", "head 1"} <= texts and "head 2" not in texts
    words = ("sinusoidal", "--head-dim", 8, "--num-heads", 1, "--train-length", 2, "--length", 4)
    assert here("inspect", *words, "--picture", tmp_path / "c.svg").code == 0
    svg = (tmp_path / "c.svg").read_text()
    assert ">0</text>" in svg and ">3</text>" in svg and ">1.5</text>" not in svg  # no ticks between positions
    for encoding in ("yarn:factor=4", "coPE", "sinusoidal", "shaw", "dape"):  # fewer positions than the training length
        short = (encoding, "--train-length", 20, "--length", 7, "--picture", tmp_path / "b.PNG")
        assert here("inspect", *short).code == (2 if encoding == "coPE" else 0)
        assert encoding == "coPE" or (tmp_path / "b.PNG").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nope", "--picture", "a.svg"], "NoPE changes nothing with its initial parameters, so omit --picture"),
        (["rope", "--picture", "a.svgg"], "--picture must end in .svg or .png, got 'a.svgg'; did you mean '.svg'?"),
        (["rope", "--picture", "no/a.svg"], "--picture no/a.svg: there is no folder no"),
        ([], "inspect needs ENCODING"),
        (["rpoe"], "no encoding 'rpoe'; did you mean 'RoPE'?"),
        (["alibi", "--num-heads", "0"], "num_heads must be at least 1, got 0"),
        (["rope", "--head-dim", "7"], "head_dim 7"),
        (["rope", "--length", "0"], "length must be at least 1, got 0"),
        (["rope", "--length", "-5"], "length must be at least 1, got -5"),
        (["rope", "--length", "nan"], "must be a whole number, got 'nan'"),
        (["rope", "--num-heads", "2.5"], "must be a whole number, got '2.5'"),
        (["fire", "--set", "hiden_layers=1"], "did you mean 'hidden_layers'?"),
        (["fire", "--set", "hidden_layers"], "'hidden_layers' is not a setting; write fire:name=value"),
        (["fire", "--set", "=1"], "FIRE has no setting ''"),
        (["fire", "--set", "L=nan"], "FIRE.L must be float, got 'nan'"),
        (["fire", "--set", "activation=rleu"], "did you mean 'relu'?"),
        (["learned", "--length", "2049"], "position 2048 is past the 2048 rows of its table"),
        (["fire", "--length", "100000"], "at most 10,000,000 numbers"),
        (["alibi", "--length", "9" * 30], "must be at most 2147483647, got 9"),
        (["rope", "--set", "base=1e4", "--set", "base=20"], "sets RoPE.base twice; omit one of them"),
        (["longrope:short_factor=(1,2)"], "write a tuple with square brackets, as in [1,2]"),
        (["rope+nope"], "RoPE+NoPE is a pattern over layers"),
    ],
)
def test_bad_input_is_one_line(here: Call, words: list[str], says: str) -> None:
    ran = here("inspect", *words)
    assert (ran.code, ran.out) == (2, "")
    assert "Traceback" not in ran.err
    assert ran.err.startswith("lengthwise: ")
    assert ran.err.count("\n") == 1, ran.err
    assert says in ran.err


def test_a_class_without_docstring_is_not_described_by_its_base(monkeypatch: pytest.MonkeyPatch, here: Any) -> None:
    bare = type("Bare", (ENCODINGS.find("rope"),), {"__module__": "__main__"})
    monkeypatch.setattr(ENCODINGS, "_classes", {"Bare": bare})
    assert summary(bare) == "Bare has no docstring of its own."
    ran = here("list", "encodings", "bare")
    assert (ran.code, ran.err) == (0, "")
    assert "Bare: Bare has no docstring of its own.\n" in ran.out


def test_a_bias_without_a_number_has_dashes(here: Any, tmp_path: Path) -> None:
    (tmp_path / "nan.py").write_text(
        "import torch\nfrom lengthwise.encodings import DistanceBias\nclass Nan(DistanceBias):\n"
        "    def __init__(self, *, num_heads: int):\n        super().__init__()\n        self.num_heads = num_heads\n"
        "    def bias(self, distance):\n        return torch.full((self.num_heads, len(distance)), float('nan'))\n"
    )
    ran = here("inspect", "nan", "--plugin", tmp_path / "nan.py")
    assert ran.code == 0, ran.err
    assert re.search(r"\n +0( +–)+\n", ran.out)
