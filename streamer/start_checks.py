"""Checks that run before Spark starts, so that a wrong setting is reported within seconds.

The checks connect to the broker, the stores and the schema registry that the pipeline file names.
Each check runs in its own thread, at the same time as the others. The checks change nothing.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Final

from lakemark.config.table_spec import TableSpec
from lakemark.errors import InvalidConfig
from lakemark.operations.open_table import OpenTable
from lakemark.storage import StorageLocation, canonical_url, open_storage
from lakemark.storage.open_storage import RETRY_TIMEOUT_S
from lakemark.storage.probe import check_conditional_puts
from lakemark.timeline.locks.open_lock import open_lock
from streamer.config import settings
from streamer.config.column_roles import expression_problems, timestamp_partition_problems
from streamer.config.decode import AvroDecodeConfig
from streamer.config.errors import ConfigError
from streamer.config.pipeline import PipelineConfig
from streamer.sources.topic_check import NotTranslatable, check_topic
from streamer.table_setup import (
    check_partial_rows,
    check_partition_lifetime,
    dead_letters_table,
    find_table,
    table_spec,
)

_LOG = logging.getLogger(__name__)

#: Seconds for which a start waits for all checks together.
WITHIN_S: Final = 10.0

#: Seconds for which requests to a schema registry are repeated, unless its setting is shorter.
_REGISTRY_RETRY_TIMEOUT_S: Final = 7.0

#: Settings with which requests to a store are repeated for a shorter time than during a run.
_SHORT_TIMEOUTS = {RETRY_TIMEOUT_S: "3", "timeout": "8s", "connect_timeout": "3s"}

_LOCAL = "file://"

Check = Callable[[], object]


def check_start(config: PipelineConfig) -> None:
    """Check everything that the pipeline needs and that can be checked without Spark.

    Raises:
        HudiError: the topic, a table, the merger or the schema registry is not suitable or does
            not answer. The first failure is raised.
    """
    check_locally(config)
    _run_together(remote_checks(config), WITHIN_S)


def check_locally(config: PipelineConfig) -> list[str]:
    """Make the checks that need no connection; return what was checked, one text for each check.

    Raises:
        ConfigError: a secret cannot be found.
        InvalidConfig: the merger cannot be imported, or is not a merger.
    """
    config.table.location()  # finds the secrets
    table_spec(config)
    checked = ["the settings, one by one and together", "the secrets that they name"]
    if config.decode.declared() is not None:
        checked.append("the declared columns")
    if config.transform_chain() is not None:
        checked.append("the steps of transform, with their columns")
    if config.table.merger:
        checked.append(f"the merger {config.table.merger}, which was imported")
    return checked


def remote_checks(config: PipelineConfig) -> Mapping[str, Check]:
    """Return the checks that need a connection, by name; ``lakemark validate`` lists the names.

    Raises:
        ConfigError: a secret cannot be found.
        InvalidConfig: as for ``check_locally``.
    """
    source = config.source
    properties = settings.resolve(source.consumer, "source.consumer")
    checks: dict[str, Check] = {
        f"topic {source.topic} at {source.bootstrap_servers}": partial(
            _check_topic, source.bootstrap_servers, source.topic, properties
        )
    }
    location = config.table.location()
    rows = partial(_check_rows_table, config, location, table_spec(config))
    checks[f"table {location.url}"] = rows
    if config.dead_letters.enabled:
        letters, spec = dead_letters_table(config)
        checks[f"dead-letter table {letters.url}"] = partial(_check_table, config, letters, spec)
    decode = config.decode
    if isinstance(decode, AvroDecodeConfig) and decode.schema_registry is not None:
        registry = decode.schema_registry.registry()
        registry = replace(
            registry, retry_timeout_s=min(registry.retry_timeout_s, _REGISTRY_RETRY_TIMEOUT_S)
        )
        subject = decode.subject or f"{source.topic}-value"
        checks[f"schema registry {registry.url}"] = partial(registry.check, subject)
    return checks


def _check_topic(bootstrap: str, topic: str, properties: Mapping[str, str]) -> None:
    try:
        check_topic(bootstrap, topic, properties)
    except NotTranslatable as reason:
        _LOG.warning(
            "topic %s is not checked before Spark starts, because the client of this check does "
            "not support a property of source.consumer: %s",
            topic,
            reason,
        )


def _check_rows_table(config: PipelineConfig, location: StorageLocation, spec: TableSpec) -> None:
    """Check that the table of the rows is suitable, or can be created with the declared columns.

    Raises:
        ConfigError: the table does not exist yet, and it cannot be partitioned by a timestamp, or
            by one of the expressions.
        Unsupported: partitions have a lifetime, but those of the table cannot be deleted.
    """
    partial_update, timezone = config.table.partial_update, config.table.timeline_timezone
    table = _check_table(config, location, spec, partial_update, timezone)
    if table is not None:
        check_partition_lifetime(table, config.partition_lifetime)
    columns = config.row_columns()
    problems = list(expression_problems(config.table, columns)) if table is None else []
    if columns is not None and (table is None or table.schema is None):
        problems += timestamp_partition_problems(columns, config.table)
    if problems:
        raise ConfigError(problems)


def _check_table(
    config: PipelineConfig,
    location: StorageLocation,
    spec: TableSpec,
    partial_update: str = "none",
    timezone: str | None = None,
) -> OpenTable | None:
    """Return the table if it exists and is suitable; None if it can be created."""
    _check_folder(location)
    quick = StorageLocation(location.url, {**_short_timeouts(location), **location.options})
    storage = open_storage(quick)
    lock = config.concurrency.lock
    open_lock(storage, provider=config.concurrency.provider(), expire_minutes=lock.expire_minutes)
    table = find_table(quick, timezone)
    if table is not None:
        _check_properties(config, table, spec)
        check_partial_rows(table, partial_update)
    if table is not None or storage.supports_compare_and_swap:
        check_conditional_puts(
            storage
        )  # skipped for a new table on a local disk, where the check would leave a folder
    return table


def _short_timeouts(location: StorageLocation) -> Mapping[str, str]:
    return {} if canonical_url(location.url).startswith(_LOCAL) else _SHORT_TIMEOUTS


def _check_properties(config: PipelineConfig, table: OpenTable, spec: TableSpec) -> None:
    """Check the table's properties. Its files are checked when the run opens the table."""
    properties = table.properties
    if config.table.drops_metadata_table:
        properties = properties.without_metadata_table()
    spec.check(properties, table.location.url)
    table.store.clock.check()


