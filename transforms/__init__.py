"""Converts Kafka records to changes of a table, or to rejects."""
