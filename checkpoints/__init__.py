"""Kafka offsets as checkpoints, which the commits of a table record."""
