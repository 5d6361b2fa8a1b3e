"""Lengthwise: position encodings and the length generalization of Transformers.

`import lengthwise` is cheap: torch is imported when `lengthwise.encodings`, `lengthwise.attend` or another part that
needs it is first touched.
"""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from lengthwise import analysis as analysis
    from lengthwise import attention, encodings, models, positions, tasks
    from lengthwise import config as config
    from lengthwise import evaluation as evaluation
    from lengthwise import exchange as exchange
    from lengthwise import inspection as inspection
    from lengthwise import report as report
    from lengthwise import store as store
    from lengthwise import studies as studies
    from lengthwise import training as training
    from lengthwise.attention import TokenInfo, attend
    from lengthwise.config import alternate, choose
    from lengthwise.exchange import answers, results

_MODULES = (
    "analysis",
    "attention",
    "config",
    "encodings",
    "evaluation",
    "exchange",
    "inspection",
    "positions",
    "models",
    "report",
    "store",
    "studies",
    "tasks",
    "training",
)
_NAMES = {
    "TokenInfo": "lengthwise.attention",
    "alternate": "lengthwise.config",
    "answers": "lengthwise.exchange",
    "attend": "lengthwise.attention",
    "choose": "lengthwise.config",
    "results": "lengthwise.exchange",
}

__all__ = [
    "TokenInfo",
    "alternate",
    "answers",
    "attend",
    "attention",
    "choose",
    "encodings",
    "models",
    "positions",
    "results",
    "tasks",
]


if not TYPE_CHECKING:  # type checkers would accept any name

    def __getattr__(name: str) -> Any:
        if name in _MODULES:
            return importlib.import_module(f"lengthwise.{name}")
        if name in _NAMES:
            return getattr(importlib.import_module(_NAMES[name]), name)
        raise AttributeError(f"module 'lengthwise' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULES, *_NAMES])
