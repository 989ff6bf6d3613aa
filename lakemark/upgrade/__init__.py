"""Changes the version of a table (upgrade or downgrade)."""
