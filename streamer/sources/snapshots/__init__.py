"""A snapshot as a source, and the topic that is read after it."""
