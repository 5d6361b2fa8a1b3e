"""Checks of the names of settings: misspelt ones, those of other classes, and several for the same setting."""

import difflib
import inspect
import re
from collections.abc import Mapping
from typing import Any

from transformers.configuration_utils import ALLOWED_LAYER_TYPES

from lengthwise.evaluation.pretrained.rope_values import SYNONYMS
from lengthwise.huggingface.cases import MOVABLE, Case, Texts, is_number, is_theta, join_values, with_rope_type

RELEVANT = re.compile(
    r"\w*(rope|rotary|position|window|head|theta|layer_types|alibi|seq_len|seq_length|softcap|query_pre_attn|"
    r"num_hidden_layers|attention_chunk|attn_temperature|attn_config|attn_scale|floor_scale|hidden_size|dtype|use_cache"
    r")\w*|n_ctx|n_embd|n_layer"
)
"""Names of settings that concern positions and the shapes of attention layers."""
ABOUT_POSITIONS = re.compile("rope|rotary|theta|^alibi|use_alibi|^attention_chunk_size")
OF_TEXT = re.compile("rope|rotary|theta|position|window|layer_types|chunk|alibi|softcap")
SAME = (
    ("max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length", "seq_length"),
    ("sliding_window", "window_size", "sliding_window_size", "attention_window_size"),
    ("rotary_pct", "partial_rotary_factor", "rope_pct", "rotary_percent", "rope_percent"),
)
"""Names that classes of transformers, or older files, have for the same setting."""
ROPE_KEYS = ("rope_parameters", "original_max_position_embeddings", "partial_rotary_factor", "rope_theta", *MOVABLE)
FLAT = ("rope_type", "factor", "rope_scaling_factor", "rope_scaling_type", *MOVABLE)
WRITTEN_OUTSIDE = ("rope_theta", "rope_scaling", "rope_parameters", "partial_rotary_factor", "torch_dtype")
SIMILAR = 0.85  # of two names (`difflib`), where a misspelt one differs by a letter or two
SIZES = (
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "hidden_size",
    "max_position_embeddings",
    "dtype",
)


def contradicting_keys(case: Case) -> Texts:
    """Two keys for the same setting with different values: transformers takes one of them and says nothing.

    rope_scaling comes before rope_parameters, rope_type before type, and a key in these before the same one outside.
    """
    settings, config = case.folder.settings, case.folder.config
    old, new = settings.get("rope_scaling"), settings.get("rope_parameters")
    if isinstance(old, Mapping) and isinstance(new, Mapping) and old and new:
        first, second = (with_rope_type(entry) for entry in (old, new))
        if keys := sorted(
            key for key in {*first, *second} if first.get(key) != second.get(key) and key != "rope_theta"
        ):
            differing = ", ".join(map(str, keys))
            yield f"rope_scaling and rope_parameters differ in {differing}; transformers takes rope_scaling; remove one"
        elif lost := lost_theta(case):
            yield f"rope_scaling replaces rope_parameters, and rope_theta = {lost:g} in it is lost; remove rope_scaling"
    entries = case.folder.rope_entries()
    for name, entry in entries:
        kind, other = entry.get("rope_type"), entry.get("type")
        if kind is not None and other is not None and SYNONYMS.get(kind, kind) != SYNONYMS.get(other, other):
            yield f"{name} has rope_type {kind!r} and type {other!r}; transformers takes {kind!r}; remove type"
    read = names_read(type(config))
    for key, names in (
        ("rope_theta", [name for name, value in settings.items() if is_theta(name, value)]),
        ("partial_rotary_factor", ["partial_rotary_factor", "rotary_pct"]),
        ("original_max_position_embeddings", ["original_max_position_embeddings"]),
    ):
        inside = [entry[key] for _, entry in entries if entry.get(key) is not None]
        outside = {name: settings[name] for name in names if settings.get(name) is not None and name in read}
        used = [entry.get(key) for _, entry in case.folder.used_entries()]
        for outer, value in outside.items():
            where = f"{key} = {inside[0]} in {entries[0][0].partition('.')[0]}" if inside else ""
            if not inside and value not in used:
                where = next((f"{name} = {other}" for name, other in outside.items() if other in used), "")
            if where and value not in inside:
                yield (
                    f"{outer} = {value} contradicts {where}; transformers takes {join_values(used)}; remove the "
                    "wrong one"
                )
    aliases = {**getattr(type(config), "attribute_map", {}), "torch_dtype": "dtype"}
    for alias, name in ((alias, name) for alias, name in aliases.items() if name in SIZES or alias in SIZES):
        one, other = settings.get(alias), settings.get(name)
        if one is not None and other is not None and one != other and alias != name:
            yield f"{alias} = {one} contradicts {name} = {other}, which is the same setting; remove the wrong one"


