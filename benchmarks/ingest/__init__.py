"""The ingest benchmark: how fast each engine writes one topic to one table."""
