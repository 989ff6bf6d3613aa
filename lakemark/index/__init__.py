"""Indexes, which decide the file group of each record."""
