"""Sinks, which write each batch and its checkpoint as one commit."""
