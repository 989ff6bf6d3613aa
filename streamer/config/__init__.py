"""The pipeline file: its settings, their validation, and printing them without secrets."""
