"""Choices: a class of a registry with its settings, fixed before the sizes of the model are known."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from importlib.metadata import entry_points
from itertools import groupby
from typing import Any, ClassVar

from lengthwise.config.class_settings import annotation, from_context, settings_of, shown_settings
from lengthwise.config.layers import (
    LAYER_TYPES,
    LayerSettings,
    is_temperature,
    layer_settings_by_name,
    layer_settings_of,
    repeated_layers,
    require_closed_parentheses,
    require_combination,
    split_at_commas,
    split_layers,
    with_colon,
)
from lengthwise.user_classes import require_complete, source_location
from lengthwise.validation import parse_value, validated
from lengthwise.values import ConfigError, folded, near_miss, require_known, unlisted
from lengthwise.versions import class_version


class UnknownName(ConfigError):
    """A name that is in no list of encodings, tasks or position schemes."""


@dataclass(frozen=True)
class Choice:
    """A class of a registry with all its settings, including defaults, from `choose`. `build` creates an instance.

    `layer`: what a layer with this encoding has in addition. `written`: the names of the settings that were given to
    `choose`, the others having their defaults. `inherited`: those that were taken from a model. Both do not count when
    choices are compared.
    """

    kind: str
    name: str
    settings: tuple[tuple[str, Any], ...]
    cls: type = field(compare=False, repr=False)
    remaining_layers: tuple["Choice", ...] = ()  # the layers after the first one of a repeated pattern, see `alternate`
    layer: LayerSettings = field(default_factory=LayerSettings)
    written: frozenset[str] = field(default=frozenset(), compare=False, repr=False)
    inherited: tuple[str, ...] = field(default=(), compare=False, repr=False)

    def build(self, **context: Any) -> Any:
        """Return an instance. The class receives only those arguments of `context` that its `__init__` has.

        An encoding with a temperature or sinks is one instance of both. A window does not belong to it.
        """
        assert not self.remaining_layers, "a pattern over layers: build its `layers`"
        if len(self.parts) > 1:
            return Registry.by_kind[self.kind].combine([part.build(**context) for part in self.parts])
        return self.cls(**from_context(self.cls, context), **dict(self.settings))

    @property
    def parts(self) -> tuple["Choice", ...]:
        """Return the choices that one layer combines: the encoding, its temperature and its sinks, if it has them."""
        extra = (self.layer.temperature,) if self.layer.temperature is not None else ()
        if self.layer.sinks:
            extra = (*extra, choose(Registry.by_kind[self.kind].find("Sinks")))
        return (replace(self, layer=LayerSettings(), remaining_layers=()), *extra)

    @property
    def shared_across_layers(self) -> bool | None:
        """Whether by default one module serves all layers; None if the encoding and its temperature or sinks differ."""
        shared = {bool(getattr(part.cls, "shared_across_layers", False)) for part in self.parts}
        return shared.pop() if len(shared) == 1 else None

    @property
    def layers(self) -> tuple["Choice", ...]:
        """Return the choices of one repetition of the pattern. A plain choice has one layer."""
        return (replace(self, remaining_layers=()), *self.remaining_layers)

    def require_layers(self, count: int) -> None:
        """Raise `ConfigError` if a model has fewer layers than the pattern, so that some encoding would not be used."""
        if len(self.layers) > count:
            raise ConfigError(
                f"num_layers must be at least {len(self.layers)} for the pattern {self.label}, got {count}; use more "
                "layers or a shorter pattern"
            )

    def to_data(self) -> dict[str, Any]:
        """Return plain JSON data: the name, the version of the class (see `class_version`), and every setting.

        A setting that a class got after its first runs were stored is omitted where it has its default, so that these
        runs keep their keys (the class names it in `omitted_defaults`).
        """
        newer = {name: settings_of(self.cls)[name].default for name in getattr(self.cls, "omitted_defaults", ())}
        settings = {k: v for k, v in self.settings if k not in newer or v != newer[k]}
        settings = {k: list(v) if isinstance(v, tuple) else v for k, v in settings.items()}  # JSON has no tuples
        in_layer = layer_settings_by_name(self.cls, self.layer.to_data())
        data = {"is": self.name, "class": class_version(self.cls), **settings, **in_layer}
        if self.remaining_layers:
            data["remaining_layers"] = [choice.to_data() for choice in self.remaining_layers]
        return data

    def identity(self) -> dict[str, Any]:
        """Return the part of `to_data` that enters the run key. A path is excluded if the file's hash is included."""
        skip = getattr(self.cls, "excluded_from_key", ())
        return {k: v for k, v in self.to_data().items() if k not in skip}

    @property
    def label(self) -> str:
        """Return the name with the settings that differ from their defaults: `FIRE(hidden_layers=1)`, `RoPE*3+NoPE`.

        A class may name settings that are always shown: `YaRN(factor=4.0)`.
        """
        if self.remaining_layers:
            groups = [(label, len(list(group))) for label, group in groupby(choice.label for choice in self.layers)]
            return "+".join(f"{label}*{count}" if count > 1 else label for label, count in groups)
        skip = {"sha256", *getattr(self.cls, "excluded_from_key", ())}
        shown = shown_settings(self.cls, {k: v for k, v in self.settings if k not in skip})
        in_layer = (f"{name}={getattr(value, 'label', value)}" for name, value in self.layer_settings.items())
        shown = ", ".join(filter(None, (shown, *in_layer)))
        return f"{self.name}({shown})" if shown else self.name

    @property
    def layer_settings(self) -> dict[str, Any]:
        """Return the settings of the layer that are not the defaults, by the names that they have for this class."""
        return layer_settings_by_name(self.cls, self.layer.non_defaults)

    @property
    def located_label(self) -> str:
        """Return the label with the path of the choice's data, if it has one, for messages about two of them."""
        path = dict(self.settings).get("path")
        return f"{self.label} of {path}" if path else self.label


