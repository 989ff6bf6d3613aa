"""Rows in, rows and rejects out: what happens to records between Kafka and the table."""
