"""Decodes the bytes of Kafka values to typed columns, or rejects them with a reason."""
