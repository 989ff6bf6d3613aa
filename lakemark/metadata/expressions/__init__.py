"""Expression indexes: statistics or bloom filters of a function of a column.

commit_expressions   creates the records of a commit or a clean
validation           compares an index with the data files
expression_index     reads an index
file_values          derives the statistics and filters of data files, and encodes them
indexed_expression   an index: its definition, and whether lakemark updates it
expression_text      parses and prints an expression
functions            finds a function by its name, its options and the type of its column
text_functions, time_functions   compute the functions of Spark on Arrow
covering_values      lower and upper bounds of a function's values
"""
