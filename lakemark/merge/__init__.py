"""Merging of records with the same key, in memory and streamed."""
