"""Finds the hooks of other packages, which declare an entry point in ``lakemark.hooks``.

A package declares a hook in its ``pyproject.toml``::

    [project.entry-points."lakemark.hooks"]
    slack = "shop.hooks:open_slack"

The object is called with the options of the hook as keyword arguments, and returns a ``Hook``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from importlib.metadata import entry_points

from lakemark.errors import InvalidConfig
from streamer.hooks.hook import Hook

GROUP = "lakemark.hooks"

_MEMBERS = ("send", "check", "close")


def installed_names() -> list[str]:
    """Return the names of the hooks that installed packages declare."""
    return sorted(entry_points(group=GROUP).names)


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
    found = entry_points(group=GROUP)
    if kind not in found.names:
        known = ", ".join([*built_in, *installed_names()])
        message = (
            f"hook {kind!r} is neither one of lakemark's nor declared in the entry points {GROUP}; "
            f"use one of {known}"
        )
        raise InvalidConfig(message)
    try:
        created: Hook = found[kind].load()(**options)
    except Exception as error:  # code of another package may raise any error
        # Its text may contain the value of an option, such as a password.
        message = (
            f"hook {kind} ({found[kind].value}) cannot be opened with the options "
            f"{', '.join(options) or 'none'}: {type(error).__name__}; correct them"
        )
        raise InvalidConfig(message) from error
    missing = [member for member in _MEMBERS if not hasattr(created, member)]
    if missing:
        message = (
            f"hook {kind} ({found[kind].value}) has no {missing[0]}; implement Hook of "
            "streamer.hooks.hook"
        )
        raise InvalidConfig(message)
    return created
