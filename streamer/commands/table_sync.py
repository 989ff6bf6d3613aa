"""``lakemark table sync``: registers a table in catalogs."""

from __future__ import annotations

import argparse

from lakemark.catalogs.open_catalog import open_catalog
from lakemark.catalogs.sync import SyncPlan, execute_sync, plan_sync
from lakemark.errors import InvalidConfig
from lakemark.operations.open_table import OpenTable
from lakemark.storage import canonical_url
from streamer.catalog_sync import SyncTarget, sync_targets
from streamer.commands.location import open_named_table
from streamer.commands.service_table import pipeline_of, show_work
from streamer.commands.table import Facts
from streamer.config.catalogs import CatalogConfig
from streamer.config.masking import build_option_redactor
from streamer.config.pipeline import PipelineConfig
from streamer.config.settings import Setting


def execute(arguments: argparse.Namespace) -> int:
    """Print what differs between a table and its catalogs, or change the catalogs.

    All partitions are compared, also those that did not change since the last sync.

    Raises:
        InvalidConfig: no catalog is named, or its options are wrong.
        CatalogUnavailable, CatalogRefused: a catalog does not answer, or cannot have the table.
        HudiError: the table cannot be read.
    """
    config = pipeline_of(arguments)
    table = _open(arguments, config)
    rows: list[Facts] = []
    for target in _targets(arguments, config, table):
        with open_catalog(target.kind, target.database, target.options) as catalog:
            plan = plan_sync(table, catalog, target.registration, compares_all=True)
            if arguments.step == "run":
                execute_sync(catalog, plan)
        rows += _rows(target, plan)
    show_work(rows, arguments, "the catalogs have everything")
    return 0


def _open(arguments: argparse.Namespace, config: PipelineConfig | None) -> OpenTable:
    known = {} if config is None else config.table.location().options
    given = {option.partition("=")[0] for option in arguments.storage}
    options = [f"{name}={value}" for name, value in known.items() if name not in given]
    zone = None if config is None else config.table.timeline_timezone
    return open_named_table(arguments.table, [*options, *arguments.storage], timezone=zone)


def _targets(
    arguments: argparse.Namespace, config: PipelineConfig | None, table: OpenTable
) -> list[SyncTarget]:
    if config is None:
        return [_target_of_options(arguments, table)]
    _check_not_given(arguments)
    if canonical_url(arguments.table) != canonical_url(config.table.path):
        message = f"catalogs have only the table at {config.table.path}, not {arguments.table}"
        raise InvalidConfig(message)
    wanted = [one for one in sync_targets(config) if arguments.to in (None, one.kind)]
    if not wanted:
        kind = "" if arguments.to is None else f" of the kind {arguments.to}"
        message = f"pipeline {arguments.config} has no catalog{kind}; add it to catalogs"
        raise InvalidConfig(message)
    return wanted


def _check_not_given(arguments: argparse.Namespace) -> None:
    """Check that no option is given that ``--config`` would override.

    Raises:
        InvalidConfig: there is one.
    """
    for name in ("database", "name", "location", "merge_on_read", "option"):
        if getattr(arguments, name):
            option = f"--{name.replace('_', '-')}"
            message = (
                f"{option} and --config exclude each other, because the catalogs of the pipeline "
                f"say how the table is registered; omit {option}, or name the catalog with --to "
                "and without --config"
            )
            raise InvalidConfig(message)


def _target_of_options(arguments: argparse.Namespace, table: OpenTable) -> SyncTarget:
    if arguments.to is None:
        message = "name a catalog with --to, or a pipeline that has catalogs with --config"
        raise InvalidConfig(message)
    pairs = dict(option.partition("=")[::2] for option in arguments.option if "=" in option)
    if len(pairs) < len(arguments.option):
        message = "--option expects NAME=VALUE, and each name only once"
        raise InvalidConfig(message)
    arguments.redacted = build_option_redactor(arguments.option)
    catalog = CatalogConfig(
        kind=arguments.to,
        database=arguments.database or "default",
        table=arguments.name or "",
        location=arguments.location or "",
        merge_on_read=arguments.merge_on_read or "all",
        options={name: Setting("value", text) for name, text in pairs.items()},
    )
    return SyncTarget(
        catalog.kind,
        catalog.database,
        catalog.resolved_options(),
        catalog.registration(arguments.table, table.properties.table_name),
    )


def _rows(target: SyncTarget, plan: SyncPlan) -> list[Facts]:
    known = {"catalog": target.kind, "database": target.database}
    rows: list[Facts] = []
    if plan.creates_database:
        rows.append({**known, "table": None, "change": "create the database"})
    for one in plan.tables:
        changes = list(one.describe())
        if one.records_commit:
            changes.append("record the newest commit")
        rows += [{**known, "table": one.table.name, "change": text} for text in changes]
    return rows
