"""Rows that carry only some columns, and how they fill from the row before."""
