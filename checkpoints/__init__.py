"""Positions in sources as checkpoints, which the commits of a table record."""
