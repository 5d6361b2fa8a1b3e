"""Random commands: no traceback, one clear line with a suggestion for each wrong one, and nothing is lost.

Commands and options come from cyclopts itself, so a new one is tested without a change here.
"""

import random
import shlex
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lengthwise.cli.app import COMMANDS, app
from lengthwise.store import open_store
from tests.cli.conftest import TINY

SMALL = "--train-length 4 --steps 2 --batch-size 2 --lengths 4 --examples 2 --d-model 8 --num-layers 1 --num-heads 1"
BASES = {  # of each command, a valid call that takes little time; KEY is that of a finished run
    "run": "tiny.py --on inline --results scratch",
    "work": "tiny.py --on inline --results scratch",
    "copy-study": "quickstart new/copy.py --force",
    "compare": f"nope --task copy {SMALL} --on inline --results scratch",
    "tokenize": "text.txt --output new/corpus --workers 1",
    "report": "--output new/page.html",
    "serve": "--port 0",
    "list": "runs",
    "show": "KEY",
    "sample": "copy --length 3",
    "check": "rope",
    "inspect": "rope --length 8",
    "lengths": "KEY",
    "probe": "KEY",
    "probe attention-distance": "KEY --against fire-s --lengths 4 --examples 2",
    "bench": (
        "nope --d-model 8 --num-layers 1 --num-heads 1 --lengths 8 --batch-tokens 8 --rounds 1 --warmup 0 --no-memory"
    ),
    "retry": "KEY",
    "cancel": "KEY",
    "drop": "KEY",
    "export": "tiny --out new/table.csv --force",
    "export answers": "tiny recency --out new/table.csv --force",
    "export charts": "tiny --out new/charts --force",
    "export bundle": "tiny --out new/bundle.zip --force",
    "export model": "KEY --out new/model",
    "import": "new/bundle.zip --results scratch",
    "harness": "copy --lengths 3 --examples 2 --out new/tasks",
    "model": "folder",
    "reach": "folder --text text.txt",
    "extend": "folder --methods own --text text.txt --out new/extended",
}
# Options that take minutes or need a network, and `--finished`, which deletes finished runs on purpose.
LEFT_OUT = ("--compile", "--theorems", "--finished", "--dry-run", "--help", "--version")
VALUES = {  # of options for which most texts below would take minutes, start processes or need a network
    "--on": ["", "inline", "inlin", "slurm", "slurm:x", "ray"],
    "--trackers": ["", "tensorboad", "tensorboard:dir=x", "mlflow:a"],
    "--backend": ["", "auto", "reference", "fusd"],
    "--device": ["", "cpu", "cuda", "gpu", "cuda:99", "cuda:x"],
    "--workers": ["1", "0", "-3", "two", "99999999999999999999"],
    "--store": ["", "postgresql://user:secret@127.0.0.1:9/name", "mysql://x", "sqlite:///results/results.db", "x y"],
    "--results": [
        "",
        *"results missing damaged newer readonly text.txt folder re\udcff file:///x".split(),  # noqa: SIM905
    ],
    "--tokenizer": ["", "bytes", "byte", "bpe:300", "bpe:0", "bpe:x", "text.txt"],
}
WHOLE = ["", *"0 1 2 3 7 -1 2.5 x 99999999999999999999 -99999999999999999999 1e3 ٣ nan".split()]  # noqa: SIM905
NUMBERS = [*WHOLE, "0.5", "inf", "-inf", "1e999", "-0.0"]
WORDS = """
- -- , ,, a,b 4,8 8-4 5-20 4,x 0 -1 99999999999999999999 rope ropee alibi,nope fire:c=1 fire:c=x fire:hiden_layers=1
rope( fire-s nope*2+rope rope*0 copy cpoy copy:symbols=3 copy:symbols=0 text:path=text.txt consecutive
shift:max_shift=9 yarn:factor=4 tiny tinny KEY 3f9a zzzz quickstart quikstart recency input NAME=VALUE seeds=2 = [1,2]
text.txt missing.txt folder missing tiny.py missing/file.svg damaged/results.db results/results.db raises.py
folder/config.json new/x.svg new/x.csv new/x.json new/x.html new/x readonly/x.csv 日本語 🙂 %s ../.. / ~ ~nobody bytes
python test trian paper
""".split()  # noqa: SIM905
PLUGINS = ["--plugin", "--plugin=raises.py", "--plugin=missing.py", "--plugin=text.txt"]
TEXTS = ["", " ", "a\nb", "\x1b[31mred", "ode-\udcff.txt", "x" * 300, *WORDS]


def commands() -> Iterator[tuple[list[str], list[Any], list[str]]]:
    """Yield the words of each command, its options, and the words of its valid call."""
    for name in COMMANDS:
        of_name = app[name]
        for sub in [one for one in of_name if not one.startswith("-")] or [""]:
            options = (of_name[sub] if sub else of_name).assemble_argument_collection()
            whole = f"{name} {sub}".strip()
            base = shlex.split(BASES.get(whole, BASES.get(name, "")))
            keywords = [o for o in options if o.field_info.is_keyword and not o.children and o.name not in LEFT_OUT]
            yield whole.split(), keywords, base


