"""Changes the version of a table, on request."""
