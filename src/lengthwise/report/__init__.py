"""Findings → a page that people look at and send to others, and a table for the terminal. Imports no torch."""

from lengthwise.report.page import render, write
from lengthwise.report.terminal import table

__all__ = ["render", "table", "write"]
