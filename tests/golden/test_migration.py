"""A job with the options of a golden table is translated to a pipeline that continues the table."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakemark.errors import HudiError
from streamer.migration.translation import Translation
from streamer.prepared_sink import prepare_sink
from tests.depth import sample
from tests.golden.golden_table import OLD_TABLES, unpack
from tests.golden.make.options import Options
from tests.golden.make.recipes import RECIPES
from tests.unit.streamer.migration.jobs import missing, translated

_WRITE = "hoodie.datasource.write."

#: Properties that HoodieStreamer takes from its options.
OPTIONS = {
    "table_type": f"{_WRITE}table.type",
    "source_ordering_fields": "hoodie.table.ordering.fields",
    "payload_class": f"{_WRITE}payload.class",
    "merge_mode": "hoodie.write.record.merge.mode",
}

#: Tables that lakemark does not write, and why the command or the check of the table says so.
REFUSED = {
    **dict.fromkeys(OLD_TABLES, "only versions 6, 8, 9"),
    "v6_cow_custom_keys": "does not show which of them are formatted times",
    "v9_cow_custom_keys": "store them in .hoodie/hoodie.properties",
    "v9_cow_dropped_columns": "lakemark stores the partition columns",
    "v9_cow_schema_on_read": "schema on read",
    "v9_cow_slash_dates": "slash.separated.date.partitioning=true in .hoodie/hoodie.properties",
    "v9_cow_timestamp_keys_text": "DATE_STRING",
    "v9_cow_timestamp_keys_zoned": "name the zone of its other writers",
    "v9_mor_schema_on_read": "schema on read",
    "v9_mor_slash_paths": "lakemark does not write such paths",
}


def translate_job(options: Options, path: Path) -> Translation:
    """Translate a job that writes a table with the options of a recipe."""
    named = {name: options[key] for name, key in OPTIONS.items() if key in options}
    properties = {key: value for key, value in options.items() if key not in OPTIONS.values()}
    if properties.get("hoodie.index.type") == "RECORD_INDEX":  # else rows keep their partition
        properties["hoodie.record.index.update.partition.path"] = "true"
    return translated(properties, target_base_path=str(path), **named)


@pytest.mark.parametrize("name", sample(sorted(RECIPES), one_in=5))
def test_translated_job_continues_the_table(name: str, tmp_path: Path) -> None:
    golden = unpack(name, tmp_path)
    found = translate_job(RECIPES[name].options, golden.root)
    if name in REFUSED:
        assert REFUSED[name] in refusal(found)
        return
    assert found.is_complete, (found.problems, missing(found, changes_rows=True))
    assert found.config is not None
    assert prepare_sink(found.config, None).rows.found is not None


def refusal(found: Translation) -> str:
    """Return why the translation is not complete, or why the pipeline does not continue."""
    if not found.is_complete:
        return str((found.problems, missing(found, changes_rows=True)))
    assert found.config is not None
    with pytest.raises(HudiError) as refused:
        prepare_sink(found.config, None)
    return str(refused.value)
