"""Delivers the changes of a table to a Kafka topic, a file or standard output."""
