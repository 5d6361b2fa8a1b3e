"""The list of backends and their protocol: what a new backend has to be, and where it then appears."""

import importlib
import pkgutil

import pytest
import torch

from lengthwise import inspection
from lengthwise.attention import (
    BACKENDS,
    Mask,
    attend,
    check_backend,
    gradients_unsupported_reason,
    plan,
    unsupported_reason,
)
from lengthwise.attention import backends as package
from lengthwise.attention.backends.base import Backend
from lengthwise.config import choose
from lengthwise.conformance import agreement, backends_of
from lengthwise.encodings import ALiBi
from lengthwise.forms import AttentionModifiers
from lengthwise.span import Span


class ZeroOutput(Backend):
    """Attention that returns zeros, for single queries."""

    name = "zero-output"

    def unsupported_reason(self, modifiers, span, mask, q):
        return "it supports single queries" if mask.queries > 1 else None

    def prepare(self, modifiers, span, mask):
        return lambda q, k, v, *, scale: torch.zeros_like(q)


@pytest.fixture
def zero_output(monkeypatch):
    """A backend of the list, before all others."""
    others = dict(BACKENDS)
    for name in others:
        monkeypatch.delitem(BACKENDS, name)
    for backend in (ZeroOutput(), *others.values()):
        monkeypatch.setitem(BACKENDS, backend.name, backend)


def subclasses(of: type) -> set[type]:
    return {made for direct in of.__subclasses__() for made in (direct, *subclasses(direct))}


def test_every_backend_of_the_package_is_listed_under_its_name():
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)
    ours = {made for made in subclasses(Backend) if made.__module__.startswith("lengthwise.")}
    assert {type(backend) for backend in BACKENDS.values()} == ours
    assert all(name == backend.name for name, backend in BACKENDS.items())


@pytest.mark.parametrize("lacking", ["name", "prepare", "unsupported_reason"])
def test_a_backend_without_a_required_member_cannot_be_made(lacking):
    members = {name: member for name, member in vars(ZeroOutput).items() if name != lacking}
    incomplete = type("Incomplete", (Backend,), members)
    with pytest.raises(TypeError, match=f"abstract class Incomplete .*{lacking}"):
        incomplete()


def test_one_backend_supports_every_call_and_every_measurement():
    """Otherwise `auto` and `statistics` could find none."""
    modifiers, span, mask, q = AttentionModifiers(), Span.of(3), Mask(3, 3), torch.zeros(1, 1, 3, 4)
    last = [b for b in BACKENDS.values() if b.is_worthwhile(modifiers, mask, q.device)][-1]
    assert last.name == "reference"
    assert last.unsupported_reason(modifiers, span, mask, q) is None
    assert last.statistics_unsupported_reason(modifiers, span, mask, q) is None


@pytest.mark.usefixtures("zero_output")
def test_a_new_backend_is_known_wherever_backends_are_named():
    q, k = torch.randn(1, 2, 1, 8), torch.randn(1, 2, 5, 8)
    assert plan(AttentionModifiers(), Span.of(5, 1), Mask(1, 5), q).backend == "zero-output"
    assert plan(AttentionModifiers(), Span.of(5), Mask(5, 5), k).backend != "zero-output"
    assert not attend(q, k, k, backend="zero-output").any()
    assert check_backend("zero-output") == "zero-output"
    assert unsupported_reason("zero-output", AttentionModifiers(), Span.of(5)) == "it supports single queries"
    assert gradients_unsupported_reason("zero-output", "cpu") is None
    assert backends_of(agreement.agrees)[0] == "zero-output"
    assert "zero-output" in inspection.inspect(choose(ALiBi))["backends"]


@pytest.mark.usefixtures("zero_output")
def test_what_a_backend_need_not_say():
    backend, call = BACKENDS["zero-output"], (AttentionModifiers(), Span.of(1), Mask(1, 1), torch.zeros(1, 1, 1, 4))
    assert backend.is_worthwhile(call[0], call[2], torch.device("cpu"))
    assert backend.statistics_unsupported_reason(*call) == "it computes no statistics"
    with pytest.raises(NotImplementedError, match="backend 'zero-output' computes no statistics"):
        backend.statistics(None, call[3], call[3])
