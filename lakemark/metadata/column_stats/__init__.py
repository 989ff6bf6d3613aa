"""Column and partition statistics of the metadata table.

derive         derives the column ranges of data files, and of partitions that a commit changes
encode         encodes ranges as stored records; ``encode_batch`` encodes many at once
decode         decodes stored records to bounds in the type of their column
value_types    maps column types to the types of the stored values
lookup         looks up the statistics of a column, by file and by partition
"""
