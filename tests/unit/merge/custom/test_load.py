from __future__ import annotations

import pickle
import sys
from pathlib import Path

import pytest

from examples.order_merger import OrderMerger
from lakemark.config.merge_settings import MergeSettings
from lakemark.config.table_properties import MergeMode
from lakemark.errors import InvalidConfig, Unsupported
from lakemark.merge.custom import CustomMerger, VectorMerger, load_merger
from lakemark.merge.table_merger import table_merger
from tests.unit.merge.custom.mergers import Appending, ByEventTime, ByEventTimeRecords

HERE = "tests.unit.merge.custom.test_load"
MERGERS = "tests.unit.merge.custom.mergers"

AN_OBJECT = ByEventTime()


class WithoutMerge(VectorMerger):
    merging_strategy = Appending.merging_strategy


class WithoutId(ByEventTime):
    merging_strategy = "latest"


class WithHudisId(ByEventTime):
    merging_strategy = "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5"


class WithArguments(ByEventTime):
    def __init__(self, columns: list[str]) -> None:
        self.columns = columns


def test_class_and_object_load_by_path() -> None:
    assert isinstance(load_merger(f"{MERGERS}:Appending"), Appending)
    assert load_merger(f"{HERE}:AN_OBJECT") is AN_OBJECT


@pytest.mark.parametrize(
    ("path", "fault"),
    [
        ("no_such.module:Merger", r"no_such\.module:Merger.*cannot be imported.*PYTHONPATH"),
        (f"{MERGERS}.Appending", r"package\.module:Class"),
        (f"{MERGERS}:Missing", r"mergers\.py\) has no Missing"),
        ("sys:Missing", r"module sys \(built in\) has no Missing"),
        (f"{HERE}:Path", "inherit from VectorMerger or BufferedRecordMerger"),
        (f"{HERE}:HERE", "an object of str"),
        (f"{HERE}:WithoutMerge", "define the abstract method merge"),
        (f"{HERE}:WithArguments", "give every argument a default"),
        (f"{HERE}:WithoutId", r"'latest', not a UUID; generate one with uuid\.uuid4"),
        (f"{HERE}:WithHudisId", "belongs to Hudi's own mergers"),
    ],
)
def test_invalid_merger_is_refused_with_remedy(path: str, fault: str) -> None:
    with pytest.raises(InvalidConfig, match=fault):
        load_merger(path)


def test_failing_import_of_a_module_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_merger.py").write_text("1 // 0")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(InvalidConfig, match=r"broken_merger.*ZeroDivisionError"):
        load_merger("broken_merger:Merger")


def test_worker_that_cannot_import_a_merger_reports_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Path(__file__).with_name("mergers.py").read_text()
    (tmp_path / "driver_only.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    sent = pickle.dumps(load_merger("driver_only:ByEventTime"))
    assert pickle.loads(sent).name == "driver_only:ByEventTime"
    monkeypatch.undo()
    monkeypatch.delitem(sys.modules, "driver_only")
    with pytest.raises(InvalidConfig, match=r"driver_only:ByEventTime.*for every worker"):
        pickle.loads(sent)


def test_arguments_of_a_merger_are_pickled() -> None:
    assert pickle.loads(pickle.dumps(WithArguments(["a"]))).columns == ["a"]


def settings_of(merger: type[CustomMerger], merger_class: str | None = None) -> MergeSettings:
    strategy = merger.merging_strategy
    return MergeSettings(
        mode=MergeMode.CUSTOM,
        ordering_fields=("ts",),
        strategy_id=strategy,
        merger_class=merger_class,
    )


def test_table_uses_the_first_merger_with_its_strategy_id() -> None:
    given = [OrderMerger(), ByEventTimeRecords(), ByEventTime()]
    found = table_merger(settings_of(ByEventTime), mergers=given)
    assert getattr(found, "merger", None) is given[1]
    assert found.ordering_fields == ("ts",)
    assert found.needs_whole_rows


def test_writer_loads_the_merger_by_path() -> None:
    found = table_merger(settings_of(Appending, f"{MERGERS}:Appending"))
    assert isinstance(getattr(found, "merger", None), Appending)


@pytest.mark.parametrize("given", [[], [OrderMerger()]])
def test_missing_merger_is_reported_with_its_strategy_id(
    given: list[CustomMerger],
) -> None:
    with pytest.raises(
        Unsupported, match=rf"{Appending.merging_strategy}.*lakemark query --merger"
    ):
        table_merger(settings_of(Appending), mergers=given)
