"""Record keys and partition paths of incoming rows."""
