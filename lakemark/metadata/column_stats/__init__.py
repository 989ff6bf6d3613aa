"""Column and partition statistics of the metadata table.

derive         column ranges of data files and of the partitions that a commit changes
encode         ranges to stored records; ``encode_batch`` does it for many at once
decode         stored records to bounds in the type of their column
value_types    types of the stored values
lookup         statistics of a column by file and by partition
"""
