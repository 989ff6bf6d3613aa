"""Rows of file slices: base files and logs, merged."""
