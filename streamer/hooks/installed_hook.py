"""Finds the hooks of other packages, which declare an entry point in ``lakemark.hooks``.

A package declares a hook in its ``pyproject.toml``::

    [project.entry-points."lakemark.hooks"]
    slack = "shop.hooks:open_slack"

The object is called with the options of the hook as keyword arguments, and returns a ``Hook``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from lakemark.extension_point import ExtensionPoint
from streamer.hooks.hook import Hook

_INSTALLED: ExtensionPoint[Hook] = ExtensionPoint(
    group="lakemark.hooks",
    noun="hook",
    verb="opened",
    protocol="Hook",
    module="streamer.hooks.hook",
    members=("send", "check", "close"),
)


def installed_names() -> list[str]:
    """Return the names of the hooks that installed packages declare."""
    return _INSTALLED.installed_names()


def load_hook(kind: str, options: Mapping[str, str], built_in: Collection[str]) -> Hook:
    """Open the hook that an installed package declares.

    Args:
        kind: the name of the entry point.
        options: the arguments.
        built_in: the names of lakemark's own hooks, for the error.

    Raises:
        InvalidConfig: no package declares this name, the object cannot be imported or created, or
            it does not return a ``Hook``.
    """
    return _INSTALLED.load(kind, (), options, built_in)
