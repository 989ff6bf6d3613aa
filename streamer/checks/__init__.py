"""Checks of what a pipeline needs. A start of a run and ``lakemark doctor`` share them."""
