"""Partial updates: rows with only some columns, completed from other records of their keys."""
