"""Whole histories of a table, simulated from a seed: the processes, their store and their time."""
