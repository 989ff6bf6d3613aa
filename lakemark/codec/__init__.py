"""Encodes and decodes the small structures of Hudi's files: Avro, HFile, bloom filters, hashes.

The functions work on bytes in memory or on open files. They open no files themselves.
"""
