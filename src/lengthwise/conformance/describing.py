"""Question 11: can it be written down and read back, and does a slip of the pen get a plain answer?"""

import json

from lengthwise.config import ConfigError, choice_from_data, choose, settings_of
from lengthwise.conformance.answers import Wrong, question
from lengthwise.conformance.cases import EncodingCase
from lengthwise.encodings import ENCODINGS


@question(
    11, "config", "config → JSON → config; an unknown setting is an error that names the near miss", on_backend=False
)
def describes(case: EncodingCase, backend: str) -> str:
    choice = case.choice
    data = choice.to_data()
    if set(data) != {"is", "class", *settings_of(case.make)}:
        raise Wrong(f"settings are not all written out: {sorted(data)}")
    text = json.dumps(data, allow_nan=False)
    if json.loads(text) != data or choice_from_data("encoding", json.loads(text)) != choice:
        raise Wrong(f"{text} does not come back as it was")
    for name in (case.make.__name__, case.make.__name__.upper(), case.make.__name__.lower()):
        if ENCODINGS.find(name) is not case.make:
            raise Wrong(f"{name} finds {ENCODINGS.find(name).__name__}")
    words = ",".join(f"{name}={json.dumps(value).strip(chr(34))}" for name, value in choice.settings)
    if (typed := ENCODINGS.parse(f"{case.make.__name__}:{words}")) != choice:
        raise Wrong(f"typed as {words} it becomes {typed.label}")
    for name in settings_of(case.make):
        slip = name[:-1] if len(name) > 3 else name + "_"
        _errs(case, slip, f"did you mean {name!r}")
        _errs(case, name, name, value=object())
    _errs(case, "no_such_setting", "no_such_setting")
    return text


def _errs(case: EncodingCase, name: str, words: str, value: object = 1) -> None:
    try:
        choose(case.make, **{name: value})
    except ConfigError as error:
        if words not in str(error) or case.make.__name__ not in str(error) or "\n" in str(error):
            raise Wrong(f"{name}={value!r}: the error {str(error)!r} has to be one line with {words!r}") from error
    else:
        raise Wrong(f"{name}={value!r} is accepted")
