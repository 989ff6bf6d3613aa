"""Opens a catalog by its kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from importlib.util import find_spec

from lakemark.catalogs.catalog import Catalog
from lakemark.errors import InvalidConfig
from lakemark.extras import install_command


class CatalogKind(StrEnum):
    """The kinds of catalogs.

    Attributes:
        HIVE: a Hive metastore, by Thrift.
        GLUE: the Data Catalog of AWS Glue.
    """

    HIVE = "hive"
    GLUE = "glue"


@contextmanager
def open_catalog(kind: str, database: str, options: Mapping[str, str]) -> Iterator[Catalog]:
    """Open one database of a catalog, and close the connection when the block ends.

    Args:
        kind: one of ``CatalogKind``, or the name of an installed catalog.
        database: the name of the database.
        options: the options of the catalog: see ``HiveSettings``, ``GlueSettings``.

    Raises:
        InvalidConfig: there is no such catalog, its library is not installed, or an option is
            missing, unknown or wrong.
        CatalogUnavailable: the catalog does not answer.
    """
    catalog = _open(kind, database, options)
    try:
        yield catalog
    finally:
        catalog.close()


def check_installed(kind: str) -> None:
    """Check that the library of a catalog is installed.

    Raises:
        InvalidConfig: it is not.
    """
    library = _LIBRARIES.get(kind)
    if library is not None and find_spec(library) is None:
        message = f"catalog {kind} needs the library {library}: {install_command(kind)}"
        raise InvalidConfig(message)


def check_catalog(kind: str, options: Mapping[str, str]) -> None:
    """Check the kind of a catalog and its options, without its library or a connection.

    The options of a catalog that another package provides are not checked.

    Raises:
        InvalidConfig: as for ``open_catalog``.
    """
    if kind in _CHECKS:
        _CHECKS[kind](options)
        return
    from lakemark.catalogs.installed_catalog import installed_names

    if kind not in installed_names():
        known = ", ".join([*CatalogKind, *installed_names()])
        message = f"there is no catalog of the kind {kind!r}; use one of {known}"
        raise InvalidConfig(message)


def _open(kind: str, database: str, options: Mapping[str, str]) -> Catalog:
    if kind in _BY_LIBRARY:
        return _BY_LIBRARY[kind](database, options)
    from lakemark.catalogs.installed_catalog import load_catalog

    return load_catalog(kind, database, options, tuple(CatalogKind))


def _open_hive(database: str, options: Mapping[str, str]) -> Catalog:
    from lakemark.catalogs.hive_settings import HiveSettings

    settings = HiveSettings.of(options)
    check_installed(CatalogKind.HIVE)
    from lakemark.catalogs.hive_catalog import HiveCatalog

    return HiveCatalog(settings, database)


def _open_glue(database: str, options: Mapping[str, str]) -> Catalog:
    from lakemark.catalogs.glue_settings import GlueSettings

    settings = GlueSettings.of(options)
    check_installed(CatalogKind.GLUE)
    from lakemark.catalogs.glue_catalog import GlueCatalog

    return GlueCatalog(settings, database)


def _check_hive(options: Mapping[str, str]) -> None:
    from lakemark.catalogs.hive_settings import HiveSettings

    HiveSettings.of(options)


def _check_glue(options: Mapping[str, str]) -> None:
    from lakemark.catalogs.glue_settings import GlueSettings

    GlueSettings.of(options)


#: The catalogs whose libraries are optional, so that they are imported only when they are opened.
_BY_LIBRARY: Mapping[str, Callable[[str, Mapping[str, str]], Catalog]] = {
    CatalogKind.HIVE: _open_hive,
    CatalogKind.GLUE: _open_glue,
}

#: The package that each of them imports.
_LIBRARIES: Mapping[str, str] = {CatalogKind.HIVE: "pymetastore", CatalogKind.GLUE: "boto3"}

_CHECKS: Mapping[str, Callable[[Mapping[str, str]], None]] = {
    CatalogKind.HIVE: _check_hive,
    CatalogKind.GLUE: _check_glue,
}
