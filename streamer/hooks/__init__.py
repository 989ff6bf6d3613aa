"""Hooks announce what a pipeline has done: to HTTP servers, topics, lineage and traces."""
