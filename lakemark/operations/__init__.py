"""What a caller can do to a table: write, run table services, undo, change the version.

Each operation is a function of an ``OpenTable``: it plans, changes the table through
``lakemark.transaction``, and carries the cached timeline and view of the open table forward.
"""
