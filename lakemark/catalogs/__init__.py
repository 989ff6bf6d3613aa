"""Registers tables in catalogs, such as a Hive metastore, so that other engines find them."""
