"""Writes the files of a commit: base files, log files and markers."""
