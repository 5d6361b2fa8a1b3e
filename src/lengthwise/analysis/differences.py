"""The settings in which runs, tasks or encodings with equal names differ."""

import json
from collections.abc import Hashable, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from lengthwise.analysis.protocol import canonical

LastUse = tuple[float, float]  # see `gather.last_use`


def titles(names: Sequence[str], settings: Sequence[Mapping[str, Any]], times: Sequence[LastUse]) -> list[str]:
    """Return the names. Equal names are followed by the settings in which they differ: `Text (train_length 64)`."""
    differ = differences(names, settings, times)
    return [f"{name} ({words})" if words else name for name, words in zip(names, differ, strict=True)]


def differences(
    names: Sequence[Hashable], settings: Sequence[Mapping[str, Any]], times: Sequence[LastUse]
) -> list[str]:
    """Return, for each name, the settings in which it differs from equal names, such as `train_length 64`; "" without
    any.

    A setting is left out if another one that differs determines it, as the training length may determine the batch
    size. Of paths only the last part is returned if these parts differ.

    The code of a plug-in class may have changed between runs. Of several code hashes, the one with the latest of
    `times` (see `last_use`) is marked as the last used one, the others as earlier.
    """
    twins: dict[Hashable, list[int]] = {}
    for place, name in enumerate(names):
        twins.setdefault(name, []).append(place)
    texts = [""] * len(names)
    for places in twins.values():
        if len(places) > 1:
            known = dict.fromkeys(key for place in places for key in settings[place])
            values = {key: [canonical(settings[place].get(key)) for place in places] for key in known}
            odd = _independent({key: column for key, column in values.items() if len(set(column)) > 1})
            latest = settings[max(places, key=lambda place: times[place])]
            for place in places:
                own = settings[place]
                shown = {key: _last_part(key, own[key], values[key]) for key in odd if key in own}
                texts[place] = ", ".join(_setting(key, value, latest.get(key)) for key, value in shown.items())
    return texts


TELLING = ("train_length", "path", "d_model")  # settings that say more than those that they determine


def _independent(columns: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the names of the columns without those that another one determines, in their order."""
    independent: list[str] = []
    telling = [key for name in TELLING for key in columns if key.rpartition(".")[2] == name]
    for key in dict.fromkeys([*telling, *columns]):
        pairs = (set(zip(columns[other], columns[key], strict=True)) for other in independent)
        if key.endswith(".code") or all(
            len(value_pairs) > len({one for one, _ in value_pairs}) for value_pairs in pairs
        ):
            independent.append(key)
    return [key for key in columns if key in independent]


def _last_part(key: str, value: Any, column: Sequence[str]) -> Any:
    """Return the last part of a path, if the paths of the column differ in it, and any other setting as it is."""
    if key.rpartition(".")[2] != "path" or not isinstance(value, str):
        return value
    paths = {path for path in map(json.loads, column) if isinstance(path, str)}
    return PurePath(value).name if len({PurePath(path).name for path in paths}) == len(paths) else value


def _setting(key: str, value: Any, latest: Any) -> str:
    """Return a setting as titles show it: `train_length 64`, `last used code 1f3a9c02`."""
    name = key.rpartition(".")[2]
    if name != "code":
        return f"{name} {plain(value)}"
    return f"{'last used' if value == latest else 'earlier'} code {str(value)[:8]}"


def flat(data: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten nested objects: {"versions": {"torch": "2.13"}} → {"versions.torch": "2.13"}."""
    result: dict[str, Any] = {}
    for key, value in data.items():
        if isinstance(value, Mapping):
            result |= flat(value, f"{prefix}{key}.")
        else:
            result[f"{prefix}{key}"] = value
    return result


def plain(value: Any) -> str:
    """Return a setting as text. Hashes are shortened to 12 digits."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text[:12] if len(text) == 64 and set(text) <= set("0123456789abcdef") else text