def _check_folder(location: StorageLocation) -> None:
    """Check that a local path is a folder, or that a folder can be created there.

    Raises:
        InvalidConfig: the path or one of its parents is a file, or access is denied.
    """
    url = canonical_url(location.url)
    if not url.startswith(_LOCAL):
        return
    folder = Path(url.removeprefix(_LOCAL))
    try:
        found = next(one for one in (folder, *folder.parents) if one.exists())
    except OSError as error:  # a parent is not readable, or a name is too long
        reason = error.strerror or str(error)
        message = f"{location.url}: {reason}; allow this user to read it, or name another path"
        raise InvalidConfig(message) from None
    if not found.is_dir():
        message = f"{location.url}: {found} is a file; name a folder, or a path that does not exist"
        raise InvalidConfig(message)
    if not os.access(found, os.W_OK | os.X_OK):
        message = (
            f"{location.url}: this user may not write to {found}; allow it, or name another folder"
        )
        raise InvalidConfig(message)


def _run_together(checks: Mapping[str, Check], within_s: float) -> None:
    """Run each check in a separate thread, and raise the first failure.

    A check that does not finish in time is reported and abandoned, because the store or the network
    may just be slow. The run makes the same check again later, with more time.
    """
    answers: SimpleQueue[tuple[str, Exception | None]] = SimpleQueue()

    def answer(name: str, check: Check) -> None:
        try:
            check()
        except Exception as error:
            answers.put((name, error))
        else:
            answers.put((name, None))

    for name, check in checks.items():
        threading.Thread(
            target=answer, args=(name, check), name=f"check of {name}", daemon=True
        ).start()
    deadline, silent = time.monotonic() + within_s, set(checks)
    while silent:
        try:
            name, failure = answers.get(timeout=max(0.0, deadline - time.monotonic()))
        except Empty:
            _LOG.warning(
                "%s: no answer within %.0f s; the run checks it again once Spark runs; if that "
                "fails, check the address in the pipeline file and the network",
                ", ".join(sorted(silent)),
                within_s,
            )
            return
        if failure is not None:
            raise failure
        silent.remove(name)
