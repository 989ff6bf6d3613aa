"""Indexes: which file group a record belongs to."""
