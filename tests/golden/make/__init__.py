"""Makes the golden tables: Apache Hudi writes them and says what it reads from them.

Run by hand, never by the tests: ``.venv-spark35/bin/python -m tests.golden.make NAME``. What a row
holds follows from its number and its version, so a table made again differs from the first only in
what Apache Hudi chooses itself: times, file ids and sequence numbers.
"""
