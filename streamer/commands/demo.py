"""``lakemark demo``: a broker, orders, a table of them, and a look at it.

Everything lies in one folder. Stopped at any moment and started again, the demo sends the orders
that follow, and the table goes on where its newest commit says.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import yaml
from rich.console import Console
from rich.markup import escape

from lakemark.operations.open_table import OpenTable, open_table
from lakemark.storage import StorageLocation
from streamer import broker, pipeline, progress, row_output
from streamer.commands import table as table_command
from streamer.commands.broker import FOLDER as BROKER_FOLDER
from streamer.config.load import validated
from streamer.config.pipeline import PipelineConfig
from streamer.demo import create_topic
from streamer.demo.backlog import StopWhenCaughtUp, sent_so_far
from streamer.demo.sender import Sender
from streamer.stopping import StopSignals, ends_on_signals

TOPIC = "orders"
_SHOWN_INSTANTS = 12
_SHOWN_ROWS = 5


def execute(arguments: argparse.Namespace) -> int:
    """Run the demo; the data stays in ``--home``.

    Raises:
        HudiError: the broker, the producer or the pipeline failed.
    """
    home, console = arguments.home.absolute(), Console()
    console.print(f"A Kafka broker starts in {escape(str(home))} …", highlight=False)
    with ends_on_signals() as signals:
        with _broker(home / BROKER_FOLDER) as bootstrap:
            tree = pipeline_tree(home, bootstrap)
            text = yaml.safe_dump(tree, sort_keys=False)
            (home / "orders.yaml").write_text(text, encoding="utf-8")
            config = validated(tree)
            lag = _stream(config, arguments, console, signals)
        show(config, lag, console)
        port = bootstrap.rpartition(":")[2]
        console.print(_hints(arguments.home, port), highlight=False, markup=False, soft_wrap=True)
    return 0


def pipeline_tree(home: Path, bootstrap: str) -> dict[str, object]:
    """The demo's pipeline, as its file holds it."""
    return {
        "source": {"bootstrap": bootstrap, "topic": TOPIC},
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
        "compaction": {"every_delta_commits": 3},
    }


@contextmanager
def _broker(folder: Path) -> Iterator[str]:
    """Address of a broker that runs while inside; one that ran before goes on."""
    running = broker.status(folder)
    if running is not None:
        yield running.bootstrap
        return
    with broker.EmbeddedBroker(folder) as started:
        yield started.bootstrap


def _stream(
    config: PipelineConfig, arguments: argparse.Namespace, console: Console, signals: StopSignals
) -> Mapping[int, int]:
    """Send orders and stream them until all are in the table; returns what is left unread."""
    count: int = arguments.records
    create_topic(config.source.bootstrap, TOPIC)
    first = sent_so_far(config.source.bootstrap, TOPIC)
    with progress.display(console) as shown:
        listener = StopWhenCaughtUp(shown, first + count)
        with pipeline.build(config, listener) as built:
            signals.watch(built.loop.stop)
            listener.stop = built.loop.stop
            sender = Sender(config.source.bootstrap, TOPIC, first, count, built.loop.stop)
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
    """Print what became of the orders.

    Args:
        config: of the pipeline.
        lag: records of each partition that were not read.
        console: where to.
    """
    table = open_table(config.table.location())
    console.rule("the table")
    table_command.show(table_command.describe(table), console, as_json=False)
    console.rule(f"its last {_SHOWN_INSTANTS} instants")
    rows = table_command.timeline_rows(table)[-_SHOWN_INSTANTS:]
    table_command.show_rows(rows, console, as_json=False)
    console.rule("its file slices")
    table_command.show_rows(table_command.file_rows(table), console, as_json=False)
    if table.schema is not None:
        _show_rows(table, console)
    console.rule("records that could not become rows")
    _show_rejects(config.dead_letters.path, console)
    unread = ", ".join(f"partition {p}: {count:,}" for p, count in lag.items())
    console.print(f"not read yet: {unread or 'nothing known'}", highlight=False)


def _show_rows(table: OpenTable, console: Console) -> None:
    console.rule("the orders changed last")
    columns = ["order_id", "customer", "status", "amount", "quantity", "updated_at"]
    newest = (
        table.scan(columns=columns).to_reader().read_all().sort_by([("updated_at", "descending")])
    )
    shown = newest.slice(0, _SHOWN_ROWS)
    row_output.print_rows(shown.to_batches(), console)


def _show_rejects(path: str, console: Console) -> None:
    table = open_table(StorageLocation(path))
    if table.schema is None:
        console.print("none")
        return
    rejects = table.scan(columns=["reason", "offset"]).to_reader().read_all()
    # Reasons quote the value: without it, equal ones can be counted.
    general = pc.replace_substring_regex(rejects.column("reason"), r"'[^']*'|\d+", "…")
    counted = pa.table({"reason": general}).group_by("reason").aggregate([([], "count_all")])
    for row in counted.sort_by([("count_all", "descending")]).to_pylist():
        console.print(f"{row['count_all']:>6,}  {escape(row['reason'])}", highlight=False)


def _hints(home: Path, port: str) -> str:
    return f"""
What next:
  lakemark query {home}/orders --where "status = 'paid' and amount > 100"
  lakemark query {home}/orders_dead_letters --columns partition,offset,reason
  lakemark table timeline {home}/orders
  lakemark demo --home {home}            more orders, from where this ended
  lakemark broker start --home {home} --port {port} && lakemark run {home}/orders.yaml"""
