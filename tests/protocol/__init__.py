"""Processes that work on one table at the same time, on one clock that a test moves."""
