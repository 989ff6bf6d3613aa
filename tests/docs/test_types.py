"""``docs/types.md`` is right about each type: its values, its stored form, and its uses."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest

from lakemark.errors import HudiError
from lakemark.keygen.key_value import key_value
from lakemark.merge.ordering import ordering_ranks
from lakemark.schema.avro import to_avro
from lakemark.spark.types import spark_schema
from streamer.config.column_roles import timestamp_partition_problems
from streamer.config.table import TableConfig
from transforms.decode.json import JsonDecoder
from transforms.schema_text import TYPES, parse_schema, parse_type

PAGE = (Path(__file__).parents[2] / "docs" / "types.md").read_text()


def table(heading: str) -> list[list[str]]:
    """Return the cells of the table below a heading."""
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows[1:]]


VALUES = table("JSON values")
STORED = table("In the table")
USES = {row[0].partition(" (")[0]: row[1] for row in table("What a type can be used for")}


def listed(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def base_name(declared: str) -> str:
    return re.split(r"[(<]", declared)[0]


@pytest.mark.parametrize(("declared", "fits", "misfits"), VALUES)
def test_values_fit_or_are_rejected_as_the_page_says(
    declared: str, fits: str, misfits: str
) -> None:
    (name,) = listed(declared)
    decoder = JsonDecoder(parse_schema({"c": name}))
    accepted, refused = listed(fits), listed(misfits)
    texts = [f'{{"c": {text}}}'.encode() for text in [*accepted, *refused, "null"]]
    decoded = decoder.decode(pa.array([*texts, b"{}"], pa.binary()))
    assert accepted
    assert refused
    first_refused = len(accepted)
    expected = list(range(first_refused, first_refused + len(refused)))
    assert decoded.rejected.tolist() == expected, decoded.reasons


def test_the_tables_list_every_type_and_synonym() -> None:
    names = [base_name(one.name) for one in TYPES]
    for rows in (VALUES, STORED):
        assert [base_name(listed(row[0])[0]) for row in rows] == names
    synonyms = PAGE.split("Other names of the same types:")[1].split("\n\n")[0]
    pairs = dict(re.findall(r"`(\w+)`\s+for\s+`(\w+)`", synonyms))
    assert pairs == {other: base_name(one.name) for one in TYPES for other in one.synonyms}


@pytest.mark.parametrize(("declared", "arrow", "avro", "spark"), STORED)
def test_a_type_is_stored_as_the_page_says(
    declared: str, arrow: str, avro: str, spark: str
) -> None:
    schema = parse_schema({"c": listed(declared)[0]})
    assert str(schema.field("c").type) == arrow
    fields = to_avro(schema, "t")["fields"]
    assert isinstance(fields, list)
    kind = fields[0]["type"][1]
    words = [kind] if isinstance(kind, str) else [kind["type"], kind.get("logicalType")]
    assert ", ".join(filter(None, words)) == avro
    assert spark_schema(schema)["c"].dataType.simpleString() == spark


def test_key_columns_have_the_types_that_the_page_lists() -> None:
    assert usable(lambda rows: key_value(rows, "c")) == listed(USES["record key"])


def test_a_new_table_cannot_be_partitioned_by_a_timestamp() -> None:
    config = TableConfig(path="t", record_key=("id",), partition_by=("c",), storage={})
    for one in TYPES:
        columns = pa.schema([pa.field("c", type_of(one.name))])
        problems = list(timestamp_partition_problems(columns, config))
        assert bool(problems) == (one.name == "timestamp")
    assert USES["partition"] == "the same without `timestamp`"


def test_ordering_columns_have_all_types_but_nested_ones() -> None:
    nested = {"array", "struct"}
    names = {base_name(one.name) for one in TYPES}
    assert set(usable(lambda rows: ordering_ranks(rows, ["c"]))) == names - nested
    # Apache Hudi cannot read logs of tables that are ordered by binary values.
    assert USES["ordering"].startswith("all but `array`, `struct` and `binary`;")


def type_of(name: str) -> pa.DataType:
    parameters = {"decimal": "(10,2)", "array": "<int>", "struct": "<a:int>"}
    return parse_type("c", base_name(name) + parameters.get(base_name(name), ""))


def usable(use: object) -> list[str]:
    """Return the names of the types that a function accepts, in the order of the page."""
    assert callable(use)
    found = []
    for one in TYPES:
        try:
            use(pa.table({"c": pa.nulls(1, type_of(one.name))}))
        except HudiError:
            continue
        found.append(base_name(one.name))
    return found
