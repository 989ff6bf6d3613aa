"""The application: it turns a pipeline file into a running stream, and has the command line."""
