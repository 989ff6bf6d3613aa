"""``lakemark checkpoint``: shows, sets or resets the checkpoint of a streamer."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping

from rich.console import Console

from checkpoints.checkpoint import KafkaCheckpoint
from checkpoints.edit import plan_edit, write_checkpoint
from checkpoints.lookup import find_progress, find_table_progress
from checkpoints.plan import CheckpointPlan
from checkpoints.position import Position
from checkpoints.progress import Progress
from checkpoints.snapshot_position import SnapshotPosition
from lakemark.errors import InvalidConfig
from lakemark.operations.open_table import OpenTable
from lakemark.transaction.streamer_progress import DEFAULT_IDENTITY
from streamer.commands.service_table import open_as_writer, open_for_service, show_work
from streamer.commands.table import Facts
from streamer.row_output import print_facts

#: The name in the output for the identity of pipelines without an id.
_DEFAULT = "(default)"
#: The setting that decides where a run starts after a reset.
_AT_RESET = "source.starting_offsets"
#: Where a run of another source than Kafka starts after a reset.
_AT_START = "the start of the source"


def execute(arguments: argparse.Namespace) -> int:
    """Print the checkpoint of one streamer, or plan a change; with ``--run``, execute the plan.

    Raises:
        InvalidConfig: the offsets are missing or cannot be parsed, or the action accepts no
            offsets.
        WriterPending: Apache Hudi's streamer may be running.
        Unsupported: lakemark does not write this kind of table.
        HudiError: the table cannot be read or written.
    """
    wanted = _wanted(arguments.action, arguments.checkpoint)
    if arguments.action == "get":
        _check_only_reads(arguments)
        table = open_as_writer(arguments)
        _check_known(table, arguments.id)
        _show(describe(table, arguments.id), arguments.json)
        return 0
    table = open_for_service(arguments)
    if arguments.step == "plan":
        plan = plan_edit(table, arguments.id, wanted)
        _warn_of_another_topic(plan)
        rows = plan_rows(plan)
        show_work(rows, arguments, "nothing to change: the table has no such checkpoint")
        return 0
    commit = write_checkpoint(table, arguments.id, wanted)
    _show({"commit": commit.requested_at, **describe(table, arguments.id)}, arguments.json)
    return 0


def describe(table: OpenTable, identity: str = DEFAULT_IDENTITY) -> dict[str, object]:
    """Return the checkpoint of a streamer, and the commit that recorded it."""
    progress = find_progress(table, table.timeline, identity)
    known = find_table_progress(table, table.timeline).streamers.keys()
    others = [one or _DEFAULT for one in sorted(known - {identity})]
    return {"id": identity, **_facts(progress), "other ids": others}


def _check_known(table: OpenTable, identity: str) -> None:
    """Refuse an id that no commit records, because it is probably misspelt."""
    known = find_table_progress(table, table.timeline).streamers.keys()
    if identity in (DEFAULT_IDENTITY, *known):
        return
    listed = ", ".join(one or _DEFAULT for one in sorted(known)) or "none"
    message = (
        f"no commit of {table.location.url} records a checkpoint of id {identity!r}; "
        f"ids with a checkpoint: {listed}"
    )
    raise InvalidConfig(message)


def plan_rows(plan: CheckpointPlan) -> list[Facts]:
    """Return one row for each partition: its offsets, and how many are read again or skipped."""
    reset = _AT_RESET if plan.checkpoint is None else None
    moves: list[Facts] = [
        {
            "topic": move.topic,
            "partition": move.partition,
            "from": move.before,
            "to": reset if move.after is None else move.after,
            "read again": move.read_again,
            "skipped": move.skipped,
        }
        for move in plan.moves
    ]
    dropped = plan.dropped
    if dropped is None:
        return moves
    unknown = dict.fromkeys(("partition", "read again", "skipped"))
    return [{"topic": dropped.origin, **unknown, "from": str(dropped), "to": _AT_START}, *moves]


def _warn_of_another_topic(plan: CheckpointPlan) -> None:
    """Warn if the new checkpoint drops another topic's offsets, as its topic may be misspelt."""
    topic = plan.checkpoint.topic if plan.checkpoint else None
    others = sorted({move.topic for move in plan.moves} - {topic})
    if topic is not None and others:
        print(
            f"the checkpoint of the table belongs to topic {others[0]!r}, not {topic!r}: its "
            "offsets would be dropped",
            file=sys.stderr,
        )


def _check_only_reads(arguments: argparse.Namespace) -> None:
    if arguments.step == "run":
        message = "checkpoint get changes nothing; remove --run"
        raise InvalidConfig(message)


def _wanted(action: str, given: str | None) -> KafkaCheckpoint | None:
    """Return the checkpoint to set; None for get and reset."""
    if (action == "set") != (given is not None):
        message = f"checkpoint {action} " + (
            "expects the offsets to resume from: topic,partition:offset,…"
            if action == "set"
            else f"accepts no offsets; remove {given!r}"
        )
        raise InvalidConfig(message)
    if given is None:
        return None
    try:
        checkpoint = KafkaCheckpoint.parse(given)
    except ValueError as error:
        message = f"{error}; expected topic,partition:offset,… such as orders,0:1200,1:900"
        raise InvalidConfig(message) from None
    if not checkpoint.offsets:
        message = f"expected topic,partition:offset,… and found no partition in {given!r}"
        raise InvalidConfig(message)
    return checkpoint


def _facts(progress: Progress | None) -> Mapping[str, object]:
    if progress is None:
        return {"topic": None, "offsets": {}, "checkpoint": None, "set by": None}
    checkpoint = progress.checkpoint
    return {
        "topic": checkpoint.origin if checkpoint else None,
        "offsets": {str(p): o for p, o in checkpoint.offsets_by_partition.items()}
        if checkpoint
        else {},
        "checkpoint": str(checkpoint) if checkpoint else None,
        **_facts_of_snapshot(checkpoint),
        "set by": progress.commit,
        "key": progress.key,
        "topic id": progress.topic_id or None,
    }


def _facts_of_snapshot(checkpoint: Position | None) -> Mapping[str, object]:
    """Return that a snapshot is not read completely, and where the topic is read afterwards."""
    if not isinstance(checkpoint, SnapshotPosition):
        return {}
    return {
        "snapshot": f"{checkpoint.read.origin}, not read completely",
        "then": str(checkpoint.then),
    }


def _show(facts: Mapping[str, object], as_json: bool) -> None:
    if as_json:
        named = {name.replace(" ", "_"): fact for name, fact in facts.items()}
        print(json.dumps(named, indent=2))
    else:
        print_facts(facts, Console())
