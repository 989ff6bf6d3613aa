"""Measures: ingest from Kafka against the floor and the peers."""
