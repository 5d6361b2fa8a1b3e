"""The `blocked` backend."""
