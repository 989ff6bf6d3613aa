"""Measures how old a record is when queries see it, at a constant rate of records.

Every engine in turn reads a topic to which records are sent at a constant rate, and commits batch
after batch as fast as it can. The freshness of a record is the time from its timestamp, at which it
was sent, to the moment when its commit appeared on the table's timeline. The engine then runs for
another minute without records, to measure its CPU time while it is idle.

``python -m benchmarks.freshness [--minutes N] [--rate N] [--engines NAME,…] [--json FILE]``
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

import lakemark
from benchmarks.cpu_time import cpu_time_s
from benchmarks.engines import ROOT, Engine, add_options, machine, work_folder
from benchmarks.freshness_figures import Freshness, Sent, as_lines
from benchmarks.peers.contract import Task
from benchmarks.workloads.catalog import WORKLOADS
from benchmarks.workloads.workload import KAFKA_PARTITIONS
from streamer.broker import EmbeddedBroker

_TOPIC = "orders"
_TABLE = WORKLOADS["upserts_2m"].table_shape()

#: One record in ten has a key of its own. The freshness of these records is measured.
_PROBE_EVERY = 10
_UPDATED_KEYS = 20_000
_TICKS_PER_S = 100
_POLL_S = 0.01
_WARM_UP_S = 20.0
_IDLE_S = 60.0
_LONGEST_START_S = 180.0
_LONGEST_CATCH_UP_S = 300.0


@contextmanager
def running(engine: Engine, task: Task) -> Iterator[subprocess.Popen[bytes]]:
    """Run an engine in its own process group; stop it at the end."""
    scratch = Path(task.scratch_path)
    scratch.mkdir()
    command = engine.command(task.to_json(), scratch)
    with (scratch / "engine.log").open("wb") as log:
        process = subprocess.Popen(
            command, cwd=ROOT, stdout=log, stderr=log, start_new_session=True
        )
        try:
            yield process
        finally:
            _stop(process)


_STREAM = "benchmarks.peers.lakemark_stream"
ENGINES = {
    "lakemark": Engine(_STREAM, ("--set", "run.mode=continuous"), on_spark35=False),
    "lakemark_async": Engine(
        _STREAM,
        ("--set", "run.mode=continuous", "--set", "compaction.mode=async"),
        on_spark35=False,
    ),
    "hudi": Engine("benchmarks.peers.hudi_streaming_sink", ("--continuous",)),
}


def main() -> None:
    arguments = parse_arguments()
    with work_folder(arguments.keep) as folder:
        figures = {name: measure(name, arguments, folder) for name in arguments.engines}
    print("\n".join(as_lines(figures)), flush=True)
    if arguments.json is not None:
        report = {
            "machine": machine(),
            "settings": {"minutes": arguments.minutes, "rate": arguments.rate},
            "figures": {name: asdict(each) for name, each in figures.items()},
        }
        arguments.json.write_text(json.dumps(report, indent=2) + "\n")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long records are measured")
    parser.add_argument("--rate", type=int, default=1_000, help="records in a second")
    add_options(parser, ENGINES)
    return parser.parse_args()


def measure(name: str, arguments: argparse.Namespace, folder: Path) -> Freshness:
    """Run one engine with a broker of its own, and return its figures.

    Raises:
        RuntimeError: the engine stopped, or did not commit every record in time.
    """
    with EmbeddedBroker(folder / f"{name}_broker", heap="1g") as broker:
        task = Task(
            bootstrap=broker.bootstrap,
            topic=_TOPIC,
            table_path=str(folder / name / "table"),
            scratch_path=str(folder / name),
            answer_path=str(folder / name / "answer.json"),
            records_per_batch=100_000,
            driver_memory=arguments.driver_memory,
            table=_TABLE,
        )
        sender = Sender(broker.bootstrap, arguments.rate)
        timeline = TimelineWatch(Path(task.table_path))
        with running(ENGINES[name], task) as process, timeline.watching():
            return _measure(name, process, sender, timeline, task, 60 * arguments.minutes)


def _measure(
    name: str,
    process: subprocess.Popen[bytes],
    sender: Sender,
    timeline: TimelineWatch,
    task: Task,
    measured_s: float,
) -> Freshness:
    print(f"{name}: starts", flush=True)
    sender.send_for(1.0)
    _wait(process, _LONGEST_START_S, lambda: bool(timeline.seen_at_s))
    sender.send_for(_WARM_UP_S)
    began_s, cpu_before_s = time.time(), cpu_time_s(process.pid)
    sender.send_for(measured_s)
    ended_s, cpu_busy_s = time.time(), cpu_time_s(process.pid) - cpu_before_s
    sent = len(sender.probes_at_s)
    _wait(process, _LONGEST_CATCH_UP_S, lambda: _count_probes(task.table_path) == sent)
    cpu_before_s = cpu_time_s(process.pid)
    time.sleep(_IDLE_S)
    cpu_idle_s = cpu_time_s(process.pid) - cpu_before_s
    probes = _commits_of_probes(task.table_path)
    records = [
        Sent(at_s, timeline.seen_at_s[probes[number]])
        for number, at_s in enumerate(sender.probes_at_s)
        if began_s <= at_s < ended_s
    ]
    minutes = (ended_s - began_s) / 60
    return Freshness.of(records, began_s, cpu_busy_s / minutes, cpu_idle_s / (_IDLE_S / 60))


class Sender:
    """Sends orders at a constant rate, and notes when it sent each probe.

    A probe is an order with a key of its own. All other records update a few orders again and
    again, so that the table stays small and a compaction has work to do.

    Attributes:
        probes_at_s: the timestamp of each probe, in the order of their numbers.
    """

    def __init__(self, bootstrap: str, rate: int) -> None:
        """Create the topic.

        Args:
            bootstrap: the broker, ``host:port``.
            rate: records in a second; a multiple of ``_TICKS_PER_S`` times ``_PROBE_EVERY``.
        """
        self.probes_at_s: list[float] = []
        self._sent, self._per_tick = 0, rate // _TICKS_PER_S
        topic = NewTopic(_TOPIC, KAFKA_PARTITIONS)
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([topic])[_TOPIC].result()
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "log_level": 0})

    def send_for(self, seconds: float) -> None:
        """Send records for this time."""
        begun = time.monotonic()
        for tick in range(int(seconds * _TICKS_PER_S)):
            time.sleep(max(0.0, begun + tick / _TICKS_PER_S - time.monotonic()))
            for _ in range(self._per_tick):
                self._send()
            self._producer.poll(0)
        self._producer.flush()

    def _send(self) -> None:
        at_s, number = time.time(), self._sent
        if number % _PROBE_EVERY == 0:
            key = f"probe-{len(self.probes_at_s):08d}"
            self.probes_at_s.append(at_s)
        else:
            key = f"order-{number * 7919 % _UPDATED_KEYS:08d}"
        order = {
            "order_id": key,
            "customer": f"customer-{number % 997}",
            "region": ("north", "south", "east", "west")[number % 4],
            "status": ("placed", "paid", "packed", "shipped")[number % 4],
            "amount": f"{number % 1000}.50",
            "quantity": number % 20,
            "updated_at": number,
            "note": f"leave it at door {number % 100_000}, please, and ring the bell twice",
        }
        value = json.dumps(order).encode()
        self._producer.produce(
            _TOPIC, value, key.encode(), timestamp=int(at_s * 1000), partition=number % 4
        )
        self._sent += 1


@dataclass
class TimelineWatch:
    """Notes when each delta commit appears on the timeline of a table.

    Publishing an instant sets the change time (ctime) of its file, from which the time is read. So
    the time is exact, although the folder is read only every ``_POLL_S`` seconds.

    Attributes:
        table: the root of the table.
        seen_at_s: for each commit, by its requested time: when it was published, in seconds since
            the epoch.
    """

    table: Path
    seen_at_s: dict[str, float] = field(default_factory=dict)
    _ends: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch the timeline within a block."""
        thread = threading.Thread(target=self._run, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._ends.set()
            thread.join()

    def _run(self) -> None:
        while not self._ends.wait(_POLL_S):
            try:
                entries = list(os.scandir(self.table / ".hoodie/timeline"))
            except FileNotFoundError:
                continue
            for entry in entries:
                self._note(entry)

    def _note(self, entry: os.DirEntry[str]) -> None:
        requested, _, rest = entry.name.partition("_")
        if rest.endswith(".deltacommit") and requested not in self.seen_at_s:
            try:
                self.seen_at_s[requested] = entry.stat().st_ctime
            except FileNotFoundError:
                return  # it was archived in between


def _wait(process: subprocess.Popen[bytes], longest_s: float, is_done: Callable[[], bool]) -> None:
    ends = time.monotonic() + longest_s
    while not is_done():
        if process.poll() is not None:
            message = f"the engine ended with {process.returncode}; its log is in engine.log"
            raise RuntimeError(message)
        if time.monotonic() > ends:
            message = f"the engine did not commit the records within {longest_s:.0f} s"
            raise RuntimeError(message)
        time.sleep(0.2)


def _probes(table_path: str) -> Mapping[str, list[str]]:
    table = lakemark.open(table_path, buckets=_TABLE.buckets)
    scan = table.scan(columns=["order_id", "_hoodie_commit_time"], where="order_id > 'probe'")
    found: dict[str, list[str]] = scan.to_table().to_pydict()
    return found


def _count_probes(table_path: str) -> int:
    return len(_probes(table_path)["order_id"])


def _commits_of_probes(table_path: str) -> dict[int, str]:
    """Return the requested time of the commit of each probe, by its number."""
    found = _probes(table_path)
    numbers = (int(key.removeprefix("probe-")) for key in found["order_id"])
    return dict(zip(numbers, found["_hoodie_commit_time"], strict=True))


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Stop the engine and its JVM."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


if __name__ == "__main__":
    main()
