"""The metadata table in ``.hoodie/metadata``, which lists and indexes the data table's files."""
