"""The commands of the command line, in the order of its help."""

import inspect
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Group, Parameter, UnknownOptionError
from cyclopts.help import DefaultFormatter, HelpPanel

import lengthwise

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions

COMMANDS = (  # also the names of modules, each of which defines the function `command`
    "run",
    "work",
    "copy-study",
    "compare",
    "tokenize",
    "report",
    "serve",
    "statistics",
    "claims",
    "list",
    "show",
    "sample",
    "check",
    "inspect",
    "lengths",
    "probe",
    "bench",
    "retry",
    "cancel",
    "drop",
    "export",
    "import",
    "harness",
    "model",
    "reach",
    "extend",
)


class HelpFormatter(DefaultFormatter):
    """The help of cyclopts, in which the lines of a docstring are joined to paragraphs, unless they are indented."""

    def __call__(self, console: "Console", options: "ConsoleOptions", panel: HelpPanel) -> None:
        for entry in panel.entries:
            _join_lines(entry.description)
        super().__call__(console, options, panel)

    def render_description(self, console: "Console", options: "ConsoleOptions", description: Any) -> None:
        _join_lines(description)
        super().render_description(console, options, description)


def _join_lines(text: Any) -> None:
    from rich.text import Text

    plain = text.primary_renderable.plain
    text.primary_renderable = Text(re.sub(r"(?<=\S) *\n(?=\S)", " ", inspect.cleandoc(plain)))


app = App(
    name="lengthwise",
    help="Train short, test long: position encodings and the length generalization of Transformers.",
    help_format="plaintext",
    help_formatter=HelpFormatter(),
    help_epilogue=(
        "First steps: lengthwise list encodings; lengthwise sample copy --length 5;\n"
        "lengthwise run quickstart. Help for a command: lengthwise run --help"
    ),
    version=lengthwise.__version__,
    default_parameter=Parameter(negative=""),  # no --no-json
    exit_on_error=False,
    print_error=False,
    suppress_keyboard_interrupt=False,  # `main` prints how to continue
    result_action="return_value",
)
app.meta.suppress_keyboard_interrupt = False

for number, name in enumerate(COMMANDS):  # a module is imported when its command is used
    path = f"lengthwise.cli.{name.replace('-', '_')}"
    if name in ("export", "probe"):  # groups of commands
        app.command(f"{path}:app", name=name, sort_key=number)
    else:
        app.command(f"{path}:command", name=name, sort_key=number, help_epilogue="")


@app.meta.default
def with_plugins(
    *words: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)],
    plugin: Annotated[tuple[str, ...], Parameter(show_default=False, group=Group("Plug-ins", sort_key=1))] = (),
) -> object:
    """Run a command. The plug-ins' classes are listed while it runs.

    Args:
        plugin: A Python file or module with your own encodings, tasks or position schemes, to be used by name. May be
            repeated.
    """
    from lengthwise.plugins import plugins

    with plugins(plugin):
        try:
            return app(words)
        except UnknownOptionError as error:  # the option may be a misspelled --plugin
            error.argument_collection.extend(app.meta.assemble_argument_collection())
            raise


def run(arguments: Sequence[str]) -> object:
    """Run a command and return its exit code. Without arguments, print the help."""
    if not arguments or arguments[0] in app.help_flags:
        app.resolved_commands()  # the help has a line about each
    return app.meta(arguments or ["--help"])
