"""Merging of records with the same key: one merge, in memory and streamed."""
