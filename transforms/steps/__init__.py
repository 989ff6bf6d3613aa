"""The steps between decoding and record keys (``transform`` in the pipeline file)."""
