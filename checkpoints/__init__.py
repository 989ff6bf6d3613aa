"""Kafka offsets, and how commits of a table keep them."""
