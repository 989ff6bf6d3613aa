"""The application: from a pipeline file to a running stream, and the command line."""
