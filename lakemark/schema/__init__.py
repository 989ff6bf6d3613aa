"""The schema of a table, which is stored as Avro and used as Arrow."""
