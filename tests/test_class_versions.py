"""What a run's key contains of a class: its version, or the hash of its source."""

import pytest

from lengthwise.class_versions import class_version, defined_in
from lengthwise.code_hash import code_hash
from lengthwise.config import ConfigError, Run, TrainingConfig, choose
from lengthwise.encodings import NoPE, RoPE
from lengthwise.tasks import Copy


def test_a_raised_version_of_our_base_changes_what_derives_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    before = code_hash(Derived)
    monkeypatch.setattr(RoPE, "version", 7, raising=False)
    assert code_hash(Derived) != before


class Derived(RoPE):
    pass


class Declared(NoPE):
    version = 3


class OfOurs(RoPE):
    version = 1


class Inherits(Declared):
    pass


class Wrong(NoPE):
    version = "2"


def key(make: type) -> str:
    return Run(encoding=choose(make), task=choose(Copy), training=TrainingConfig(train_length=8)).key


def test_a_declared_version_replaces_the_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    assert class_version(Declared) == {"version": 3, "module": "test_class_versions"}
    before = key(Declared)
    monkeypatch.setattr(Declared, "version", 4)
    assert key(Declared) != before
    assert set(class_version(Inherits)) == {"code"}, "an inherited version says nothing about what was added"
    for version, got in (("2", "'2'"), (0, "0"), (True, "True"), (10**400, "a larger one"), (10**5000, "a larger one")):
        monkeypatch.setattr(Wrong, "version", version)
        with pytest.raises(ConfigError, match=rf"Wrong\.version must be a whole number from 1 to [0-9,]+, got {got}"):
            key(Wrong)


def test_a_declared_version_leaves_the_versions_of_our_bases(monkeypatch: pytest.MonkeyPatch) -> None:
    before = key(OfOurs)
    monkeypatch.setattr(RoPE, "version", RoPE.version + 1)
    assert key(OfOurs) != before


def test_ours_have_a_version_and_it_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    assert class_version(RoPE) == {"version": RoPE.version}
    assert defined_in(RoPE) is None
    for make in (RoPE, Copy):
        run = Run(encoding=choose(RoPE), task=choose(Copy), training=TrainingConfig(train_length=8))
        before = run.key
        monkeypatch.setattr(make, "version", 99, raising=False)
        assert run.key != before
