"""A table's schema: Avro as it is stored, Arrow as it is held."""
