"""``lakemark run`` works next to user modules that have the names of its own packages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import lakemark
from lakemark.merge.custom import load_merger
from lakemark.own_packages import ROOT
from tests.fixtures.kafka import Kafka
from tests.short_lived import short_lived

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

#: More than the share of the driver's memory that a record of this batch has: workers write it.
LONG = b"{" * 100_000

MERGER = Path(__file__).with_name("quantity_merger.py")
RECORD_IMPORT = """
import os
with open(os.environ.get("IMPORTS", os.devnull), "a") as imports:
    imports.write(f"{os.getpid()} ")
"""

CLASHING = ("checkpoints", "sinks", "streamer", "transforms")


@pytest.fixture
def working_directory(tmp_path: Path) -> Path:
    """The folder in which a user runs lakemark; the file of a merger has the name of a module."""
    folder = tmp_path / "project"
    for name in CLASHING:
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text("raise RuntimeError('of a user')")
    (folder / "json.py").write_text(MERGER.read_text() + RECORD_IMPORT)
    return folder


def test_run_on_workers_uses_its_own_packages_and_the_file_of_the_merger(
    kafka: Kafka, topic: str, working_directory: Path, tmp_path: Path
) -> None:
    orders = [
        {"order_id": f"o{n}", "quantity": 10**k, "updated_at": 1}
        for n in range(1000)
        for k in (0, 1)
    ]
    kafka.create_topic(topic)
    kafka.produce(topic, [(b"", LONG), *((b"", json.dumps(order).encode()) for order in orders)])
    (working_directory / "orders.yaml").write_text(
        f"source: {{bootstrap_servers: '{kafka.bootstrap}', topic: {topic}}}\n"
        "decode: {schema: {order_id: string, quantity: bigint, updated_at: bigint}}\n"
        f"table: {{path: {tmp_path}/orders, record_key: order_id, ordering: updated_at,\n"
        "        merger: 'json.py:QuantityMerger'}\n"
        "spark: {master: 'local[2]', conf: {spark.driver.memory: 1g}}\n"
    )
    # As the command starts: the path does not begin with the working directory. Modules of the
    # user are on it because of PYTHONPATH.
    others = tmp_path / "others"
    others.mkdir()
    for name in CLASHING:
        (others / f"{name}.py").write_text("raise RuntimeError('of a user')")
    command = [sys.executable, "-P", str(Path(ROOT, "lakemark", "__main__.py"))]
    ended = subprocess.run(
        [*command, "run", "orders.yaml", "--once", "--log-format", "json"],
        cwd=working_directory,
        env={
            **short_lived(),
            "PYTHONPATH": os.pathsep.join([str(others), ROOT]),
            "IMPORTS": str(tmp_path / "imports"),
        },
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ended.returncode == 0, ended.stderr[-5000:]
    events = [json.loads(line) for line in ended.stderr.splitlines()]
    warned = [event["message"] for event in events if event["event"] == "WarningLogged"]
    for name in CLASHING:
        assert any(f"{others / name}.py has the name of" in message for message in warned)
    processes = set((tmp_path / "imports").read_text().split())
    assert len(processes) > 1, "no worker imported the merger"

    merger = load_merger(f"{working_directory}/json.py:QuantityMerger")
    rows = lakemark.open(tmp_path / "orders", mergers=[merger]).snapshot(["quantity"]).read_all()
    assert rows["quantity"].to_pylist() == [11] * 1000
