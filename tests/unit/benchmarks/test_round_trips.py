"""Requests that overlap are one round trip."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import round_trips
from benchmarks.round_trips import DistantStorage, Request, Trips, measure, steps


@pytest.mark.parametrize(
    ("times", "sequential"),
    [
        ([], 0),
        ([(0, 1), (1, 2), (2, 3)], 3),
        ([(0, 1), (0, 1), (0, 1)], 1),
        ([(0, 9), (1, 2), (3, 4), (5, 6)], 3),
        ([(0, 2), (1, 3), (2, 4)], 2),
    ],
)
def test_longest_chain_of_requests_is_counted(
    times: list[tuple[int, int]], sequential: int
) -> None:
    requests = [Request("p", begin, end) for begin, end in times]
    assert Trips.of(requests, 1.0) == Trips(len(times), sequential, 1.0)


def test_every_request_takes_the_latency(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "f").write_bytes(b"x")
    storage = DistantStorage(0.01)
    storage.copy_from(tmp_path)
    found = measure(storage, lambda: (storage.read("p/f"), storage.head("none")))
    assert (found.requests, found.sequential) == (2, 2)
    assert found.wall_s >= 0.02


def test_selective_query_asks_in_few_round_trips(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(round_trips, "_REPEATS", 1)
    found = dict(steps(round_trips.create_table(0.02), commits=4))
    for name in ("query of one partition", "query by a range of a column"):
        assert 2 * found[name].sequential <= found[name].requests, found[name]
    for name in ("open", "commit"):
        assert found[name].sequential < found[name].requests, found[name]
