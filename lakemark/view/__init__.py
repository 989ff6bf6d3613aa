"""Views of a table: the file groups and file slices that are visible on its timeline."""
