"""Prometheus metrics of a run, and the HTTP endpoint that serves them."""
