"""The commands of the command line, in the order of its help."""

from importlib import import_module

from cyclopts import App

import lengthwise
from lengthwise.cli.options import with_plugins

app = App(
    name="lengthwise",
    help="Train short, test long: position encodings and the length generalization of Transformers.",
    help_format="plaintext",
    help_epilogue=(
        "First steps: lengthwise list encodings; lengthwise sample copy --length 5;\n"
        "lengthwise run studies/quickstart.py. Help for a command: lengthwise run --help"
    ),
    version=lengthwise.__version__,
    suppress_keyboard_interrupt=False,  # `main` prints how to continue
)

COMMANDS = (  # names of modules, each of which defines the function `command`
    "run",
    "work",
    "compare",
    "tokenize",
    "report",
    "serve",
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
    "upgrade",
    "export",
    "harness",
    "model",
    "reach",
    "extend",
    "pretrained",
)
for number, name in enumerate(COMMANDS, 1):
    command = import_module(f"lengthwise.cli.{name}").command
    app.command(with_plugins(command), name=name, sort_key=number, help_epilogue="")