def value_of(option: Any, chance: random.Random) -> str:
    """Return a value for an option, which may be valid or not."""
    hint = str(option.hint)
    kind = WHOLE if "int" in hint else NUMBERS if "float" in hint else TEXTS
    choices = [one for one in getattr(option.hint, "__args__", ()) if isinstance(one, str)]  # of a Literal
    return chance.choice(VALUES.get(option.name) or [*kind, *choices])


def misspelled(word: str, chance: random.Random) -> str:
    """Return a word without one letter."""
    at = chance.randrange(len(word) // 2, len(word))
    return word[:at] + word[at + 1 :]


def edited(options: list[Any], words: list[str], chance: random.Random) -> list[str]:
    """Return the words of a call after one edit: another value, another option, or a word more or less."""
    kind = chance.choices(("option", "positional", "missing", "stray"), (6, 3, 1, 1))[0]
    if kind == "option" and options:
        option = chance.choice(options)
        if option.hint is bool or not option.token_count()[0]:
            return [*(word for word in words if word != option.name), option.name]
        values = [value_of(option, chance) for _ in range(option.token_count()[0])]
        if option.name in words:
            at = words.index(option.name)
            return [*words[: at + 1], *values, *words[at + 2 :]]
        return [*words, option.name, *values] if chance.random() < 0.8 else [*words, f"{option.name}={values[0]}"]
    if kind == "missing" and words:
        at = chance.randrange(len(words))
        return [*words[:at], *words[at + 1 :]]
    if kind == "stray":
        return [*words, chance.choice([*TEXTS, *PLUGINS])]
    return [chance.choice(TEXTS), *words[1:]]


def calls(count: int, seed: int) -> Iterator[tuple[list[str], bool]]:
    """Yield random calls, and whether nothing is wrong with each but a misspelled name of a command or an option."""
    chance, known = random.Random(seed), list(commands())
    for _ in range(count):
        name, options, words = chance.choice(known)
        spelling = chance.random()
        if spelling < 0.05:
            option = chance.choice(["--plugin", *(option.name for option in options if len(option.name) > 7)])
            yield [*name, *words, f"{misspelled(option, chance)}=1"], True
        elif spelling < 0.1:
            yield [*name[:-1], misspelled(name[-1], chance), *words], len(name[-1]) > 4
        else:
            for _ in range(chance.randint(0, 3)):
                words = edited(options, words, chance)
            yield [*name, *words], False


@pytest.fixture
def place(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a finished study, texts, and what is damaged or newer. No page is served."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LENGTHWISE_RESULTS", "results")
    monkeypatch.setattr("lengthwise.serve.server.answer", lambda *_: None)
    monkeypatch.setattr("lengthwise.conformance.table.ask_in_processes", lambda *_: [])
    shutil.copytree(finished, tmp_path / "results")
    for name in ("damaged", "newer", "new", "folder"):
        (tmp_path / name).mkdir()
    (tmp_path / "readonly").mkdir(mode=0o500)
    (tmp_path / "damaged" / "results.db").write_bytes((finished / "results.db").read_bytes()[:5000])
    shutil.copy(finished / "results.db", tmp_path / "newer" / "results.db")
    with sqlite3.connect(tmp_path / "newer" / "results.db") as newer:
        newer.execute("UPDATE lengthwise_schema SET version_num = '999'")
    newer.close()
    (tmp_path / "text.txt").write_text("To be, or not to be, that is the question.\n" * 20)
    (tmp_path / "folder" / "config.json").write_text('{"model_type": "llama"')
    (tmp_path / "raises.py").write_text("import math\n\nmath.sqrt('two')\n")
    (tmp_path / "tiny.py").write_text(TINY.replace("steps=10", "steps=2"))
    return tmp_path


def contents(folder: Path) -> set[Any]:
    """Return all runs and scores of a store."""
    with open_store(folder, create=False) as store:
        runs = store.runs()
        return {(row.key, row.status) for row in runs} | {
            (row.key, row.length, row.mean) for row in store.scores([row.key for row in runs])
        }


@pytest.mark.medium
@pytest.mark.parametrize(("count", "seed"), [(100, 0), pytest.param(2000, 1, marks=pytest.mark.slow)])
def test_random_commands(here: Callable[..., Any], place: Path, count: int, seed: int) -> None:
    before = contents(place / "results")
    key = min(row[0] for row in before)
    for words, is_misspelled in calls(count, seed):
        words = [word.replace("KEY", key[:8]) for word in words]
        problem = problem_of(here(*words), is_misspelled)
        assert problem is None, f"{problem}: {words}"
    assert before <= contents(place / "results")


def problem_of(ran: Any, is_misspelled: bool) -> str | None:
    """Return what is wrong with the end of a command, if anything is."""
    last = (ran.err.splitlines() or [""])[-1]
    if ran.code not in (0, 1, 2) or "Traceback" in ran.err or "probably a bug" in ran.err or "Warning: " in ran.err:
        return f"it failed ({ran.code}): {ran.err}"
    if ran.code == 2 and not (last.startswith("lengthwise: ") and len(last) < 2000):
        return f"no clear line: {ran.err}"
    if is_misspelled and not (ran.code == 2 and "id you mean" in last):
        return f"no suggestion: {last}"
    return None
