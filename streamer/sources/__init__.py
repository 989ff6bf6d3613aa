"""The source of records, and its offsets."""
