"""Temperatures: encodings that multiply the logits of each query by a number that depends on its position."""
