"""Question 11: can its configuration be saved and loaded, and does a typing error get a clear message?"""

import json

from lengthwise.config import ConfigError, choice_from_data, choose, settings_of
from lengthwise.conformance.answers import Failure, question
from lengthwise.conformance.cases import EncodingCase
from lengthwise.encodings import ENCODINGS


@question(
    11,
    "config",
    "Settings survive JSON; an unknown setting is an error that suggests the nearest name",
    on_backend=False,
)
def config(case: EncodingCase, backend: str) -> str:
    choice = case.choice
    data = choice.to_data()
    if set(data) != {"is", "class", *settings_of(case.cls)}:
        raise Failure(f"to_data() does not have all settings, only {sorted(data)}")
    text = json.dumps(data, allow_nan=False)
    if json.loads(text) != data or choice_from_data("encoding", json.loads(text)) != choice:
        raise Failure(f"{text} changes when it is saved as JSON and loaded")
    for name in (case.cls.__name__, case.cls.__name__.upper(), case.cls.__name__.lower()):
        if ENCODINGS.find(name) is not case.cls:
            raise Failure(f"{name} finds {ENCODINGS.find(name).__name__}")
    arguments = ",".join(f"{name}={json.dumps(value).strip(chr(34))}" for name, value in choice.settings)
    if (parsed := ENCODINGS.parse(f"{case.cls.__name__}:{arguments}")) != choice:
        raise Failure(f"{arguments} on the command line becomes {parsed.label}")
    for name in settings_of(case.cls):
        misspelled = name[:-1] if len(name) > 3 else name + "_"
        _require_error(case, misspelled, f"did you mean {name!r}")
        _require_error(case, name, name, value=object())
    _require_error(case, "no_such_setting", "no_such_setting")
    return text


def _require_error(case: EncodingCase, name: str, expected: str, value: object = 1) -> None:
    try:
        choose(case.cls, **{name: value})
    except ConfigError as error:
        if expected not in str(error) or case.cls.__name__ not in str(error) or "\n" in str(error):
            raise Failure(
                f"{name}={value!r}: the error must be one line with the class name and {expected!r}, got {str(error)!r}"
            ) from error
    else:
        raise Failure(f"{name}={value!r} is accepted")
