"""Kafka offsets, and how the commits of a table record them."""
