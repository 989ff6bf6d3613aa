"""The metadata table: what a table keeps about its own files, in ``.hoodie/metadata``."""
