"""The source of tables: reads the rows of a table, then the changes of its commits."""
