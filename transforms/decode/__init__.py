"""Bytes of Kafka values in, typed columns and rejects out."""
