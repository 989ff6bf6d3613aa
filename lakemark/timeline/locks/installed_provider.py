"""Finds the lock providers of other packages, which declare an entry point in ``lakemark.locks``.

A package declares a provider in its ``pyproject.toml``::

    [project.entry-points."lakemark.locks"]
    consul = "shop.locks:ConsulLock"

The object is called with the table's URL, and with the options of the lock as keyword arguments. It
returns a ``LockProvider``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from lakemark.extension_point import ExtensionPoint
from lakemark.timeline.locks.lock_provider import LockProvider

_INSTALLED: ExtensionPoint[LockProvider] = ExtensionPoint(
    group="lakemark.locks",
    noun="lock provider",
    verb="created",
    protocol="LockProvider",
    module="lakemark.timeline.locks.lock_provider",
    members=(
        "try_acquire",
        "longer_wait_s",
        "cancel",
        "replace_record",
        "is_current",
        "holder",
        "name",
    ),
)


def installed_names() -> list[str]:
    """Return the names of the providers that installed packages declare."""
    return _INSTALLED.installed_names()


def load_provider(
    name: str, url: str, options: Mapping[str, str], built_in: Collection[str]
) -> LockProvider:
    """Create the provider that an installed package declares.

    Args:
        name: the name of the entry point.
        url: the URL of the table.
        options: the arguments.
        built_in: the names of lakemark's own providers, for the error.

    Raises:
        InvalidConfig: no package declares this name, the object cannot be imported or created, or
            it does not return a ``LockProvider``.
    """
    return _INSTALLED.load(name, (url,), options, built_in)
