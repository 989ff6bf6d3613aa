"""A table of one version becomes one of another, on request."""