def misspelt_names(case: Case) -> dict[str, str]:
    """Return settings outside of rope_parameters with a misspelt name, and the name that the class reads."""
    names: dict[str, str] = {}
    pending: list[tuple[Mapping[str, Any], Any]] = [(case.folder.settings, case.folder.config)]
    for settings, config in pending:
        read = names_read(type(config))
        relevant = sorted(name for name in read if RELEVANT.fullmatch(name))
        for key, value in settings.items():
            if isinstance(value, Mapping) and hasattr(inner := getattr(config, key, None), "to_dict"):
                pending.append((value, inner))
            if key in read or key.startswith("_") or value is None:
                continue
            for name in difflib.get_close_matches(key.lower(), relevant, 1, SIMILAR):
                if name not in settings and not hasattr(type(config)(), key):  # a class may write what it has computed
                    names[key] = name
    return names


def names_read(cls: Any, *, general: bool = True) -> set[str]:
    """Return the names of settings that a class of transformers reads: its fields, and strings in its functions.

    `general`: also those that transformers reads for every class.
    """
    names = {
        *(WRITTEN_OUTSIDE if general else ()),
        *getattr(cls, "attribute_map", {}),
        *(name for name in dir(cls) if not name.startswith("_")),
    }
    for base in cls.__mro__:
        names |= set(getattr(base, "__dataclass_fields__", {}))
        if ".models." in base.__module__:
            functions = [inspect.unwrap(f) for f in vars(base).values() if inspect.isfunction(f)]
            names |= {c for f in functions for c in f.__code__.co_consts if isinstance(c, str)}
    return names


def lost_theta(case: Case) -> Any:
    """Return the rope_theta of rope_parameters that rope_scaling replaces, or None."""
    old, new = case.folder.settings.get("rope_scaling"), case.folder.settings.get("rope_parameters")
    theta = new.get("rope_theta") if old and isinstance(new, Mapping) else None
    used = [entry.get("rope_theta") for _, entry in case.folder.used_entries()]
    return theta if is_number(theta) and theta not in used else None


def misplaced_settings(case: Case) -> Texts:
    """Yield settings in a place, or under a name, where the class does not read them."""
    settings, config, whole = case.folder.settings, case.folder.config, case.folder.whole
    class_name = type(config).__name__
    if case.rotates and (flat := _flat(case)):
        yield _outside(flat, "rope_parameters", "transformers")
    fields = _fields(type(config))
    for name, entry in case.folder.rope_entries():
        for key, value in entry.items():
            is_read_outside = key in fields and key not in ROPE_KEYS
            if is_read_outside and _is_meaningful(value) and getattr(config, key, None) != value:
                yield f"{name} has {key}, which {class_name} reads outside of it; move it out"
    for key in other_names(case):
        target = next(name for name in _group(key) if name in names_read(type(config), general=False))
        yield f"{key} = {str(settings[key])[:40]} is not read by {class_name}; write it as {target}"
    if settings and settings is not whole:
        of_top = _fields(type(case.folder.top))
        lost = [
            key
            for key in whole
            if OF_TEXT.search(key) and key in {*fields, *WRITTEN_OUTSIDE} - of_top and _is_lost(case, key, whole[key])
        ]
        if lost:
            yield _outside(lost, "text_config", class_name)
    yield from _unknown_kinds(case)


