"""Runs several pipelines in one process."""
