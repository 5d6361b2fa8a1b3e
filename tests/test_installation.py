"""Advice on installing names what exists: no index has Lengthwise, so `pip install lengthwise` gives something else."""

import re
import tomllib
from pathlib import Path

import pytest

from lengthwise.transformers_versions import TESTED_VERSIONS
from lengthwise.values import install_extra

ROOT = Path(__file__).parent.parent
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
FILES = [
    path
    for pattern in ("src/**/*.py", "docs/**/*.md", "*.md", "*.py", "*.toml", "benchmarks/*.py", "tests/**/*.py")
    for path in ROOT.glob(pattern)
    if path != Path(__file__)
]


def test_no_text_installs_a_package_that_is_not_published() -> None:
    wrong = re.compile(r"pip install (?:-\S+ )*['\"]?lengthwise|['\"]lengthwise\[")
    texts = {path: path.read_text(encoding="utf-8") for path in FILES}
    texts[ROOT / "pyproject.toml"] = ""  # extras contain other extras
    assert [str(path) for path, text in texts.items() if wrong.search(text.replace("\n", " "))] == []


def test_every_extra_that_a_text_names_exists() -> None:
    named = {
        (extra, path.name)
        for path in FILES
        for extras in re.findall(
            r"""install_extra\(['"]([\w-]+)|pip install (?:-\S+ )*'\.\[([\w,-]+)\]'""", path.read_text(encoding="utf-8")
        )
        for extra in "".join(extras).split(",")
    }
    assert len(named) > 30
    assert {(extra, name) for extra, name in named if extra not in EXTRAS} == set()


def test_the_extra_allows_the_tested_versions_of_transformers() -> None:
    first, last = TESTED_VERSIONS
    after = f"{last[0]}.{last[1] + 1}"
    assert f"transformers>={first[0]}.{first[1]},<{after}" in EXTRAS["hf"]
    assert any(requirement.endswith(f",<{after}") for requirement in EXTRAS["outside"])


@pytest.mark.parametrize("extra", ["lab", "hf"])
def test_the_sentence(extra: str) -> None:
    assert install_extra(extra) == f"install the extra {extra}: pip install '.[{extra}]' in a clone of Lengthwise"
