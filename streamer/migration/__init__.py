"""Translates a job of HoodieStreamer to a pipeline file (``lakemark migrate``)."""
