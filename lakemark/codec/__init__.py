"""Bytes and values of the format's small structures; callers open the files."""
