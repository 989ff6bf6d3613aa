"""The pipeline file: its settings, their validation, and their output without secrets."""
