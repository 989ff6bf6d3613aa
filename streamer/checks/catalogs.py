"""Checks that the catalogs of a pipeline answer, and can have its table. No check changes them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from lakemark.catalogs.open_catalog import open_catalog
from lakemark.catalogs.sync import check_new_table, plan_sync
from streamer.catalog_sync import SyncTarget, describe_changes, sync_target
from streamer.checks import tables
from streamer.checks.check import Check, Finding
from streamer.config.catalogs import CatalogConfig
from streamer.config.pipeline import PipelineConfig


def catalog_checks(config: PipelineConfig) -> Iterator[Check]:
    """Yield a check for each catalog, after the check of the table."""
    for number, one in enumerate(config.catalogs, 1):
        name = f"catalog {number} ({one.kind} {one.database}.{one.table or config.table.name})"
        yield Check(name, partial(_check, config, one), (tables.rows_name(config),))


def _check(config: PipelineConfig, catalog: CatalogConfig) -> Finding:
    """Ask the catalog what the next sync would change.

    Raises:
        ConfigError: a value cannot be found.
        InvalidConfig: the library of the catalog is not installed.
        CatalogUnavailable: the catalog does not answer.
        CatalogRefused: the catalog cannot have the table, or has another table of this name.
        HudiError: the table cannot be read.
    """
    return Finding(_ask(config, sync_target(config.table, catalog)))


def _ask(config: PipelineConfig, target: SyncTarget) -> str:
    table = tables.check_rows(config)
    with open_catalog(target.kind, target.database, target.options) as catalog:
        if table is not None and table.schema is not None:
            changes = describe_changes(plan_sync(table, catalog, target.registration))
            return f"the next sync will: {'; '.join(changes)}" if changes else "has the table"
        has_database = check_new_table(
            catalog, target.registration, is_merge_on_read=config.table.type == "merge_on_read"
        )
    missing = "table" if has_database else "database and the table"
    return f"answers; a sync after the first commit creates the {missing}"
