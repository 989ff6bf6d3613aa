"""Creates the golden tables: Apache Hudi writes them, and its queries give the expected rows.

Run it by hand, the tests never do: ``.venv-spark35/bin/python -m tests.golden.make NAME``. The
values of a row are derived from its number and its version. So a table that is created again
differs only in values that Apache Hudi generates: times, file ids and sequence numbers.
"""
