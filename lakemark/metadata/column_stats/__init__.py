"""Column and partition statistics of the metadata table."""
