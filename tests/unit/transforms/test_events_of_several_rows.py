"""A change event of several rows becomes all of its changes, or one reject."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from lakemark.keygen.key_generator import KeyGenerator, KeyGeneratorConfig
from lakemark.model.changes import CHANGE_KIND, ChangeKind
from tests.unit.transforms.decode.envelopes.test_row_events import (
    TEXTS,
    Event,
    canal,
    decoder,
    maxwell,
)
from tests.unit.transforms.test_record_converter import batch
from transforms.decode.envelopes.canal import CanalEnvelope
from transforms.decode.envelopes.envelope import Envelope
from transforms.decode.envelopes.maxwell import MaxwellEnvelope
from transforms.expectations import Outcome, Rule
from transforms.record_converter import RecordConverter
from transforms.rejects import Stage

COLUMNS = {"id": pa.int64(), "region": pa.string(), "ts": pa.int64(), "n": pa.int64()}
KEY_COLUMNS = ("id", "region")
GOOD: dict[str, object] = {"id": 1, "region": "a", "ts": 5, "n": 1}
POSITIVE = Rule(path="expect.0", name="positive", condition="n > 0", outcome=Outcome.DEAD_LETTER)


def converter(envelope: Envelope, *kafka_columns: str) -> RecordConverter:
    return RecordConverter(
        decoder(envelope, COLUMNS),
        KeyGenerator(KeyGeneratorConfig(("id",), ("region",))),
        ("ts",),
        kafka_columns=kafka_columns,  # type: ignore[arg-type]
        rules=(POSITIVE,),
    )


MAXWELL = MaxwellEnvelope(key_columns=KEY_COLUMNS)


def statement(faulty: Event) -> tuple[Envelope, Event]:
    """Return an event of Canal with good rows around two faulty rows."""
    rows = [GOOD, faulty, {**GOOD, "id": 7}, faulty]
    texts = [{name: one and str(one) for name, one in row.items()} for row in rows]
    return CanalEnvelope(encoding=TEXTS, key_columns=KEY_COLUMNS), canal("INSERT", texts)


def moving(faulty: Event) -> tuple[Envelope, Event]:
    """Return an update that moves a row and makes it faulty."""
    return MAXWELL, maxwell("update", faulty, old={"region": "former"})


@pytest.mark.parametrize("event_of", [statement, moving])
@pytest.mark.parametrize(
    ("change", "stage"),
    [
        ({"id": None}, Stage.KEY),
        ({"region": "no/folder"}, Stage.PARTITION),
        ({"ts": None}, Stage.ORDERING),
        ({"n": -1}, Stage.EXPECT),
    ],
)
def test_one_faulty_row_rejects_its_whole_event_once(
    event_of: object, change: dict[str, object], stage: Stage
) -> None:
    assert callable(event_of)
    envelope, event = event_of({**GOOD, **change})
    _, good = event_of({**GOOD, "region": "b"})
    done = converter(envelope)(batch(*map(json.dumps, (good, event, good))))
    assert done.rejects.rows.column("offset").to_pylist() == [1]
    assert done.rejects.rows.column("stage").to_pylist() == [stage.value]
    assert set(done.arrivals.tolist()) == {0, 2}
    assert len(done.arrivals) == done.changes.num_rows > 2


def test_rows_have_the_metadata_of_their_own_records() -> None:
    """As many rows as records: a filtered event, and an update that becomes two changes."""
    convert = converter(MAXWELL, "offset")
    ignored, moved = maxwell("table-alter"), maxwell("update", GOOD, old={"region": "former"})
    done = convert(batch(*map(json.dumps, (moved, ignored, moved, ignored))))
    kinds = [ChangeKind.FLAGGED_DELETE, ChangeKind.UPSERT] * 2
    assert done.changes.column(CHANGE_KIND).to_pylist() == kinds
    assert done.changes.column("_kafka_offset").to_pylist() == [None, 0, None, 2]
