"""The contract of ``Transform``, for every step that lakemark has."""

from __future__ import annotations

import pickle
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pytest

from lakemark.errors import InvalidConfig
from transforms.steps.add import Add
from transforms.steps.cast import Cast
from transforms.steps.chain import Step, TransformChain, TransformFault
from transforms.steps.columns import Drop, Flatten, Rename, Select
from transforms.steps.explode import Explode
from transforms.steps.filter import Filter
from transforms.steps.hiding import Hash, Mask
from transforms.steps.sql import Sql
from transforms.steps.transform import Transform, Transformed

SCHEMA = pa.schema(
    [
        pa.field("id", pa.string()),
        pa.field("n", pa.int64()),
        pa.field("text", pa.string()),
        pa.field(
            "place", pa.struct([("city", pa.string()), ("at", pa.struct([("x", pa.int32())]))])
        ),
        pa.field("tags", pa.list_(pa.field("element", pa.string()))),
    ]
)


ROWS = pa.Table.from_pylist(
    [
        {
            "id": f"k{n}",
            "n": None if n % 7 == 0 else n * 3,
            "text": None if n % 5 == 0 else ("x" if n % 4 == 0 else str(n)),
            "place": None if n % 6 == 0 else {"city": f"c{n}", "at": {"x": n}},
            "tags": None if n % 8 == 0 else [f"t{i}" for i in range(n % 3)],
        }
        for n in range(40)
    ],
    SCHEMA,
)
TRANSFORMS: Mapping[str, Transform] = {
    "select": Select(("n", "id")),
    "drop": Drop(("tags", "place")),
    "rename": Rename({"id": "key", "n": "number"}),
    "cast": Cast({"text": pa.int32(), "n": pa.decimal128(12, 2)}),
    "flatten": Flatten(),
    "explode": Explode("tags", "position"),
    "explode, with empty lists": Explode("tags", "position", keeps_empty=True),
    "filter": Filter("n > 20 and text != 'x'"),
    "add": Add({"twice": "n * 2", "city": "upper(place.city) || '!'"}),
    "hash": Hash(("id", "n"), b"salt"),
    "mask": Mask(("id", "text"), keep_last=1),
    "sql": Sql(
        "select id as key, n + 1 as more, upper(place.city) as city, cast(text as int) as number "
        "from records where n is null or n > 9"
    ),
    "sql, with all columns": Sql(
        "select *, list_transform(tags, lambda t: t || 'x') as t from records"
    ),
}


@pytest.fixture(params=TRANSFORMS)
def transform(request: pytest.FixtureRequest) -> Transform:
    if request.param.startswith("sql"):
        pytest.importorskip("duckdb")
    return TRANSFORMS[request.param]


def step_of(transform: Transform) -> Step:
    return TransformChain.build([("transform.0.it", transform)], SCHEMA).steps[0]


def as_rows(done: Transformed) -> list[tuple[int, dict[str, object]]]:
    origins = np.arange(done.rows.num_rows) if done.origins is None else done.origins
    return list(zip(origins.tolist(), done.rows.to_pylist(), strict=True))


@pytest.mark.parametrize("rows", [ROWS, ROWS.slice(3, 9), ROWS.slice(0, 0)], ids=len)
def test_every_row_is_transformed_rejected_or_filtered(
    transform: Transform, rows: pa.Table
) -> None:
    done = step_of(transform).run(rows)
    assert done.rows.schema == step_of(transform).schema
    origins = {origin for origin, _ in as_rows(done)}
    parts = [origins, {*done.rejected}, {*done.filtered.tolist()}]
    assert set().union(*parts) == {*range(rows.num_rows)}
    assert sum(map(len, parts)) == rows.num_rows


def test_the_result_does_not_depend_on_the_other_rows(transform: Transform) -> None:
    """Batches are divided differently at each attempt, and must become the same rows."""
    step = step_of(transform)
    whole, alone = step.run(ROWS), list[tuple[int, dict[str, object]]]()
    for n in range(ROWS.num_rows):
        done = step.run(ROWS.slice(n, 1))
        alone += [(n, row) for _, row in as_rows(done)]
        assert (n in whole.rejected) == bool(done.rejected)
        assert (n in whole.filtered) == bool(len(done.filtered))
    assert as_rows(whole) == alone


def test_several_chunks_are_one_batch(transform: Transform) -> None:
    chunks = pa.concat_tables([ROWS.slice(0, 11), ROWS.slice(11, 0), ROWS.slice(11)])
    step = step_of(transform)
    assert as_rows(step.run(chunks)) == as_rows(step.run(ROWS))


def test_executors_receive_the_step(transform: Transform) -> None:
    received = pickle.loads(pickle.dumps(step_of(transform)))
    assert as_rows(received.run(ROWS)) == as_rows(step_of(transform).run(ROWS))


def test_unknown_columns_are_refused_by_name(transform: Transform) -> None:
    if transform == Flatten():
        return  # takes any columns
    with pytest.raises(InvalidConfig, match=r"id|n|text|tags|place|position"):
        transform.output_schema(pa.schema([("position", pa.int32()), ("twice", pa.int32())]))


def test_keys_give_the_same_key_columns_as_whole_rows(transform: Transform) -> None:
    """A tombstone, which has only a key, finds the row that its record had."""
    step = step_of(transform)
    chain = TransformChain.build([("it", transform)], SCHEMA)
    whole = step.run(ROWS)
    checked = 0
    for column in step.schema.names:
        sources = transform.key_sources(column, SCHEMA)
        if sources is None:
            assert isinstance(transform, Explode)
            continue
        tops = {source.partition(".")[0] for source in sources}
        found = chain.apply_to_keys(ROWS.select([n for n in SCHEMA.names if n in tops]))
        assert not len(found.filtered)
        by_origin = dict(zip(found.origins.tolist(), found.rows[column].to_pylist(), strict=True))
        for origin, row in as_rows(whole):
            assert by_origin[origin] == row[column]
            checked += 1
    assert checked


class Faulty(Transform):
    """Returns the rows with wrong origins, or with other columns."""

    def __init__(self, done: Transformed) -> None:
        self._done = done

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        return schema

    def apply(self, rows: pa.Table) -> Transformed:
        return self._done


THREE = ROWS.slice(0, 3)
FAULTS: Mapping[str, tuple[Transformed, str]] = {
    "a lost row": (
        Transformed(rows=THREE.slice(0, 2), origins=np.array([0, 2])),
        "row 1 of 3 has neither output rows nor a reason",
    ),
    "fewer rows": (Transformed(rows=THREE.slice(0, 2)), "2 rows were returned, but 3 origins"),
    "a rejected row that is returned": (
        Transformed(rows=THREE, rejected={1: "bad"}),
        "row 1 of 3 has two results",
    ),
    "an unknown row": (
        Transformed(rows=THREE, origins=np.array([0, 1, 3])),
        "an origin is not one of the 3 input rows",
    ),
    "another order": (
        Transformed(rows=THREE, origins=np.array([0, 2, 1])),
        "the output rows are not in the order of the input",
    ),
    "other columns": (Transformed(rows=THREE.select(["id"])), "columns id were returned"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_step_that_breaks_the_contract_stops_the_batch(name: str) -> None:
    done, fault = FAULTS[name]
    with pytest.raises(TransformFault, match=fault):
        step_of(Faulty(done)).run(THREE)
