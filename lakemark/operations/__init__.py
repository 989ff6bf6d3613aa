"""The operations on a table: write, run table services, undo commits, change the table version.

Each operation is a function with an ``OpenTable`` as argument. It plans a change, executes the
change through ``lakemark.transaction``, and updates the timeline and view that the open table
caches.
"""
