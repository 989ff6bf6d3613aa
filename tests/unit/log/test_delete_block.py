from __future__ import annotations

import struct
from datetime import date

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakemark.errors import CorruptData, HudiError, Unsupported
from lakemark.log.delete_block import encode_deletes, read_deletes
from lakemark.log.log_block import BlockType
from tests.unit.codec.kryo_output import KryoOutput, Long
from tests.unit.log.blocks import GOLDEN, block_of, mutations, read_all

GOLDEN_DELETES = ["avro_data_and_delete", "delete_by_key", "delete_none"]


@pytest.mark.parametrize("name", GOLDEN_DELETES)
def test_apaches_deletes_are_written_as_apache_wrote_them(name: str) -> None:
    block = read_all((GOLDEN / f"{name}.log").read_bytes())[-1]
    records = read_deletes(block)
    ordering, wins_always = records.ordering_as([pa.int64()])
    written = encode_deletes(records.record_keys, records.partition_paths, ordering, wins_always)
    assert written == block.content.read()


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.text(max_size=5), st.text(max_size=5), st.integers(1, 9), st.booleans()))
)
def test_deletes_come_back(records: list[tuple[str, str, int, bool]]) -> None:
    keys, partitions, times, wins = [list(c) for c in zip(*records, strict=True)] or [[]] * 4
    content = encode_deletes(
        pa.array(keys, pa.string()),
        pa.array(partitions, pa.string()),
        [pa.array(times, pa.int64())],
        np.array(wins, np.bool_),
    )
    read = read_deletes(block_of(BlockType.DELETE, content))
    (ordering,), wins_always = read.ordering_as([pa.int64()])
    assert read.record_keys.to_pylist() == keys
    assert read.partition_paths.to_pylist() == partitions
    assert wins_always.tolist() == wins
    assert ordering.to_pylist() == [
        None if always else at for at, always in zip(times, wins, strict=True)
    ]


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.text(max_size=5), st.dates(), st.booleans()), min_size=1
    )
)
def test_several_ordering_values_come_back(
    records: list[tuple[int, str, date, bool]],
) -> None:
    kinds = [pa.int64(), pa.string(), pa.date32()]
    *values, wins = [list(column) for column in zip(*records, strict=True)]
    names = pa.array([f"k{number}" for number in range(len(records))])
    columns = [pa.array(column, kind) for column, kind in zip(values, kinds, strict=True)]
    content = encode_deletes(names, names, columns, np.array(wins, np.bool_))
    read, wins_always = read_deletes(block_of(BlockType.DELETE, content)).ordering_as(kinds)
    assert wins_always.tolist() == wins
    hidden = pa.array(wins)
    for column, kind, back in zip(columns, kinds, read, strict=True):
        assert back.to_pylist() == pc.if_else(hidden, pa.scalar(None, kind), column).to_pylist()


@pytest.mark.parametrize("version", [1, 2])
def test_java_objects_of_old_releases_are_read(version: int) -> None:
    if version == 1:
        body = KryoOutput().keys([("k1", "p"), ("k2", "p")])
    else:
        body = KryoOutput().records([("k1", "p", Long(5)), ("k2", "p", 0)])
    content = struct.pack(">ii", version, len(body)) + body
    read = read_deletes(block_of(BlockType.DELETE, content))
    assert read.record_keys.to_pylist() == ["k1", "k2"]
    assert read.partition_paths.to_pylist() == ["p", "p"]
    (ordering,), wins_always = read.ordering_as([pa.int64()])
    assert wins_always.tolist() == [version == 1, True]
    assert ordering.to_pylist() == [None if version == 1 else 5, None]


def test_damage_to_java_objects_is_located_in_the_log() -> None:
    content = struct.pack(">ii", 1, 4) + b"\x01\x05zz"
    with pytest.raises(CorruptData, match=r"some\.log at byte"):
        read_deletes(block_of(BlockType.DELETE, content))


@pytest.mark.parametrize("version", [0, 4])
def test_unknown_version_of_a_block_is_corrupt(version: int) -> None:
    content = struct.pack(">ii", version, 1) + b"\x00"
    with pytest.raises(CorruptData, match=f"block version 1, 2, 3.*{version}"):
        read_deletes(block_of(BlockType.DELETE, content))


@pytest.mark.parametrize("content", [b"", b"\x00" * 8, struct.pack(">ii", 3, 9) + b"\x00"])
def test_a_prefix_that_does_not_fit_is_corrupt(content: bytes) -> None:
    with pytest.raises(CorruptData, match=r"some\.log at byte"):
        read_deletes(block_of(BlockType.DELETE, content))


@settings(deadline=None)
@given(st.data())
def test_damaged_deletes_are_read_or_refused(data: st.DataObject) -> None:
    block = read_all((GOLDEN / "avro_data_and_delete.log").read_bytes())[-1]
    damaged = data.draw(mutations(block.content.read()))
    try:
        read_deletes(block_of(BlockType.DELETE, damaged))
    except HudiError as error:
        assert isinstance(error, CorruptData | Unsupported)