def choose(make: type, **settings: Any) -> Choice:
    """Return a choice of a class and its settings, such as `choose(FIRE, hidden_layers=1)`.

    An encoding also has the settings of its layer (`LayerSettings`), as in `choose(RoPE, window=512)`. Names, types and
    values are checked immediately. A class may have a classmethod `check(settings) -> settings` that raises
    `ValueError` for invalid values and may add settings (a corpus adds its hash).
    """
    kind = getattr(make, "kind", None)
    if not isinstance(make, type) or kind is None:
        raise ConfigError(f"choose() takes the class of an encoding, a task or a position scheme, got {make!r}")
    require_complete(make)
    Registry.by_kind[kind].require_unique_name(make)
    layer = {field: settings.pop(name) for name, field in layer_settings_of(make).items() if name in settings}
    _require_settings(make, settings)
    complete = {
        name: validated(settings.get(name, p.default), annotation(make, p), f"{make.__name__}.{name}")
        for name, p in settings_of(make).items()
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
            expected = "a setting must be a number, a text, True, False, None or a tuple of such values"
            raise ConfigError(f"{make.__name__}.{name} is a {type(value).__name__}; {expected}") from error
    choice = Choice(kind, make.__name__, tuple(complete.items()), make, written=frozenset(settings))
    return _in_layer(choice, **layer)


def _in_layer(choice: Choice, **settings: Any) -> Choice:
    """Return the choice with the settings of its layer, after checking them."""
    if not settings:
        return choice
    layer, registry = LayerSettings(**settings), Registry.by_kind[choice.kind]
    layer.require(choice.name)
    temperatures = [make.__name__ for make in registry if is_temperature(make)]
    if isinstance(layer.temperature, str):
        try:
            layer = replace(layer, temperature=registry.parse_layer(layer.temperature))
        except UnknownName:
            got = unlisted(layer.temperature, temperatures)
            raise ConfigError(f"{choice.name}.temperature must be a temperature, got {got}") from None
    if layer.temperature is not None:
        require_choice(f"{choice.name}.temperature", layer.temperature)
    require_combination(choice.cls, layer, temperatures)
    return replace(choice, layer=layer)


def _require_settings(make: type, names: Iterable[str]) -> None:
    """Raise `ConfigError` for an unknown setting. For one in `settings_of_others`, name the classes that have it."""
    settings = settings_of(make)
    for name in names:
        if name not in settings and name in getattr(make, "settings_of_others", ()):
            registry = Registry.by_kind[make.kind]  # type: ignore[attr-defined]
            others = ", ".join(other.__name__ for other in registry if name in settings_of(other))
            raise ConfigError(f"{make.__name__} has no {name}; the {registry.plural} that have one are: {others}")
    require_known(make.__name__, names, [*settings, *layer_settings_of(make)])


def alternate(*choices: Choice) -> Choice:
    """Return a pattern over layers: the first layer has the first choice, and so on, repeated for all layers.

    For example, every fourth layer without position encoding (iRoPE, RNoPE-SWA): `alternate(rope, rope, rope, nope)`,
    which is `rope*3+nope` on the command line, or `rope(window=512)*3+nope` if the other layers have a window. Another
    base for every sixth layer: `alternate(*[choose(RoPE)] * 5, choose(RoPE, base=1e6))`.
    """
    if not choices:
        raise ConfigError("alternate() needs at least one choice; give one for each layer of the pattern")
    for choice in choices:
        require_choice("alternate()", choice)
        if choice.remaining_layers:
            raise ConfigError(f"alternate() takes single choices, got the pattern {choice.label}; give it its choices")
        if (acts := getattr(choice.cls, "acts_on_embedding", None)) is None:
            raise ConfigError(f"alternate() takes encodings, got {choice.name}")
        if len(set(choices)) > 1 and acts():
            raise ConfigError(
                f"{choice.name} changes embeddings before the first layer, so it cannot alternate with other encodings "
                "over layers; use it alone"
            )
    for size in range(1, len(choices)):  # reduce repetitions, so that equal patterns have equal keys
        if len(choices) % size == 0 and choices == choices[:size] * (len(choices) // size):
            choices = choices[:size]
            break
    return replace(choices[0], remaining_layers=choices[1:])


def require_choice(caller: str, value: object) -> None:
    """Raise `ConfigError` unless `value` is a choice of an encoding, and not a class, an instance or a name."""
    if not isinstance(value, Choice):
        has_kind = getattr(value, "kind", None)
        name = value.__name__ if isinstance(value, type) else type(value).__name__ if has_kind else repr(value)
        raise ConfigError(f"{caller} takes choices, got {name}; write choose({name if has_kind else 'RoPE'})")
    if value.kind != "encoding":
        raise ConfigError(f"{caller} takes an encoding, got the {value.kind} {value.label}")


class Registry:
    """The list of all classes of one kind: encodings, tasks or position schemes.

    Other packages add classes through the entry-point group `lengthwise.<plural>`, and plug-ins through `add` (see
    `plugins.py`). Names ignore case.
    """

    by_kind: ClassVar[dict[str, "Registry"]] = {}

    def __init__(
        self, kind: str, makes: Iterable[type], plural: str, combine: Callable[[list[Any]], Any] | None = None
    ):
        self.kind, self.plural = kind, plural
        self._combine = combine
        self._builtin = {make.__name__: make for make in makes}
        self._classes = dict(self._builtin)
        self._entry_points_loaded = False
        self.broken: dict[str, str] = {}  # name -> why a class of another package cannot be used
        Registry.by_kind[kind] = self

    def combine(self, parts: list[Any]) -> Any:
        """Return one instance that does what all parts do; see `Choice.parts`."""
        assert self._combine is not None, f"a {self.kind} has no parts"
        return self._combine(parts)

    def _all(self) -> dict[str, type]:
        if not self._entry_points_loaded:
            self._entry_points_loaded = True
            for point in entry_points(group=f"lengthwise.{self.plural}"):
                self._add_entry_point(point)
        return self._classes

    def _add_entry_point(self, point: Any) -> None:
        """Add a class of another package. If it cannot be loaded, the error is raised only when its name is used."""
        package = getattr(getattr(point, "dist", None), "name", "another package")
        where = f"the entry point {point.name!r} of {package}"
        try:
            make = point.load()
        except (Exception, SystemExit) as error:
            problem = f"cannot be loaded: {type(error).__name__}: {' '.join(str(error).split())}"
        else:
            if not isinstance(make, type) or getattr(make, "kind", None) != self.kind:
                problem = f"must be a class of kind {self.kind}, got {make!r}"
            elif (clash := self._clash(point.name, make)) is not None:
                problem = f"has the same name as {clash.__name__}, which is already listed"
            else:
                self._classes[point.name] = make
                return
        self.broken[point.name] = f"{where} {problem}; fix or remove that package"

    def has(self, name: str) -> bool:
        self._all()
        return folded(name.strip()) in self._by_folded_name()

    def add(self, make: type) -> None:
        """Add a class of a plug-in. Raise `ConfigError` if another class has the same name."""
        self._all()
        if (clash := self._clash(make.__name__, make)) is not None:
            raise ConfigError(
                f"its {self.kind} {make.__name__} has the same name as {clash.__name__} of {clash.__module__}; rename "
                "it"
            )
        self._classes[make.__name__] = make

    def require_unique_name(self, make: type) -> None:
        """Raise `ConfigError` if a built-in class has the name of this unlisted one."""
        builtin = {folded(name): listed for name, listed in self._builtin.items()}
        namesake = builtin.get(folded(make.__name__), make)
        if namesake is not make and make not in self._classes.values():
            raise ConfigError(
                f"{source_location(make)}: the {self.kind} {make.__name__} has the same name as {namesake.__name__} of "
                f"{namesake.__module__}; rename it"
            )

    def _clash(self, name: str, make: type) -> type | None:
        """Return another class that is already listed under this name or this class's name."""
        listed = self._by_folded_name()
        others = (listed.get(folded(n), make) for n in (name, make.__name__))
        return next((other for other in others if other is not make), None)

    def state(self) -> dict[str, type]:
        """Return the current content of the list, for `restore`."""
        return dict(self._all())

    def restore(self, state: dict[str, type] | None) -> None:
        """Restore the content that `state` returned, or with None the built-in classes and the entry points."""
        if state is None:
            self._classes, self.broken, self._entry_points_loaded = dict(self._builtin), {}, False
        else:
            self._classes = dict(state)

    def _by_folded_name(self) -> dict[str, type]:
        # A choice stores the class's own name, which may differ from the name of its entry point.
        class_names = {folded(make.__name__): make for make in self._classes.values()}
        return class_names | {folded(name): make for name, make in self._classes.items()}

    def __iter__(self) -> Iterator[type]:
        return iter(self._all().values())

    def names(self) -> list[str]:
        return list(self._all())

    def find(self, name: str) -> type:
        """Return the class with this name, ignoring case, dashes and underscores."""
        names = self.names()
        make = self._by_folded_name().get(folded(name))
        if make is not None:
            return make
        words = [word for word in name.split(",") if word.strip()]
        if "," in name and words and all(self.has(word) for word in words):
            raise ConfigError(f"{name!r}: separate {self.kind}s with spaces, as in: {' '.join(words)}")
        if len(words) > 1 and self.has(words[0]) and "=" in words[1]:
            raise ConfigError(f"{name!r}: write settings after a colon: {words[0]}:{','.join(words[1:])}")
        for broken, reason in self.broken.items():
            if folded(broken) == folded(name):
                raise ConfigError(reason)
        if self.kind == "encoding" and re.search(r"[()\[\]{}*]", name):
            raise UnknownName(
                f"{name!r} is no encoding; write the name, then settings in parentheses, then * and a number of "
                "layers, as in rope(window=512)*3"
            )
        if near_miss(name, names):
            raise UnknownName(f"there is no {self.kind} {unlisted(name, names)}")
        advice = "for a class of your own, add --plugin FILE (in a study file, pass the class itself)"
        raise UnknownName(f"there is no {self.kind} {name!r}; {advice}; available: {', '.join(names)}")

    def parse(self, text: str) -> Choice:
        """Return the choice for a name with optional settings: `fire`, `fire:hidden_layers=1`, `fire(hidden_layers=1)`.

        For encodings, the text may also be a pattern over layers, `rope(window=512)*3+nope(temperature=ssmax)`. Raise
        `ConfigError` for unknown names and for repeated settings.
        """
        if self.kind == "encoding":
            require_closed_parentheses(text)
        terms = split_layers(text) if self.kind == "encoding" else [text]  # a task's path may contain a plus
        if layers := repeated_layers(text, terms):
            choices = {layer: self.parse_layer(layer) for layer in dict.fromkeys(layers)}
            return alternate(*(choices[layer] for layer in layers))
        return self.parse_layer(text)

    def parse_layer(self, text: str) -> Choice:
        """Return the choice for a text that is no pattern."""
        name, _, rest = (with_colon(text) if self.kind == "encoding" else text).partition(":")
        make = self.find(name)
        settings: dict[str, Any] = {}
        class_settings, layer_settings = settings_of(make), layer_settings_of(make)
        for setting in filter(None, split_at_commas(rest)):
            key, equals, value = setting.partition("=")
            key = key.strip().replace("-", "_")
            if not equals and self.has(setting):
                raise ConfigError(f"{text!r}: separate {self.kind}s with spaces instead of commas: ... {setting} ...")
            if not equals:
                raise ConfigError(f"{text!r}: {setting!r} is not a setting; write {make.__name__.lower()}:name=value")
            _require_settings(make, [key])
            if key in settings:
                raise ConfigError(f"{text!r} sets {make.__name__}.{key} twice; omit one of them")
            kind = (
                LAYER_TYPES[layer_settings[key]][0] if key in layer_settings else annotation(make, class_settings[key])
            )
            settings[key] = parse_value(value.strip(), kind, f"{make.__name__}.{key}")
        return choose(make, **settings)
