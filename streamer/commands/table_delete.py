"""``lakemark table delete``: deletes rows, or erases every stored copy of them (``--erase``)."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from lakemark.errors import InvalidConfig, TableNotFound
from lakemark.operations.erasure import (
    Erasure,
    erase_records,
    plan_erasure,
    remove_history,
)
from lakemark.operations.open_table import OpenTable
from lakemark.operations.write import RowWriter
from lakemark.transaction.rollback_checks import check_no_restore
from sinks.dead_letters import KEY_COLUMNS, find_records, is_dead_letter_table
from streamer.commands.service_table import open_for_service, pipeline_of, show_work
from streamer.commands.table import Facts, show, show_rows
from streamer.wording import counted

#: The exit code if files still contain a record that was to be erased.
NOT_ERASED = 1

_STDIN = "-"

#: What some programs of Windows write at the beginning of a file in UTF-8.
_BYTE_ORDER_MARK = "\ufeff"

_NO_KEYS = (
    "no record key is given, and no row matches the condition, so that nothing was searched or "
    "erased; if an earlier erasure was interrupted, its rows are deleted, and their keys find the "
    "copies: --key or --keys"
)


def execute(arguments: argparse.Namespace) -> int:
    """Print the rows to delete, or delete them; with ``--erase``, print the files that hold them.

    Raises:
        InvalidConfig: no rows are chosen, or the file of keys or the condition is not valid.
        HudiError: the table cannot be read or written.
    """
    keys = _given_keys(arguments)
    if keys is None and arguments.where is None:
        message = "table delete needs --key, --keys or --where, which choose the rows"
        raise InvalidConfig(message)
    if arguments.dead_letters is not None and not arguments.erase:
        message = "--dead-letters needs --erase"
        raise InvalidConfig(message)
    table = open_for_service(arguments, arguments.merger)
    check_no_restore(table.timeline)
    if arguments.erase:
        return _erase_everywhere(table, keys, arguments)
    _delete(table, keys, arguments)
    return 0


def _given_keys(arguments: argparse.Namespace) -> list[str] | None:
    """Return the keys of ``--key`` and ``--keys``; None if neither is given."""
    if arguments.keys is None:
        listed: list[str] | None = arguments.key
        return listed
    try:
        if arguments.keys == _STDIN:
            text = sys.stdin.read()
        else:
            text = Path(arguments.keys).read_text("utf-8")
        text = text.removeprefix(_BYTE_ORDER_MARK)
    except (OSError, UnicodeDecodeError) as error:
        message = f"--keys {arguments.keys} cannot be read: {error}; pass a text file in UTF-8"
        raise InvalidConfig(message) from error
    return [*(arguments.key or ()), *(line for line in text.split("\n") if line)]


def _delete(table: OpenTable, keys: list[str] | None, arguments: argparse.Namespace) -> None:
    rows = RowWriter(table, arguments.buckets)
    instant = None
    if arguments.step == "run":
        result = rows.delete(keys, arguments.where)
        instant, deleted = result.instant, _deletes_of(table, result.instant)
    else:
        deleted = Counter(rows.count_deletes(keys, arguments.where))
    listed = [
        {"instant": instant, "partition": path, "rows": count}
        for path, count in sorted(deleted.items())
    ]
    show_work(listed, arguments, "no row is to be deleted")


def _deletes_of(table: OpenTable, instant: str | None) -> Counter[str]:
    """Return the number of rows that a commit deleted, by partition path."""
    deleted: Counter[str] = Counter()
    for one in table.timeline.completed():
        if one.requested_at == instant and one.action.is_write:
            for stat in table.store.read_commit(one).write_stats:
                deleted[stat.partition_path or ""] += stat.num_deletes
    return deleted


def _erase_everywhere(
    table: OpenTable, keys: list[str] | None, arguments: argparse.Namespace
) -> int:
    """Erase records from a table and its dead-letter table; return the exit code.

    Both are opened first, so that what is wrong with one of them is seen before a row is deleted.
    """
    rows, letters = RowWriter(table, arguments.buckets), _dead_letters(arguments)
    their_rows = None if letters is None else RowWriter(letters)
    chosen = rows.chosen_keys(keys, arguments.where)
    if not chosen:
        print(_NO_KEYS, file=sys.stderr)
        return 0
    erased = [_erase(table, rows, chosen, arguments)]
    if letters is not None and their_rows is not None:
        letters.refresh()
        dead = letters.scan(columns=KEY_COLUMNS).batches(1)
        found = find_records(dead, chosen, table.properties.record_key_fields)
        erased.append(_erase(letters, their_rows, found, arguments))
    if arguments.step != "run":
        print("nothing was changed; add --run to erase the records", file=sys.stderr)
        return 0
    return 0 if all(one.is_complete for one in erased) else NOT_ERASED


def _erase(
    table: OpenTable, rows: RowWriter, keys: Sequence[str], arguments: argparse.Namespace
) -> Erasure:
    """Erase records, or plan this, and print the result.

    Without keys, the older versions of dead letters are removed, because an earlier process may
    have died after it had deleted the dead letters of the record.
    """
    if arguments.step != "run":
        erasure = plan_erasure(table, rows, keys)
    elif keys:
        erasure = erase_records(table, rows, keys)
    else:
        erasure = Erasure(keys=0, instants=tuple(remove_history(table)))
    _show(table.location.url, erasure, arguments)
    return erasure


def _dead_letters(arguments: argparse.Namespace) -> OpenTable | None:
    """Open the dead-letter table of the named table; None if there is none.

    A pipeline creates its dead-letter table at its first start, so the table may have no commit
    yet. Another table with the name of the dead-letter table is left alone, with a note.

    Raises:
        InvalidConfig: ``--dead-letters`` or the pipeline names another table.
        TableNotFound: ``--dead-letters`` names no table.
    """
    config = pipeline_of(arguments)
    path = arguments.dead_letters or (config.dead_letters.path if config is not None else None)
    of_table = argparse.Namespace(**vars(arguments))
    of_table.table = path or f"{arguments.table.rstrip('/')}_dead_letters"
    try:
        table = open_for_service(of_table)
    except TableNotFound:
        if arguments.dead_letters is not None:
            raise
        return None
    if is_dead_letter_table(table.schema):
        return table
    if table.schema is None:
        print(f"{of_table.table} has no commit yet, so it has no dead letters", file=sys.stderr)
        return None
    message = f"{of_table.table} is not a dead-letter table of lakemark"
    if path is None:
        print(f"{message}, and is left as it is", file=sys.stderr)
        return None
    remedy = f"{message}; name it: --dead-letters TABLE"
    raise InvalidConfig(remedy)


def _show(url: str, erasure: Erasure, arguments: argparse.Namespace) -> None:
    """Print what was searched, and the files that contain one of the records."""
    traces: list[Facts] = [
        {
            "file": one.path,
            "kind": str(one.place),
            "keys": one.keys if one.keys else "cannot be read",
        }
        for one in erasure.traces
    ]
    facts: dict[str, object] = {
        "table": url,
        "searched at": datetime.now(UTC).isoformat(timespec="seconds"),
        "record keys": erasure.keys,
        "deleted rows": erasure.deleted,
        "instants": list(erasure.instants),
        "searched files": {str(place): count for place, count in erasure.searched.items()},
        "result": _result(erasure),
    }
    console = Console()
    show({**facts, "files": traces} if arguments.json else facts, console, arguments.json)
    if traces and not arguments.json:
        show_rows(traces, console, False)


def _result(erasure: Erasure) -> str:
    if erasure.is_complete:
        return "no file contains one of the record keys"
    files = counted(len(erasure.traces), "file")
    verb = "contains" if len(erasure.traces) == 1 else "contain"
    return f"{files} {verb} record keys, or cannot be read"
