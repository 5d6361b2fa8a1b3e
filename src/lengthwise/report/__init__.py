"""Turn findings into a self-contained HTML page and a table for the terminal. Nothing here imports torch."""

from lengthwise.report.page import ReportError, render, write
from lengthwise.report.terminal import table

__all__ = ["ReportError", "render", "table", "write"]
