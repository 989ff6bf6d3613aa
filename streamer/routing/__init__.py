"""Runs pipelines that divide one topic among many tables."""
