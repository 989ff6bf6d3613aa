"""The program of each engine, which runs in its own process and reports its times."""
