"""Choices: a class of a registry and its settings, frozen before the model around it is known."""

import inspect
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib.metadata import entry_points
from itertools import groupby
from typing import Any, ClassVar

from lengthwise.class_versions import class_version, place, require_complete, require_set
from lengthwise.values import ConfigError, cast, listing, near_miss, parse_value, require_known


class UnknownName(ConfigError):
    """The name of an encoding, a task or a position scheme that no list has."""


def settings_of(make: type) -> dict[str, inspect.Parameter]:
    """The settings of a class: the keyword-only arguments of `__init__` that have a default.

    Arguments without a default (`num_heads`, `head_dim`, `d_model`, ...) are what the model tells it, not settings.
    """
    parameters = inspect.signature(make).parameters.values()
    return {p.name: p for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is not p.empty}


def context_of(make: type) -> list[str]:
    """The names of the keyword-only arguments that the model fills in."""
    parameters = inspect.signature(make).parameters.values()
    return [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty]


def from_context(make: type, context: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the class takes of the context. Raise `ConfigError` for an argument that the context does not have."""
    names = context_of(make)
    if unknown := [name for name in names if name not in context]:
        known = f"; a model gives {', '.join(context)}" if context else ""
        raise ConfigError(
            f"{place(make)}: {make.__name__}.__init__ needs {listing(unknown)}, which nothing gives it{known}. Give "
            f"{'it' if len(unknown) == 1 else 'them'} a default"
        )
    return {name: context[name] for name in names}


def shown_settings(make: type, settings: Mapping[str, Any]) -> str:
    """The settings that tell one choice of a class from another: those unlike their defaults, and those that the class always
    shows (`always_shown`), because no default of theirs goes without saying."""
    always = getattr(make, "always_shown", ())
    known = {name: p.default for name, p in settings_of(make).items()}
    complete = {name: settings.get(name, default) for name, default in known.items() if name in {*settings, *always}}
    return ", ".join(f"{k}={v}" for k, v in complete.items() if k in always or v != known[k])


@dataclass(frozen=True)
class Choice:
    """A class of a registry with its settings, defaults written out. Make it with `choose`; `build` makes the object."""

    kind: str
    name: str
    settings: tuple[tuple[str, Any], ...]
    make: type = field(compare=False, repr=False)
    remaining_layers: tuple[
        "Choice", ...
    ] = ()  # a pattern over the layers goes on with these (`alternate`), and repeats

    def build(self, **context: Any) -> Any:
        """An instance; of `context`, the class gets just the arguments that it asks for."""
        assert not self.remaining_layers, "a pattern over layers: build its `layers`"
        instance = self.make(**from_context(self.make, context), **dict(self.settings))
        require_set(instance)
        return instance

    @property
    def layers(self) -> tuple["Choice", ...]:
        """The choices of the first layers, until the pattern repeats; a plain choice is the only one."""
        return (replace(self, remaining_layers=()), *self.remaining_layers)

    def require_layers(self, count: int) -> None:
        """Raise `ConfigError` where a model has fewer layers than the pattern: some encoding would be in none."""
        if len(self.layers) > count:
            raise ConfigError(
                f"{self.label} is a pattern over {len(self.layers)} layers, and the model has {count}; make num_layers at "
                f"least {len(self.layers)}, or the pattern shorter"
            )

    def to_data(self) -> dict[str, Any]:
        """Plain JSON data: the name, the version of the class (see `class_version`), and every setting."""
        # Lists, as JSON has them.
        settings = {k: list(v) if isinstance(v, tuple) else v for k, v in self.settings}
        data = {"is": self.name, "class": class_version(self.make), **settings}
        return (
            {**data, "remaining_layers": [choice.to_data() for choice in self.remaining_layers]}
            if self.remaining_layers
            else data
        )

    def identity(self) -> dict[str, Any]:
        """What counts for the key: without settings that only say where something lies (a path, when its hash is there)."""
        skip = getattr(self.make, "excluded_from_key", ())
        return {k: v for k, v in self.to_data().items() if k not in skip}

    @property
    def label(self) -> str:
        """The name, with the settings that differ from their defaults: `FIRE(hidden_layers=1)`; `RoPE*3+NoPE`. A class may
        name some that are always shown: `YaRN(factor=4.0)`."""
        if self.remaining_layers:
            runs = [(label, len(list(same))) for label, same in groupby(choice.label for choice in self.layers)]
            return "+".join(f"{label}*{count}" if count > 1 else label for label, count in runs)
        skip = {"sha256", *getattr(self.make, "excluded_from_key", ())}
        shown = shown_settings(self.make, {k: v for k, v in self.settings if k not in skip})
        return f"{self.name}({shown})" if shown else self.name


def choose(make: type, **settings: Any) -> Choice:
    """Freeze a class and its settings: `choose(FIRE, hidden_layers=1)`. Names, types and values are checked now.

    A class may have a classmethod `check(settings) -> settings` that raises `ValueError` for a value that cannot be and
    may complete settings (a corpus writes its hash down).
    """
    kind = getattr(make, "kind", None)
    if not isinstance(make, type) or kind is None:
        raise ConfigError(f"choose() takes the class of an encoding, a task or a position scheme, not {make!r}")
    require_complete(make)
    known = settings_of(make)
    _require_settings(make, settings)
    complete = {
        name: cast(settings.get(name, p.default), annotation(make, p), f"{make.__name__}.{name}")
        for name, p in known.items()
    }
    if check := getattr(make, "check", None):
        try:
            complete = check(complete)
        except ConfigError:
            raise
        except (ValueError, TypeError) as error:
            raise ConfigError(f"{make.__name__}: {error}") from error
    for name, value in complete.items():
        try:
            hash(value)
        except TypeError as error:
            raise ConfigError(
                f"{make.__name__}.{name} is a {type(value).__name__}; a setting must be a number, a text, True, False, None or a "
                "tuple of such values"
            ) from error
    return Choice(kind, make.__name__, tuple(complete.items()), make)


def _require_settings(make: type, names: Iterable[str]) -> None:
    """Raise `ConfigError` for a setting that the class has not got, in its own words where it has some."""
    known = settings_of(make)
    for name in names:
        if name not in known and name in getattr(make, "without", {}):
            raise ConfigError(f"{make.__name__} {make.without[name]}")  # type: ignore[attr-defined]
    require_known(make.__name__, names, known)


def alternate(*choices: Choice) -> Choice:
    """A pattern over layers: the first layer has the first choice, and so on, over and over.

    Every fourth layer without position encoding (iRoPE, RNoPE-SWA): `alternate(rope, rope, rope, nope)`. Another base for
    every sixth layer: `alternate(*[choose(RoPE)] * 5, choose(RoPE, base=1e6))`. `rope*3+nope` on the command line.
    """
    if not choices:
        raise ConfigError("alternate() has no choices; give one for each layer of the pattern")
    for choice in choices:
        require_choice("alternate()", choice)
        if choice.remaining_layers:
            raise ConfigError(f"{choice.label} is a pattern itself; give alternate() its single choices")
        if (acts := getattr(choice.make, "acts_on_embedding", None)) is None:
            raise ConfigError(f"{choice.name} is no encoding, and only encodings alternate over layers")
        if len(set(choices)) > 1 and acts():
            raise ConfigError(
                f"{choice.name} acts on embeddings, before the first layer, so it cannot alternate over layers"
            )
    for size in range(1, len(choices)):  # the same pattern, however often it was written out, has one name
        if len(choices) % size == 0 and choices == choices[:size] * (len(choices) // size):
            choices = choices[:size]
            break
    return replace(choices[0], remaining_layers=choices[1:])


def require_choice(what: str, given: object, kind: str = "encoding") -> None:
    """Raise `ConfigError` unless `given` is a choice of that kind: not a class, an object or a name."""
    if not isinstance(given, Choice):
        name = given.__name__ if isinstance(given, type) else type(given).__name__ if kind_of(given) else repr(given)
        raise ConfigError(f"{what} takes choices, and got {name}; write choose({name if kind_of(given) else 'RoPE'})")
    if given.kind != kind:
        raise ConfigError(f"{what} takes an {kind}, and got {given.label}, which is a {given.kind}")


def kind_of(given: object) -> str | None:
    return getattr(given, "kind", None)


def annotation(make: type, parameter: inspect.Parameter) -> Any:
    if parameter.annotation is not parameter.empty and not isinstance(parameter.annotation, str):
        return parameter.annotation
    return type(parameter.default)


class Registry:
    """The list of one kind ("encoding", "task"): the one place that names every method.

    Other packages add theirs through the entry-point group `lengthwise.<plural>`, and plug-ins with `add` (see `plugins.py`).
    Names ignore case.
    """

    known: ClassVar[dict[str, "Registry"]] = {}

    def __init__(self, kind: str, makes: Iterable[type], plural: str):
        self.kind, self.plural = kind, plural
        self._first = {make.__name__: make for make in makes}
        self._makes = dict(self._first)
        self._outside_read = False
        self.broken: dict[str, str] = {}  # what others name and cannot be had, and why
        Registry.known[kind] = self

    def _all(self) -> dict[str, type]:
        if not self._outside_read:
            self._outside_read = True
            for point in entry_points(group=f"lengthwise.{self.plural}"):
                self._add(point)
        return self._makes

    def _add(self, point: Any) -> None:
        """List what another package names; what is broken there breaks nothing here until it is asked for."""
        package = getattr(getattr(point, "dist", None), "name", "another package")
        where = f"the entry point {point.name!r} of {package}"
        try:
            make = point.load()
        except Exception as error:
            self.broken[point.name] = (
                f"{where} cannot be loaded: {type(error).__name__}: {' '.join(str(error).split())}; mend or remove that package"
            )
            return
        if not isinstance(make, type) or getattr(make, "kind", None) != self.kind:
            self.broken[point.name] = f"{where} is {make!r}, which is no {self.kind}; mend or remove that package"
        elif (clash := self._clash(point.name, make)) is not None:
            self.broken[point.name] = (
                f"{where} is called like {clash.__name__}, which is there already; mend or remove that package"
            )
        else:
            self._makes[point.name] = make

    def _has(self, name: str) -> bool:
        return _plain(name.strip()) in self._plain_names()

    def add(self, make: type) -> str | None:
        """List a class of a plug-in. One that is incomplete is not listed, and whoever asks for it is told what it lacks, which
        is also returned.

        Raises `ConfigError` where another class has its name.
        """
        self._all()
        if (clash := self._clash(make.__name__, make)) is not None:
            raise ConfigError(
                f"its {self.kind} {make.__name__} is called like {clash.__name__} of {clash.__module__}; rename it"
            )
        try:
            require_complete(make)
        except ConfigError as error:
            self.broken[make.__name__] = str(error)
            return str(error)
        self._makes[make.__name__] = make
        return None

    def _clash(self, name: str, make: type) -> type | None:
        """The class that is listed already under a name that this one would have."""
        taken = self._plain_names()
        others = (taken.get(_plain(n), make) for n in (name, make.__name__))
        return next((other for other in others if other is not make), None)

    def state(self) -> tuple[dict[str, type], dict[str, str]]:
        """What is listed now, for `restore`."""
        return dict(self._all()), dict(self.broken)

    def restore(self, state: tuple[dict[str, type], dict[str, str]] | None) -> None:
        """List what was listed then; None: what the list began with, and the entry points."""
        if state is None:
            self._makes, self.broken, self._outside_read = dict(self._first), {}, False
        else:
            self._makes, self.broken = dict(state[0]), dict(state[1])

    def _plain_names(self) -> dict[str, type]:
        # A choice knows its class by the class' own name, whatever name another package lists it under.
        own = {_plain(make.__name__): make for make in self._makes.values()}
        return own | {_plain(name): make for name, make in self._makes.items()}

    def __iter__(self) -> Iterator[type]:
        return iter(self._all().values())

    def names(self) -> list[str]:
        return list(self._all())

    def find(self, name: str) -> type:
        """The class called `name`, whatever its case; dashes and underscores do not count."""
        names = self.names()
        found = self._plain_names().get(_plain(name))
        if found is not None:
            return found
        if "," in name and all(self._has(part) for part in name.split(",")):
            raise ConfigError(f"{name!r}: separate {self.kind}s with spaces, as in: {' '.join(name.split(','))}")
        for broken, why in self.broken.items():
            if _plain(broken) == _plain(name):
                raise ConfigError(why)
        raise UnknownName(
            f"there is no {self.kind} {name!r}{near_miss(name, names)}; there are: {', '.join(names)} "
            "(your own: add --plugin FILE, or pass the class itself in a study file)"
        )

    def parse(self, text: str) -> Choice:
        """A choice from one word of a command line: `fire`, `fire:hidden_layers=1,activation=gelu`; of encodings also a
        pattern over layers, `rope*3+nope`. `ConfigError` for what is not known, and for a setting that is given twice."""
        # A task may have a plus in a path.
        parts = layers_of(text) if self.kind == "encoding" else [text]
        times = [re.fullmatch(r"(.*[^*])\*(\d{1,9})", part) for part in parts]
        if len(parts) > 1 or times[0]:
            if not all(part.strip() for part in parts):
                raise ConfigError(f"{text!r}: a layer of the pattern has no name; write it like rope*3+nope")
            choices = [
                (self._one(m[1]), int(m[2])) if m else (self._one(p), 1) for p, m in zip(parts, times, strict=True)
            ]
            if sum(count for _, count in choices) > 1000 or not all(count for _, count in choices):
                raise ConfigError(f"{text!r}: a choice holds for 1 or more layers, and a pattern for at most 1,000")
            return alternate(*(choice for choice, count in choices for _ in range(count)))
        return self._one(text)

    def _one(self, text: str) -> Choice:
        name, _, rest = text.partition(":")
        make = self.find(name)
        settings: dict[str, Any] = {}
        known = settings_of(make)
        for part in filter(None, between_commas(rest)):
            key, equals, value = part.partition("=")
            key = key.strip().replace("-", "_")
            if not equals and self._has(part):
                raise ConfigError(f"{text!r}: separate {self.kind}s with spaces, and not with commas: ... {part} ...")
            if not equals:
                raise ConfigError(f"{text!r}: {part!r} is not a setting; write {make.__name__.lower()}:name=value")
            _require_settings(make, [key])
            if key in settings:
                raise ConfigError(f"{text!r} gives {make.__name__}.{key} twice; leave one of them out")
            settings[key] = parse_value(value.strip(), annotation(make, known[key]), f"{make.__name__}.{key}")
        return choose(make, **settings)


def layers_of(text: str) -> list[str]:
    """The parts of a pattern over layers. A plus before a digit belongs to a number (1e+6)."""
    return re.split(r"\+(?![\d.])", text)


def between_commas(text: str) -> list[str]:
    """The parts of a text between its commas, but for those of a list in brackets: `a=[1,2],b` is `a=[1,2]` and `b`."""
    return re.split(r",(?![^\[]*\])", text)


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")


def choice_from_data(kind: str, data: Any) -> Choice:
    """The choice that `to_data` described, of the class as it is now: whether its version is still the same is seen by
    comparing keys."""
    if not isinstance(data, Mapping) or not isinstance(data.get("is"), str):
        raise ConfigError(f'a choice of {kind} is described by an object like {{"is": "NAME", ...}}, not by {data!r}')
    settings = {k: v for k, v in data.items() if k not in ("is", "class", "remaining_layers")}
    choice = choose(Registry.known[kind].find(data["is"]), **settings)
    if "remaining_layers" not in data:
        return choice
    if not isinstance(data["remaining_layers"], (list, tuple)) or not data["remaining_layers"]:
        raise ConfigError(
            f"{choice.label}: remaining_layers is {data['remaining_layers']!r}; it has to be a list of the choices that follow"
        )
    return alternate(choice, *(choice_from_data(kind, other) for other in data["remaining_layers"]))