def _outside(keys: list[str], place: str, reader: str) -> str:
    verb, them = ("stands", "it") if len(keys) == 1 else ("stand", "them")
    return f"{', '.join(keys)} {verb} outside of {place}, where {reader} does not read {them}; move {them} there"


def _flat(case: Case) -> list[str]:
    """Return RoPE settings outside of rope_parameters that would change something there."""
    settings, fields = case.folder.settings, _fields(type(case.folder.config))
    used = [entry for _, entry in case.folder.used_entries()]
    keys = [
        key
        for key in FLAT
        if (value := settings.get(key)) is not None
        and key not in fields
        and not any(entry.get(key) == value for entry in used)
    ]
    return keys if any(_is_meaningful(settings[key]) and settings[key] != "default" for key in keys) else []


def _unknown_kinds(case: Case) -> Texts:
    """Yield RoPE settings for kinds of layers that the class does not have."""
    if not case.folder.used_entries() or not all(name for name, _ in case.folder.used_entries()):
        return
    config = case.folder.config
    of_class = getattr(type(config)(), "rope_parameters", None) or {}
    layer_types = sorted({str(kind) for kind in getattr(config, "layer_types", None) or ()})
    kinds = [name.partition(".")[2] for name, _ in case.folder.rope_entries()]
    if layer_types and (
        lost := [repr(k[:40]) for k in kinds if k and k not in (*layer_types, *ALLOWED_LAYER_TYPES, *of_class)]
    ):
        yield (
            f"there are RoPE settings for layers of the kind {', '.join(lost)}, which {type(config).__name__} does not "
            f"have; kinds in layer_types: {', '.join(layer_types)}"
        )


def _fields(cls: Any) -> set[str]:
    return {*getattr(cls, "__dataclass_fields__", {}), *getattr(cls, "attribute_map", {})}


def _group(key: str) -> tuple[str, ...]:
    return next((names for names in SAME if key in names), ())


def other_names(case: Case) -> list[str]:
    """Return settings under a name that other classes have for one that this class reads, and that is not written."""
    settings, names_of_class = case.folder.settings, names_read(type(case.folder.config), general=False)
    return [
        key
        for key, value in settings.items()
        if is_number(value)
        and (read := names_of_class.intersection(_group(key)))
        and key not in read
        and not any(_is_meaningful(settings.get(name)) for name in read)
        and not any(getattr(case.folder.config, name, None) == value for name in read)
    ]


def _is_lost(case: Case, key: str, value: Any) -> bool:
    """Return whether a setting outside of text_config is neither read nor the same as the one that is read."""
    used = [entry for _, entry in case.folder.used_entries()]
    if value == case.folder.settings.get(key):
        return False
    if isinstance(value, Mapping):
        return any(
            not any(entry.get(k) == v for entry in used) for k, v in with_rope_type(value).items() if v is not None
        )
    values = [getattr(case.folder.config, key, None), *(entry.get(key) for entry in used)]
    if is_theta(key, value):
        values += [entry.get("rope_theta") for entry in used]
    return _is_meaningful(value) and value not in values


def unread_settings(case: Case) -> Texts:
    """Settings about positions that other classes have, and this one does not read. They may be left over."""
    read = names_read(type(case.folder.config), general=case.rotates)
    names = [
        key
        for key, value in case.folder.settings.items()
        if ABOUT_POSITIONS.search(key)
        and key not in (*read, *misspelt_names(case), *other_names(case), *FLAT, "sliding_window")
        and _is_meaningful(value)
    ]
    used = [value for _, entry in case.folder.used_entries() for value in entry.values() if not isinstance(value, bool)]
    settings = case.folder.settings
    names = [name for name in names if settings[name] is True or settings[name] not in used or "chunk" in name]
    if names := [name for name in names if not name.startswith("_")]:
        yield (
            f"{type(case.folder.config).__name__} does not read {', '.join(names)}; check that it is the class of the "
            "model",
            False,
        )


def _is_meaningful(value: Any) -> bool:
    return value is True or (value is not None and value is not False and value not in (0, 1, "", [], {}))
