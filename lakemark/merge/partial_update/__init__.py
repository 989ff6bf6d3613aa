"""Partial updates: rows with only some columns, filled from other records with the same key."""
