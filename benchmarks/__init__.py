"""Benchmarks: ingestion, queries, compaction and more, compared with other engines."""
