"""``catalogs``: where the table is registered after commits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

from pydantic import Field

from lakemark.catalogs.open_catalog import check_catalog
from lakemark.catalogs.table_definition import MergeOnReadTables, Registration
from lakemark.errors import InvalidConfig
from lakemark.storage import canonical_url
from streamer.config import settings
from streamer.config.errors import ConfigError, Problem
from streamer.config.section import FromList, Section
from streamer.config.settings import Settings


class CatalogConfig(Section):
    """Catalogs in which the table is registered, one entry for each catalog.

    After each commit, a thread compares the table with the catalogs, and adds what is new: columns,
    partitions and the time of the commit. A catalog that does not answer delays no batch. See
    [Catalogs](catalogs.md).
    """

    kind: Annotated[str, Field(min_length=1)]
    """``hive`` is a Hive metastore, and ``glue`` is the Data Catalog of AWS Glue. They need the
    [extra](../README.md#install) ``hive`` or ``glue``. The name of a catalog that another package
    declares is accepted, too."""

    database: Annotated[str, Field(min_length=1)] = "default"
    """The database of the catalog."""

    table: str = ""
    """The name of the table in the catalog. Default: ``table.name``."""

    location: str = ""
    """The URL of the table, as the engines that read the catalog understand it. Spark with Hadoop's
    client for S3, for example, needs ``s3a://`` instead of ``s3://``. Default: ``table.path``."""

    merge_on_read: Literal["all", "current", "read_optimized"] = "all"
    """The names of a merge-on-read table. With ``all``, the names ``orders`` and ``orders_rt``
    return the current rows, and ``orders_ro`` returns the rows of base files only. With ``current``
    or ``read_optimized``, the name ``orders`` returns one of them, and there are no other names."""

    create_database: bool = True
    """Whether a database that does not exist is created."""

    parameters: Settings = Field(default_factory=dict)
    """Further parameters of the table in the catalog, for the engines that read it."""

    options: Settings = Field(default_factory=dict)
    """The options of the catalog. [Catalogs](catalogs.md#hive) lists those of ``hive`` and
    ``glue``."""

    def registration(self, path: str, name: str) -> Registration:
        """Return how the table is registered.

        Args:
            path: the path of the table.
            name: the name of the table.

        Raises:
            ConfigError: the value of a parameter cannot be found.
        """
        return Registration(
            self.table or name,
            (self.location or canonical_url(path)).rstrip("/"),
            MergeOnReadTables(self.merge_on_read),
            self.create_database,
            settings.resolve(self.parameters, "catalogs.parameters"),
        )

    def resolved_options(self) -> dict[str, str]:
        """Return the values of the options.

        Raises:
            ConfigError: a value cannot be found.
        """
        return settings.resolve(self.options, "catalogs.options")


Catalogs = Annotated[tuple[CatalogConfig, ...], FromList]


def catalog_problems(catalogs: Sequence[CatalogConfig]) -> Iterator[Problem]:
    """Yield a problem for each catalog that does not exist, or whose options are wrong."""
    for position, one in enumerate(catalogs):
        if one in catalogs[:position]:
            yield Problem(f"catalogs.{position}", "repeats another catalog; remove one of them")
            continue
        try:
            check_catalog(one.kind, one.resolved_options())
        except ConfigError:  # ``unresolved`` reports the missing value
            continue
        except InvalidConfig as error:
            yield Problem(f"catalogs.{position}", str(error))


def unresolved_catalogs(catalogs: Sequence[CatalogConfig]) -> list[Problem]:
    """Return a problem for each value that this machine cannot find."""
    return [
        problem
        for position, one in enumerate(catalogs)
        for name in ("parameters", "options")
        for problem in settings.unresolved(getattr(one, name), f"catalogs.{position}.{name}")
    ]
