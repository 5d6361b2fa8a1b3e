"""The list of probes: it agrees with the folders, and every probe is described."""

import ast
from pathlib import Path
from typing import Any

import pytest

import lengthwise.probes
from lengthwise.config import ConfigError
from lengthwise.probes import PROBES, ModelProbe, Probe, ProbeList
from lengthwise.probes.recency import Recency

FOLDER = Path(lengthwise.probes.__file__).parent
SHARED = {"measuring", "repeated_examples"}  # folders of modules that several probes use


def folder_of(probe: Probe) -> str:
    return type(probe).__module__.removeprefix("lengthwise.probes.")


def test_the_list_and_the_folders_agree() -> None:
    folders = {path.parent.name for path in FOLDER.glob("*/__init__.py")}
    assert {folder_of(probe) for probe in PROBES} == folders - SHARED
    for probe in PROBES:
        assert type(probe).__name__.lower() == folder_of(probe).replace("_", "")


def test_a_probe_imports_no_other_probe() -> None:
    for probe in PROBES:
        own = folder_of(probe)
        for file in (FOLDER / own).glob("*.py"):
            modules = [
                node.module or "" for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.ImportFrom)
            ]
            used = {module.split(".")[2] for module in modules if module.startswith("lengthwise.probes.")}
            assert used <= {own, "base", "in_context", *SHARED}, file


@pytest.mark.parametrize("probe", list(PROBES), ids=lambda probe: probe.name)
def test_every_probe_is_described(probe: Probe) -> None:
    assert probe.summary.endswith(".")
    assert probe.file("section.html.j2").is_file()
    assert probe.question.__doc__


@pytest.mark.parametrize("probe", PROBES.of_models, ids=lambda probe: probe.name)
def test_every_option_says_its_default(probe: ModelProbe) -> None:
    for part in probe.question.options():
        assert part.metadata["text"].endswith(".")
        assert probe.shown_default(part)
    assert list(probe.settings) == [part.name for part in probe.question.options()]


def test_an_option_means_the_same_for_every_probe() -> None:
    texts: dict[str, set[Any]] = {}
    for probe in PROBES.of_models:
        for part in probe.question.options():
            texts.setdefault(part.name, set()).add((part.metadata["text"], part.type))
    assert [name for name, found in texts.items() if len(found) > 1] == []


def test_names() -> None:
    assert PROBES.find("lengths").name == "lengths"
    assert PROBES.get("of a later version") is None
    with pytest.raises(ConfigError, match="there is no probe 'recncy'; did you mean 'recency'"):
        PROBES.find("recncy")
    with pytest.raises(ConfigError, match=r"^lengths is not a probe of trained models; use `lengthwise lengths KEY`$"):
        PROBES.find_model_probe("lengths")


def test_two_probes_of_one_name() -> None:
    with pytest.raises(TypeError, match="two probes have the name 'recency': rename Recency"):
        ProbeList(Recency, Recency)
