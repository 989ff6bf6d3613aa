"""``lakemark broker``: starts and stops a Kafka broker that runs in the background."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from streamer.broker import BrokerInfo, start_detached, status, stop_detached

#: The broker's folder, inside the demo's home folder.
FOLDER = "broker"


def execute(arguments: argparse.Namespace) -> int:
    """Start or stop the broker, or show whether it runs (exit code 1 if it does not)."""
    home: Path = arguments.home / FOLDER
    if arguments.action == "start":
        print(_describe(start_detached(home, arguments.port)))
        return 0
    found = stop_detached(home) if arguments.action == "stop" else status(home)
    if found is None:
        print(f"no broker runs in {home}", file=sys.stderr)
        return 0 if arguments.action == "stop" else 1
    print(f"stopped {found.bootstrap}" if arguments.action == "stop" else _describe(found))
    return 0


def _describe(broker: BrokerInfo) -> str:
    return f"{broker.bootstrap}  process {broker.pid}  data {broker.data_dir}  log {broker.log}"
