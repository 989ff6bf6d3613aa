"""A table's schema: stored as Avro, used as Arrow."""
