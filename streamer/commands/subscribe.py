"""``lakemark subscribe``: delivers the changes of a table to Kafka, a file or standard output."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from lakemark.errors import InvalidConfig, Refused, Retriable
from lakemark.model.instant import Instant
from lakemark.operations.change_feed import ChangesRemoved, CommitUndone, FeedType, OrderChanged
from lakemark.operations.open_table import OpenTable
from streamer.commands.location import open_named_table
from streamer.stopping import stop_on_signals
from streamer.subscribe.cursor import Cursor
from streamer.subscribe.file_target import FileTarget
from streamer.subscribe.stream_target import StreamTarget
from streamer.subscribe.subscription import Start, Subscription
from streamer.subscribe.target import Target
from streamer.table_arguments import local_path
from streamer.wording import counted

_KAFKA = re.compile(r"(?i:kafka)://(?P<bootstrap>[^/@]+)/(?P<topic>[A-Za-z0-9._-]{1,249})")
_OF_KAFKA = ("kafka_properties", "tombstones", "name", "cursor_topic")

_EARLIEST = "earliest"


def execute(arguments: argparse.Namespace) -> int:
    """Deliver the changes; print one line for each commit to stderr.

    Raises:
        InvalidConfig: an option is not valid, or the table keeps no change data.
        Refused: changes after the cursor can no longer be read.
        HudiError: the table cannot be read, or the target does not accept the changes.
    """
    _check(arguments)
    table = open_named_table(arguments.table, arguments.storage, arguments.merger)
    start = Start(arguments.start or _EARLIEST, ignores_cursor=arguments.restart)
    open_target = _target_of(table, arguments)
    with stop_on_signals() as signals:
        subscription = Subscription(
            table, FeedType(arguments.type), open_target, start, _Printer(arguments)
        )
        signals.watch(subscription.stop)
        interval = arguments.interval or arguments.default_interval
        try:
            subscription.run(interval if arguments.follow else None)
        except ChangesRemoved as error:
            message = (
                f"{error.reason}. To deliver the later commits without these changes, add "
                f"--restart --from {error.begin} once. To avoid this, let cleaning and archiving "
                "retain more commits"
            )
            raise Refused(message) from error
        except (CommitUndone, OrderChanged) as error:
            message = f"{error}: add --restart --from {error.begin} once"
            raise Refused(message) from error
    return 0


def _check(arguments: argparse.Namespace) -> None:
    if arguments.restart and arguments.start is None:
        message = "--restart needs --from: earliest, latest, an instant or a time"
        raise InvalidConfig(message)
    if arguments.interval is not None and not arguments.follow:
        message = "--interval needs --follow"
        raise InvalidConfig(message)
    is_kafka = _is_kafka(arguments.to)
    given = [name for name in _OF_KAFKA if getattr(arguments, name)]
    if given and not is_kafka:
        option = "--" + given[0].replace("_", "-")
        message = f"{option} needs --to kafka://HOST:PORT/TOPIC"
        raise InvalidConfig(message)


def _target_of(table: OpenTable, arguments: argparse.Namespace) -> Callable[[], Target]:
    """Return a function that opens the target of the command line."""
    if arguments.to == "-":
        stream = StreamTarget(sys.stdout)
        return lambda: stream
    if not _is_kafka(arguments.to):
        return partial(FileTarget, _local(arguments.to))
    found = _KAFKA.fullmatch(arguments.to)
    if found is None:
        # The text is not repeated, because it may have a password before the host.
        message = (
            "--to: expected kafka://HOST:PORT/TOPIC, with several brokers separated by commas; "
            "credentials belong in --kafka-properties"
        )
        raise InvalidConfig(message)
    from streamer.subscribe.kafka_address import KafkaAddress
    from streamer.subscribe.kafka_properties import read_kafka_properties
    from streamer.subscribe.kafka_target import KafkaTarget

    topic = found["topic"]
    name = arguments.name or f"{table.properties.table_name}.{arguments.type}.{topic}"
    cursors = arguments.cursor_topic or f"{topic}.cursors"
    if cursors == topic:
        message = f"--cursor-topic is {topic}, the topic of the changes; name another topic"
        raise InvalidConfig(message)
    return partial(
        KafkaTarget,
        KafkaAddress(found["bootstrap"], topic, cursors, name),
        read_kafka_properties(arguments.kafka_properties),
        sends_tombstones=arguments.tombstones,
    )


def _is_kafka(to: str) -> bool:
    return to.lower().startswith("kafka:")


def _local(to: str) -> Path:
    try:
        return local_path(to)
    except argparse.ArgumentTypeError as error:
        if "@" in to:  # the text is not repeated, as above
            message = "--to: expected kafka://HOST:PORT/TOPIC, a path on the local disk, or -"
        else:
            message = f"--to {to}: {error}"
        raise InvalidConfig(message) from None


class _Printer:
    """Prints what a subscription does to stderr."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._table, self._storage = arguments.table, arguments.storage

    def started(self, cursor: Cursor, *, is_resumed: bool) -> None:
        """Print where deliveries start."""
        at = cursor.position.completed_at
        after = f"after {at}" if at else "with the first commit"
        print(f"{self._table}: {'continues' if is_resumed else 'begins'} {after}", file=sys.stderr)

    def delivered(self, commit: Instant, count: int) -> None:
        """Print one line for a commit."""
        print(f"{commit.requested_at}: {counted(count, 'change')} delivered", file=sys.stderr)

    def waits(self, pending: Instant) -> None:
        """Print which commit must complete before later ones are delivered."""
        print(f"{self._table}: waits for the pending commit {pending}", file=sys.stderr)

    def failed(self, error: Retriable, pause_s: float) -> None:
        """Print a failure without the secrets of ``--storage``."""
        from streamer.config.masking import build_option_redactor

        text = build_option_redactor(self._storage)(str(error))
        print(f"lakemark: {text}; trying again in {pause_s:.0f} s", file=sys.stderr)
