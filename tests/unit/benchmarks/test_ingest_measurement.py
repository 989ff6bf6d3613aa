"""How a workload runs if an engine fails or writes a wrong table; no engine really runs."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

from benchmarks.ingest import measure
from benchmarks.ingest.measure import Measurement, Outcome, Settings
from benchmarks.peers.contract import Answer, Batch, Task
from benchmarks.workloads.catalog import WORKLOADS

BATCH_S = 2.0


class Scene:
    """Replaces the broker, the engines and the reader of the tables.

    Attributes:
        sent: the first record and the number of records of each phase.
        started: the engines in the order in which they ran, with the size of their batches.
        failing: engines that fail.
        wrong: engines whose tables are wrong.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sent: list[tuple[int, int]] = []
        self.started: list[tuple[str, int]] = []
        self.compared: list[str] = []
        self.failing: set[str] = set()
        self.wrong: set[str] = set()
        broker = SimpleNamespace(bootstrap="localhost:1")
        monkeypatch.setattr(measure, "EmbeddedBroker", lambda *_, **__: nullcontext(broker))
        monkeypatch.setattr(measure, "send", self._send)
        monkeypatch.setattr(measure, "run_engine", self._run)
        monkeypatch.setattr(measure, "TableReader", lambda _: self)

    def _send(
        self, _bootstrap: str, _topic: str, _workload: object, first: int, count: int
    ) -> None:
        self.sent.append((first, count))

    def _run(self, name: str, task: Task, records: int) -> Answer:
        self.started.append((name, task.records_per_batch))
        if name in self.failing:
            raise RuntimeError(name)
        return Answer.of([Batch(records, 0.0, BATCH_S)])

    def difference(self, engine: str, _task: Task, _expected: pa.Table) -> str | None:
        self.compared.append(engine)
        return "rows differ" if engine in self.wrong else None

    def close(self) -> None:
        """There is nothing to stop."""


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(monkeypatch)


def run(folder: Path, workload: str, engines: list[str], repeats: int = 2) -> Outcome:
    sized = WORKLOADS[workload].resized(1_000, 500).with_last_batches(2)
    settings = Settings(engines, repeats, "1g")
    return Measurement(workload, sized, settings, folder / workload).run()


def test_every_repeat_of_every_engine_has_an_answer(scene: Scene, tmp_path: Path) -> None:
    outcome = run(tmp_path, "avro", ["floor", "lakemark", "hudi"])
    assert {name: len(answers) for name, answers in outcome.answers.items()} == {
        "floor": 2,
        "lakemark": 2,
        "hudi": 2,
    }
    assert scene.sent == [(0, 1_000)]
    assert scene.compared == ["lakemark", "hudi", "hudi", "lakemark"]


def test_only_the_last_phase_is_measured(scene: Scene, tmp_path: Path) -> None:
    outcome = run(tmp_path, "small_batches", ["hudi"], repeats=1)
    assert scene.sent == [(0, 1_000), (1_000, 200)]
    assert scene.started == [("hudi", 504), ("hudi", 104)]
    (answer,) = outcome.answers["hudi"]
    assert answer.batches[0].records == 200


def test_an_engine_that_fails_is_reported_and_does_not_run_again(
    scene: Scene, tmp_path: Path
) -> None:
    scene.failing.add("hudi")
    outcome = run(tmp_path, "avro", ["lakemark", "hudi"])
    assert outcome.failures == {"hudi": "hudi"}
    assert outcome.answers.keys() == {"lakemark"}
    assert [name for name, _ in scene.started] == ["lakemark", "hudi", "lakemark"]


def test_an_engine_with_a_wrong_table_has_no_figures(scene: Scene, tmp_path: Path) -> None:
    scene.wrong.add("lakemark")
    outcome = run(tmp_path, "avro", ["floor", "lakemark", "hudi"])
    assert outcome.failures == {"lakemark": "rows differ"}
    assert outcome.answers.keys() == {"floor", "hudi"}


def test_an_engine_that_cannot_run_a_workload_is_reported(scene: Scene, tmp_path: Path) -> None:
    settings = Settings(["floor", "delta"], 1, "1g")
    workload = WORKLOADS["upserts_2m"]
    outcome = Measurement("upserts_2m", workload, settings, tmp_path / "large").run()
    assert outcome.refusals == {"delta": "runs at most 1,000,000 records"}
    assert [name for name, _ in scene.started] == ["floor"]
    assert scene.compared == []
