"""Finds the lock providers of other packages, which declare an entry point in ``lakemark.locks``.

A package declares a provider in its ``pyproject.toml``::

    [project.entry-points."lakemark.locks"]
    consul = "shop.locks:ConsulLock"

The object is called with the table's URL, and with the options of the lock as keyword arguments. It
returns a ``LockProvider``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from importlib.metadata import entry_points

from lakemark.errors import InvalidConfig
from lakemark.timeline.locks.lock_provider import LockProvider

GROUP = "lakemark.locks"

_MEMBERS = (
    "try_acquire",
    "longer_wait_s",
    "cancel",
    "replace_record",
    "is_current",
    "holder",
    "name",
)


def installed_names() -> list[str]:
    """Return the names of the providers that installed packages declare."""
    return sorted(entry_points(group=GROUP).names)


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
    found = entry_points(group=GROUP)
    if name not in found.names:
        known = ", ".join([*built_in, *installed_names()])
        message = (
            f"lock provider {name!r} is neither one of lakemark's nor declared in the entry points "
            f"{GROUP}; use one of {known}"
        )
        raise InvalidConfig(message)
    try:
        created: LockProvider = found[name].load()(url, **options)
    except Exception as error:  # code of another package may raise any error
        # Its text may contain the value of an option, such as a password.
        message = (
            f"lock provider {name} ({found[name].value}) cannot be created with the options "
            f"{', '.join(options) or 'none'}: {type(error).__name__}; correct them"
        )
        raise InvalidConfig(message) from error
    missing = [member for member in _MEMBERS if not hasattr(created, member)]
    if missing:
        message = (
            f"lock provider {name} ({found[name].value}) has no {missing[0]}; implement "
            "LockProvider of lakemark.timeline.locks.lock_provider"
        )
        raise InvalidConfig(message)
    return created
