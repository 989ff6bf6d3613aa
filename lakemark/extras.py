"""How to install an extra of lakemark, for messages about a missing library."""

from __future__ import annotations


def install_command(extra: str) -> str:
    """Return the command that installs an extra, as the section "Install" of README.md shows it.

    The package is on no index, so the command names a clone or a wheel instead.
    """
    return f"pip install '/path/to/lakemark[{extra}]'"
