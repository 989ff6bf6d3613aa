"""Finds the catalogs of other packages, which declare an entry point in ``lakemark.catalogs``.

A package declares a catalog in its ``pyproject.toml``::

    [project.entry-points."lakemark.catalogs"]
    nessie = "shop.catalogs:open_nessie"

The object is called with the name of the database, and with the options of the catalog as keyword
arguments. It returns a ``Catalog``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from lakemark.catalogs.catalog import Catalog
from lakemark.extension_point import ExtensionPoint

_INSTALLED: ExtensionPoint[Catalog] = ExtensionPoint(
    group="lakemark.catalogs",
    noun="catalog",
    verb="opened",
    protocol="Catalog",
    module="lakemark.catalogs.catalog",
    members=(
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
    ),
)


def installed_names() -> list[str]:
    """Return the names of the catalogs that installed packages declare."""
    return _INSTALLED.installed_names()


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
    return _INSTALLED.load(kind, (database,), options, built_in)
