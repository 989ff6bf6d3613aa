"""A batch and its checkpoint become one commit."""
