"""The source that reads records and their offsets from Kafka."""
