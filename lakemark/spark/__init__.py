"""Spark: runner, reader and data source; the only package that imports PySpark."""
