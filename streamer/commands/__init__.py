"""The commands of ``lakemark``. Each module's ``execute(arguments)`` returns the exit code."""
