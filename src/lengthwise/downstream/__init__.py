"""Benchmarks of tasks on texts: how their published files are read, and how answers are scored, without PyTorch."""
