"""Findings → a page that people look at and send to others, and a table for the terminal. Imports no torch."""

from lengthwise.report.page import ReportError, render, write
from lengthwise.report.terminal import table

__all__ = ["ReportError", "render", "table", "write"]
