"""A preview describes the commit that a run then makes of the same records, and writes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakemark.errors import HudiError
from lakemark.operations.open_table import open_table
from sinks.hudi.batch_columns import SchemaRefused
from sinks.reject_limit import TooManyRejects
from streamer.config.load import validated
from streamer.config.pipeline import PipelineConfig
from streamer.pipeline import open_sink
from streamer.prepared_sink import prepare_sink
from streamer.preview import Preview, preview_records
from streamer.sources.kafka import KafkaSource
from tests.depth import examples
from tests.json_stream import InThisProcess, Record, Tombstone, kafka_batch
from transforms.violations import ExpectationFailed

TOPIC = "orders"
NO_LIMIT = {"dead_letters": {"max_share": 1}}


class Topic:
    """A topic that exists."""

    def start(self, _: None) -> None:
        """Raise no error."""

    def sample(self, _: int) -> pa.Array:
        """Return no values, because the columns are declared."""
        return pa.array([], pa.binary())


def config_of(folder: Path, **changes: object) -> PipelineConfig:
    tree: dict[str, Any] = {
        "source": {"bootstrap_servers": "localhost:9092", "topic": TOPIC},
        "decode": {"schema": {"id": "string", "region": "string", "n": "int", "ts": "bigint"}},
        "table": {
            "path": str(folder / "rows"),
            "record_key": "id",
            "partition_by": "region",
            "ordering": "ts",
            "buckets": 2,
        },
    }
    for name, values in changes.items():
        tree[name] = {**tree.get(name, {}), **values} if isinstance(values, dict) else values
    return validated(tree)


def preview(config: PipelineConfig, records: Sequence[Record | Tombstone]) -> Preview:
    batch = kafka_batch(TOPIC, 0, records)
    return preview_records(config, prepare_sink(config, None), cast(pa.Table, batch.records))


def order(key: str, region: str = "north", **fields: object) -> Record:
    return {"id": key, "region": region, "ts": 1, **fields}


def test_changes_keys_partitions_and_rejects_are_counted_without_a_table(tmp_path: Path) -> None:
    found = preview(
        config_of(tmp_path, **NO_LIMIT),
        [
            order("a", n=1),
            order("a", n=2),
            order("b", "south"),
            Tombstone(b'{"id": "c", "region": "west"}'),
            b"not JSON",
            order("d", n="text"),
        ],
    )
    assert (found.records, found.changes.num_rows, found.deletes, found.keys) == (6, 4, 1, 3)
    assert found.partitions == ["north", "south", "west"]
    assert found.rows().column("n").to_pylist() == [1, 2, None]
    assert found.rows().column_names == ["id", "region", "n", "ts"]
    assert found.rejects.column("offset").to_pylist() == [4, 5]
    assert found.new_columns == [] and found.refusal is None
    assert list(tmp_path.iterdir()) == []


def test_columns_that_records_add_are_listed(tmp_path: Path) -> None:
    evolve = {"unknown_fields": "evolve", "wider_values": "evolve"}
    config = config_of(tmp_path, decode=evolve)
    records = [order("a", n=1 << 40), order("b", note="new")]
    found = preview(config, records)
    assert found.columns.field("note").type == pa.string()
    assert found.rows().column("note").to_pylist() == [None, "new"]
    batch = kafka_batch(TOPIC, 0, records)
    written = open_sink(config, cast(KafkaSource, Topic()))[0].write(batch, InThisProcess())
    assert tuple(found.new_columns) == written.schema_changes
    assert preview(config, records).new_columns == [], "now the table has them"


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"decode": {"unknown_fields": "fail"}}, SchemaRefused),
        ({"dead_letters": {"max_share": 0, "tolerated": 0}}, TooManyRejects),
        ({"dead_letters": {"enabled": False}}, TooManyRejects),
        ({"expect": [{"rule": "region != 'north'", "otherwise": "fail"}]}, ExpectationFailed),
    ],
)
def test_error_with_which_a_run_stops_is_that_of_the_preview(
    changes: dict[str, object], kind: type[HudiError], tmp_path: Path
) -> None:
    config = config_of(tmp_path, **changes)
    records = [order("a"), order("b", n="text"), order("c", unknown=1)]
    found = preview(config, records)
    assert list(tmp_path.iterdir()) == []
    sink, _ = open_sink(config, cast(KafkaSource, Topic()))
    with pytest.raises(kind) as raised:
        sink.write(kafka_batch(TOPIC, 0, records), InThisProcess())
    assert type(found.refusal) is kind
    assert str(found.refusal) == str(raised.value)


def test_topic_without_records_has_columns_only(tmp_path: Path) -> None:
    found = preview(config_of(tmp_path), [])
    assert found.records == found.keys == found.deletes == 0
    assert found.columns.names == ["id", "region", "n", "ts"]


values = st.one_of(
    st.builds(
        order,
        st.sampled_from("abc"),
        st.sampled_from(["north", "south"]),
        n=st.sampled_from([1, None, 1 << 40, "text"]),
        extra=st.sampled_from([1, "x", None]),
    ),
    st.just(b"{"),
    st.sampled_from("abc").map(
        lambda key: Tombstone(f'{{"id": "{key}", "region": "north"}}'.encode())
    ),
)


@settings(max_examples=examples(25))
@given(
    batches=st.lists(st.lists(values, min_size=1, max_size=8), min_size=1, max_size=3),
    decode=st.fixed_dictionaries(
        {
            "unknown_fields": st.sampled_from(["ignore", "evolve", "reject"]),
            "wider_values": st.sampled_from(["reject", "evolve"]),
            "tombstones": st.sampled_from(["delete", "ignore"]),
        }
    ),
)
def test_preview_agrees_with_the_commit_of_the_same_records(
    batches: list[list[Record | Tombstone]],
    decode: dict[str, object],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("previewed")
    config = config_of(folder, decode=decode, **NO_LIMIT)
    offset = 0
    for records in batches:
        found = preview(config, records)
        sink, _ = open_sink(config, cast(KafkaSource, Topic()))
        batch = kafka_batch(TOPIC, offset, records)
        sink.checkpoint()  # the next batch continues there
        result, offset = sink.write(batch, InThisProcess()), offset + len(records)
        assert (found.records, found.rejects.num_rows, found.ignored) == (
            result.records,
            result.rejected,
            result.ignored,
        )
        assert tuple(found.new_columns) == result.schema_changes
        schema = open_table(config.table.location()).schema
        if schema is not None and found.changes.num_rows:
            assert found.columns.names == schema.names[5:]
