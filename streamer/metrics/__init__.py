"""What monitoring sees of a run: Prometheus metrics, and the endpoint that serves them."""
