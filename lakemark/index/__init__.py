"""Which file group a record belongs to."""
