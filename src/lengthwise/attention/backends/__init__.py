"""The attention backends other than `fused`."""
