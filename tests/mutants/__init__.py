"""Small wrong changes of the code, each with the tests that must notice it: ``make mutants``."""
