"""Prints each failure when it happens.

pytest prints failures at its end, so a run that is stopped at its time limit would not name them.
"""

from __future__ import annotations

import pytest


class ImmediateFailures:
    """A plugin of pytest that prints the name and the traceback of a test as soon as it fails."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Print a failed report; the process that prints gets the reports of all workers."""
        printer = self._config.pluginmanager.get_plugin("terminalreporter")
        if report.failed and printer is not None:
            printer.write_line("")
            printer.write_line(f"failed ({report.when}): {report.nodeid}", red=True)
            printer.write_line(report.longreprtext)
