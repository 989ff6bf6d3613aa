"""Bytes and values of the format's small structures; whoever calls knows the files."""
