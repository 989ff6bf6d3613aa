"""``lakemark broker``: starts and stops a Kafka broker in the background, and creates topics."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from streamer.broker import BrokerInfo, start_detached, status, stop_detached
from streamer.demo import count_partitions, create_topic
from streamer.wording import counted

#: The broker's folder, inside the demo's home folder.
FOLDER = "broker"


def execute(arguments: argparse.Namespace) -> int:
    """Start or stop the broker, show whether it runs (exit code 1 if not), or create a topic.

    Raises:
        HudiError: the broker does not start or stop, or refuses the topic.
    """
    home: Path = arguments.home / FOLDER
    if arguments.action == "start":
        print(_describe(start_detached(home, arguments.port)))
        return 0
    found = stop_detached(home) if arguments.action == "stop" else status(home)
    if found is None:
        remedy = f"start one: lakemark broker start --home {arguments.home}"
        is_wanted = arguments.action == "create-topic"
        print(f"no broker runs in {home}{f'; {remedy}' if is_wanted else ''}", file=sys.stderr)
        return 0 if arguments.action == "stop" else 1
    if arguments.action == "create-topic":
        print(_create_topic(found.bootstrap, arguments.topic, arguments.partitions))
        return 0
    print(f"stopped {found.bootstrap}" if arguments.action == "stop" else _describe(found))
    return 0


def _create_topic(bootstrap: str, topic: str, partitions: int) -> str:
    if create_topic(bootstrap, topic, partitions):
        return f"created topic {topic} with {counted(partitions, 'partition')} at {bootstrap}"
    existing = counted(count_partitions(bootstrap, topic), "partition")
    return f"topic {topic} exists already with {existing} at {bootstrap}"


def _describe(broker: BrokerInfo) -> str:
    return f"{broker.bootstrap}  process {broker.pid}  data {broker.data_dir}  log {broker.log}"
