"""Reads file slices (base files merged with logs), and plans scans."""
