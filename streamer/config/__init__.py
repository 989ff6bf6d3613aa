"""The pipeline file: typed, checked as a whole, printed without its secrets."""
