"""A step calls a function of a user's file, also in a process that does not have the file."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from lakemark.errors import InvalidConfig, StorageUnavailable
from transforms.steps.chain import TransformChain, TransformFault
from transforms.steps.python_function import PythonFunction

SCHEMA = pa.schema([("n", pa.int64())])
ROWS = pa.table({"n": [*range(20)]})


def function(folder: Path, body: str) -> PythonFunction:
    """Return the step that calls a function with this body."""
    path = folder / "json.py"  # the name of another module
    path.write_text(f"import pyarrow as pa\n\ndef change(rows):\n    {body}\n")
    return PythonFunction.read(f"{path}:change")


def test_rows_for_which_the_function_fails_alone_are_rejected(tmp_path: Path) -> None:
    body = (
        "return pa.table([[12 // (n - 3) for n in rows['n'].to_pylist()]], "
        "schema=pa.schema([('m', pa.int64())]))"
    )
    step = function(tmp_path, body)
    chain = TransformChain.build([("transform.0.python", step)], SCHEMA)
    result = chain.apply(ROWS)
    reason = "transform.0.python: change raised ZeroDivisionError: integer division or modulo by"
    assert [*result.rejected] == [3]
    assert result.rejected[3].startswith(reason)
    assert result.rows["m"].to_pylist() == [12 // (n - 3) for n in range(20) if n != 3]


def test_rows_with_computed_times_out_of_range_are_rejected(tmp_path: Path) -> None:
    schema = pa.schema(
        [
            ("day", pa.date32()),
            ("at", pa.list_(pa.struct([("t", pa.timestamp("us", "UTC"))]))),
        ]
    )
    days = [0, 2_932_896, 2_932_897, -719_162, -719_163, None, None, None]
    times = [0, 1, 2, 3, 4, 253_402_300_799_999_999, 253_402_300_800_000_000, -(2**63)]
    # an array before the rows, and a null, so that elements and rows have different numbers
    lists = [[{"t": 0}] * 3, *([{"t": None}, {"t": one}] for one in times)]
    rows = pa.table([[None, *days], lists], schema=schema).slice(1)
    step = function(tmp_path, "return rows")
    chain = TransformChain.build([("transform.0.python", step)], schema)
    result = chain.apply(rows)
    columns = {row: reason.column for row, reason in result.rejected.items()}
    assert columns == {2: "day", 4: "day", 6: "at[].t", 7: "at[].t"}
    assert all(one.step == "transform.0.python" for one in result.rejected.values())
    assert result.origins.tolist() == [0, 1, 3, 5]
    assert result.rows.equals(rows.take([0, 1, 3, 5]))


def test_parts_in_which_the_function_finds_other_types_are_united(tmp_path: Path) -> None:
    body = (
        "return pa.table({'m': pa.array("
        "[12 // (n - 3) if n == 2 else None for n in rows['n'].to_pylist() if n - 3 or 1 // 0], "
        "None if rows.num_rows else pa.int64())})"
    )
    chain = TransformChain.build([("transform.0.python", function(tmp_path, body))], SCHEMA)
    result = chain.apply(ROWS)
    assert [*result.rejected] == [3]
    assert result.rows["m"].to_pylist() == [-12 if n == 2 else None for n in range(20) if n != 3]


def test_executor_without_the_file_calls_the_function(tmp_path: Path) -> None:
    step = function(tmp_path, "return rows.append_column('m', rows['n'])")
    sent = tmp_path / "step"
    sent.write_bytes(pickle.dumps((step, ROWS)))
    Path(step.file.path).unlink()
    program = (
        f"import pickle; step, rows = pickle.load(open({str(sent)!r}, 'rb')); "
        "print(step.apply(rows).rows.column_names)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "['n', 'm']\n", done.stderr


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ("return rows.slice(0, len(rows) // 2)", "returned 10 rows for 20; a function returns one"),
        ("return rows if len(rows) < 1 else None", "returned NoneType, not a pyarrow.Table"),
        ("return rows if len(rows) < 1 else rows.rename_columns(['x'])", "columns x were returned"),
    ],
)
def test_function_that_breaks_the_contract_stops_the_batch(
    tmp_path: Path, body: str, fault: str
) -> None:
    chain = TransformChain.build([("it", function(tmp_path, body))], SCHEMA)
    with pytest.raises(TransformFault, match=fault):
        chain.apply(ROWS)


def test_error_that_may_be_retried_rejects_no_rows(tmp_path: Path) -> None:
    body = "import lakemark.errors as e; "
    raising = "\n    if len(rows): raise e.StorageUnavailable('later')\n    return rows"
    with pytest.raises(StorageUnavailable):
        function(tmp_path, body + raising).apply(ROWS)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return rows['x']", "must accept a table without rows, but raised change raised KeyErr"),
        ("return 1", "returned int, not a pyarrow.Table"),
    ],
)
def test_function_without_columns_is_refused_before_the_run(
    tmp_path: Path, body: str, message: str
) -> None:
    with pytest.raises(InvalidConfig, match=message):
        function(tmp_path, body).output_schema(SCHEMA)
    with pytest.raises(InvalidConfig, match="has no function 'other'"):
        PythonFunction.read(f"{tmp_path}/json.py:other")
    with pytest.raises(InvalidConfig, match=r"the step's file .* cannot be read"):
        PythonFunction.read(f"{tmp_path}/missing.py:change")
