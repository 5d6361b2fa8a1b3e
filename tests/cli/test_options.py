"""Options that several commands share."""

import pytest
from cyclopts import App

from lengthwise.cli.options import option_class, split_names


@pytest.mark.parametrize(
    ("listed", "found"),
    [
        (None, []),
        ("rope", ["rope"]),
        ("rope, ALIBI ,fire", ["rope", "ALIBI", "fire"]),
        ("rope,fire:c=1,L=8,alibi", ["rope", "fire:c=1,L=8", "alibi"]),
        ("fire:c=1,fire:c=2", ["fire:c=1", "fire:c=2"]),
        ("consecutive,skip:target_length=9,chunks=3", ["consecutive", "skip:target_length=9,chunks=3"]),
        ("longrope:long_factor=[1,2],factor=2,rope", ["longrope:long_factor=[1,2],factor=2", "rope"]),
    ],
)
def test_words(listed, found):
    assert split_names(listed) == found


@option_class
class Greeting:
    name: str = "you"
    """Whom to greet,
    in one line.

    This paragraph is about the field in Python.
    """
    loud: bool = False
    """Whether to shout."""


def test_the_fields_of_a_class_are_options_with_their_docstrings_as_help(capsys: pytest.CaptureFixture[str]) -> None:
    app = App(result_action="return_value")

    @app.default
    def greet(*, greeting: Greeting = Greeting()) -> Greeting:  # noqa: B008
        return greeting

    assert app(["--name", "her", "--loud"]) == Greeting(name="her", loud=True)
    assert app([]) == Greeting()
    app(["--help"])
    said = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "Whom to greet, in one line." in said
    assert "This paragraph" not in said
