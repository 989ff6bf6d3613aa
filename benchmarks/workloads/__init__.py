"""The workloads of the ingest benchmark: the records of a topic, and the table that must result."""
