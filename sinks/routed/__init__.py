"""Writes one stream to many tables."""
