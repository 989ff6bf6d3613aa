"""The command line of ``lakemark subscribe``."""

from __future__ import annotations

import argparse

from streamer.table_arguments import add_location, add_merger, local_path, positive

#: Seconds between two looks for new commits.
_INTERVAL_S = 5


def add_subscribe(subscribe: argparse.ArgumentParser) -> None:
    """Add the arguments of ``subscribe``."""
    subscribe.description = (
        "Delivers each change of each commit of a table, as one JSON object, to a Kafka topic, a "
        "file or standard output. The next start continues after the last delivered commit. Needs "
        "no Spark."
    )
    add_location(subscribe)
    text = (
        "where changes are delivered: a Kafka topic, a local file of JSON lines, or standard "
        "output (-)"
    )
    subscribe.add_argument(
        "--to", required=True, metavar="kafka://HOST:PORT/TOPIC|FILE|-", help=text
    )
    text = (
        "the changes with the row before and after them, deletes included (cdc, the default), or "
        "the rows that were written (incremental)"
    )
    subscribe.add_argument("--type", choices=("cdc", "incremental"), default="cdc", help=text)
    text = (
        "where the first start begins: with the first commit (earliest, the default), after the "
        "newest commit (latest), or after an instant or time"
    )
    subscribe.add_argument("--from", dest="start", metavar="TIME", help=text)
    text = "begin at --from even if changes were delivered before"
    subscribe.add_argument("--restart", action="store_true", help=text)
    text = "wait for new commits until stopped (Ctrl-C, SIGTERM)"
    subscribe.add_argument("--follow", action="store_true", help=text)
    text = f"with --follow: seconds between two looks for new commits (default: {_INTERVAL_S})"
    subscribe.add_argument("--interval", type=positive, metavar="SECONDS", help=text)
    add_merger(subscribe)
    _add_kafka(subscribe)
    subscribe.set_defaults(default_interval=_INTERVAL_S)


def _add_kafka(subscribe: argparse.ArgumentParser) -> None:
    kafka = subscribe.add_argument_group("options for Kafka")
    text = "a properties file of Kafka's Java producer, with the security properties"
    kafka.add_argument("--kafka-properties", type=local_path, metavar="FILE", help=text)
    text = "send a record without value after each delete, for a topic with log compaction"
    kafka.add_argument("--tombstones", action="store_true", help=text)
    text = "the name of the subscription (default: the table's name, the type and the topic)"
    kafka.add_argument("--name", metavar="NAME", help=text)
    text = "the compacted topic of the cursors, which is created if needed (default: TOPIC.cursors)"
    kafka.add_argument("--cursor-topic", metavar="TOPIC", help=text)
