"""The list of probes, by name."""

from collections.abc import Iterator, Mapping
from typing import TypeVar

from lengthwise.config import ConfigError, near_miss
from lengthwise.probes.base import ModelProbe, Probe

P = TypeVar("P", bound=Probe)


class ProbeList:
    """All probes, one of each class, in the order of the page."""

    def __init__(self, *probes: type[Probe]):
        self._probes: dict[str, Probe] = {}
        for make in probes:
            probe = make()
            if probe.name in self._probes:
                raise TypeError(f"two probes have the name {probe.name!r}: rename {make.__name__}")
            self._probes[probe.name] = probe

    def __iter__(self) -> Iterator[Probe]:
        return iter(self._probes.values())

    @property
    def of_models(self) -> list[ModelProbe]:
        """Return the probes of trained models, which `lengthwise probe` applies."""
        return [probe for probe in self if isinstance(probe, ModelProbe)]

    def with_option(self, name: str) -> list[str]:
        """Return the names of the probes whose question has this option."""
        return [probe.name for probe in self.of_models if name in (part.name for part in probe.question.options())]

    def get(self, name: str) -> Probe | None:
        """Return the probe of that name, or None: a database may have rows of probes that are not listed."""
        return self._probes.get(name)

    def find(self, name: str) -> Probe:
        """Return the probe of that name. Raise `ConfigError` with a suggestion if there is none."""
        return _find(name, self._probes)

    def find_model_probe(self, name: str) -> ModelProbe:
        """Return the probe of trained models with that name. Raise `ConfigError` with a suggestion if there is none."""
        if (probe := self.get(name)) is not None and not isinstance(probe, ModelProbe):
            raise ConfigError(f"{name} is not a probe of trained models; use `{probe.command}`")
        return _find(name, {probe.name: probe for probe in self.of_models})


def _find(name: str, known: Mapping[str, P]) -> P:
    if name not in known:
        raise ConfigError(f"there is no probe {name!r}{near_miss(name, known)}; available: {', '.join(known)}")
    return known[name]
