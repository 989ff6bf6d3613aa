"""The commands of ``lakemark``: one module each, with ``execute(arguments) -> exit code``."""
