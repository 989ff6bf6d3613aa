"""One process per engine: each reads the topic in its own way and tells its batches."""
