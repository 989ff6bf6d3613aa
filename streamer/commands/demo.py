"""``lakemark demo``: runs a broker, sends orders, streams them into a table, and queries the table.

All data is in one folder. The demo can be stopped at any time. When it is started again, it sends
the next orders, and the pipeline resumes from the newest commit.
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import yaml
from rich.console import Console
from rich.markup import escape

from lakemark.operations.open_table import OpenTable, open_table
from lakemark.storage import StorageLocation
from streamer import broker, display, pipeline, row_output
from streamer.commands import table as table_command
from streamer.commands.broker import FOLDER as BROKER_FOLDER
from streamer.commands.dead_letters import list_letters
from streamer.config.load import validated
from streamer.config.pipeline import PipelineConfig
from streamer.demo import create_topic
from streamer.demo.backlog import StopWhenCaughtUp, sent_so_far
from streamer.demo.sender import Sender
from streamer.stopping import StopSignals, stop_on_signals

TOPIC = "orders"
_SHOWN_INSTANTS = 12
_SHOWN_ROWS = 5


def execute(arguments: argparse.Namespace) -> int:
    """Run the demo. Its data stays in ``--home`` when the demo ends.

    Raises:
        HudiError: the broker, the producer or the pipeline failed.
    """
    home, console = arguments.home.absolute(), Console()
    console.print(f"A Kafka broker starts in {escape(str(home))} …", highlight=False)
    with stop_on_signals() as signals:
        with _broker(home / BROKER_FOLDER) as bootstrap:
            tree = pipeline_tree(home, bootstrap)
            text = yaml.safe_dump(tree, sort_keys=False)
            (home / "orders.yaml").write_text(text, encoding="utf-8")
            config = validated(tree)
            lag = _stream(config, arguments, console, signals)
        show(config, lag, console)
        port = bootstrap.rpartition(":")[2]
        console.print(hints(arguments.home, port), highlight=False, markup=False, soft_wrap=True)
    return 0


def pipeline_tree(home: Path, bootstrap: str) -> dict[str, object]:
    """Return the content of the demo's pipeline file."""
    return {
        "source": {"bootstrap_servers": bootstrap, "topic": TOPIC},
        "decode": {
            "schema": {
                "order_id": "string",
                "customer": "string",
                "region": "string",
                "status": "string",
                "amount": "decimal(10,2)",
                "quantity": "int",
                "updated_at": "timestamp",
                "note": "string",
                "_hoodie_is_deleted": "boolean",
            },
            "timestamp_unit": "us",
        },
        "table": {
            "path": str(home / "orders"),
            "record_key": ["order_id"],
            "ordering": ["updated_at"],
        },
        "compaction": {"after_commits": 3},
    }


@contextmanager
def _broker(folder: Path) -> Iterator[str]:
    """Yield the address of a broker: one that already runs, or one that runs during the block."""
    running = broker.status(folder)
    if running is not None:
        yield running.bootstrap
        return
    with broker.EmbeddedBroker(folder) as started:
        yield started.bootstrap


def _stream(
    config: PipelineConfig, arguments: argparse.Namespace, console: Console, signals: StopSignals
) -> Mapping[int, int]:
    """Send orders and stream them until the table holds all of them; return the remaining lag.

    The lag is empty if the table has no checkpoint.
    """
    count: int = arguments.records
    create_topic(config.kafka.bootstrap_servers, TOPIC)
    first = sent_so_far(config.kafka.bootstrap_servers, TOPIC)
    with display.show_run(console) as shown:
        listener = StopWhenCaughtUp(shown, first + count)
        with pipeline.build(config, listener) as built:
            signals.watch(built.loop.stop)
            listener.stop = built.loop.stop
            sender = Sender(config.kafka.bootstrap_servers, TOPIC, first, count, built.loop.stop)
            sender.start()
            arguments.loop = built.loop
            try:
                built.loop.run()
            finally:
                sender.end()
            sender.raise_failure()
            checkpoint = built.sink.checkpoint()
            return {} if checkpoint is None else built.source.lag(checkpoint)


def show(config: PipelineConfig, lag: Mapping[int, int], console: Console) -> None:
    """Print the table of the orders.

    Args:
        config: the configuration of the pipeline.
        lag: the number of unread records of each partition.
        console: where to print.
    """
    table = open_table(config.table.location())
    console.rule("the table")
    table_command.show(table_command.describe(table), console, as_json=False)
    console.rule(f"its latest {_SHOWN_INSTANTS} instants")
    rows = table_command.timeline_rows(table)[-_SHOWN_INSTANTS:]
    table_command.show_rows(rows, console, as_json=False)
    console.rule("its file slices")
    table_command.show_rows(table_command.file_rows(table), console, as_json=False)
    if table.schema is not None:
        _show_rows(table, console)
    console.rule("rejected records")
    _show_rejects(config.dead_letters.path, console)
    unread = ", ".join(f"partition {p}: {count:,}" for p, count in lag.items())
    console.print(f"unread records: {unread or 'not known'}", highlight=False)


def _show_rows(table: OpenTable, console: Console) -> None:
    console.rule("the latest orders")
    columns = ["order_id", "customer", "status", "amount", "quantity", "updated_at"]
    newest = (
        table.scan(columns=columns).to_reader().read_all().sort_by([("updated_at", "descending")])
    )
    shown = newest.slice(0, _SHOWN_ROWS)
    row_output.print_rows(shown.to_batches(), console)


def _show_rejects(path: str, console: Console) -> None:
    rows = list_letters(open_table(StorageLocation(path)))
    table_command.show_rows(rows, console, as_json=False, if_empty="no rejected records")


def hints(home: Path, port: str) -> str:
    """Return the commands that show what the demo has written.

    Args:
        home: the folder of the demo.
        port: the port of its broker.
    """
    command = _command()
    return f"""
What next:
  {command} query {home}/orders --where "status = 'paid' and amount > 100"
  {command} query {home}/orders_dead_letters --columns partition,offset,value,reason
  {command} dead-letters list {home}/orders.yaml
  {command} table timeline {home}/orders
  {command} demo --home {home}            more orders
  {command} broker start --home {home} --port {port} && {command} run {home}/orders.yaml"""


def _command() -> str:
    """Return the words that start lakemark in the user's shell, as this process was started."""
    started = Path(sys.argv[0])
    if started.name == "__main__.py" and started.parent.name == "lakemark":
        return f"{shlex.quote(sys.executable)} -m lakemark"
    found = shutil.which("lakemark")
    is_on_path = found is not None and started.exists() and started.samefile(found)
    return "lakemark" if is_on_path or started.name != "lakemark" else shlex.quote(str(started))
