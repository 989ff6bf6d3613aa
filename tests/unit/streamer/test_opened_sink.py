"""All that a pipeline can be refused for is found before a table is made, changed or removed."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from streamer.config.load import validated
from streamer.config.pipeline import PipelineConfig
from streamer.pipeline import open_sink
from streamer.sources.kafka import KafkaSource
from table.errors import InvalidConfig
from table.hudi_table import open_table
from table.storage import StorageLocation


class Topic:
    """Is there, and nothing else of it is asked."""

    def start_map(self, _: None) -> None:
        """Nothing is wrong with it."""


def opened(folder: Path, **table: object) -> PipelineConfig:
    config = validated(
        {
            "source": {"bootstrap": "localhost:9092", "topic": "orders"},
            "decode": {"schema": {"id": "string", "region": "string"}},
            "table": {"path": str(folder / "rows"), "record_key": "id", **table},
        }
    )
    open_sink(config, cast(KafkaSource, Topic()))
    return config


def files(folder: Path) -> dict[str, bytes]:
    found = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


@pytest.mark.parametrize("unwanted", [{"metadata_table": False}, {"drop_metadata_table": True}])
def test_a_refused_pipeline_leaves_another_ones_tables_as_they_were(
    tmp_path: Path, unwanted: dict[str, bool]
) -> None:
    opened(tmp_path)
    before = files(tmp_path)
    with pytest.raises(InvalidConfig, match="record_key is id in the table and region"):
        opened(tmp_path, record_key="region", **unwanted)
    assert files(tmp_path) == before


@pytest.mark.parametrize("place", ["rows", "rows_dead_letters"])
def test_no_table_is_made_beside_a_folder_that_is_none(tmp_path: Path, place: str) -> None:
    (tmp_path / place).mkdir()
    (tmp_path / place / "notes.txt").write_text("mine")
    with pytest.raises(InvalidConfig, match=rf"{place} is not empty and no Hudi table"):
        opened(tmp_path)
    assert files(tmp_path) == {f"{place}/notes.txt": b"mine"}


def test_a_pipeline_without_a_metadata_table_removes_it(tmp_path: Path) -> None:
    opened(tmp_path)
    places = [tmp_path / "rows", tmp_path / "rows_dead_letters"]
    tables = [open_table(StorageLocation(str(place))) for place in places]
    assert all(table.properties.metadata_partitions for table in tables)
    opened(tmp_path, metadata_table=False)
    tables = [open_table(StorageLocation(str(place))) for place in places]
    assert not any(table.properties.metadata_partitions for table in tables)
    assert not any("metadata" in name for name in files(tmp_path))
