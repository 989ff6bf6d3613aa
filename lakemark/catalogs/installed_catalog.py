"""Finds the catalogs of other packages, which declare an entry point in ``lakemark.catalogs``.

A package declares a catalog in its ``pyproject.toml``::

    [project.entry-points."lakemark.catalogs"]
    nessie = "shop.catalogs:open_nessie"

The object is called with the name of the database, and with the options of the catalog as keyword
arguments. It returns a ``Catalog``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from importlib.metadata import entry_points

from lakemark.catalogs.catalog import Catalog
from lakemark.errors import InvalidConfig

GROUP = "lakemark.catalogs"

_MEMBERS = (
    "name",
    "has_database",
    "create_database",
    "find_table",
    "create_table",
    "alter_table",
    "list_partitions",
    "find_partitions",
    "add_partitions",
    "move_partitions",
    "drop_partitions",
    "close",
)


def installed_names() -> list[str]:
    """Return the names of the catalogs that installed packages declare."""
    return sorted(entry_points(group=GROUP).names)


def load_catalog(
    kind: str, database: str, options: Mapping[str, str], built_in: Collection[str]
) -> Catalog:
    """Open the catalog that an installed package declares.

    Args:
        kind: the name of the entry point.
        database: the name of the database.
        options: the arguments.
        built_in: the names of lakemark's own catalogs, for the error.

    Raises:
        InvalidConfig: no package declares this name, the object cannot be imported or created, or
            it does not return a ``Catalog``.
    """
    found = entry_points(group=GROUP)
    if kind not in found.names:
        known = ", ".join([*built_in, *installed_names()])
        message = (
            f"catalog {kind!r} is neither one of lakemark's nor declared in the entry points "
            f"{GROUP}; use one of {known}"
        )
        raise InvalidConfig(message)
    try:
        created: Catalog = found[kind].load()(database, **options)
    except Exception as error:  # code of another package may raise any error
        # Its text may contain the value of an option, such as a password.
        message = (
            f"catalog {kind} ({found[kind].value}) cannot be opened with the options "
            f"{', '.join(options) or 'none'}: {type(error).__name__}; correct them"
        )
        raise InvalidConfig(message) from error
    missing = [member for member in _MEMBERS if not hasattr(created, member)]
    if missing:
        message = (
            f"catalog {kind} ({found[kind].value}) has no {missing[0]}; implement Catalog of "
            "lakemark.catalogs.catalog"
        )
        raise InvalidConfig(message)
    return created
