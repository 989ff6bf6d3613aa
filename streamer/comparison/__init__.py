"""Compares the rows of two tables as of the same position in their source."""
