"""Mergers in a file, ``FILE.py:Class``, work in this process and in workers without the file."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

import lakemark
from lakemark.errors import InvalidConfig
from lakemark.merge.custom import load_merger
from lakemark.operations.open_table import open_table
from lakemark.operations.write_context import avro_schema_text, write_context
from lakemark.own_packages import ROOT
from lakemark.storage import StorageLocation

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("total", pa.int64())])

ADDING = '''
import pyarrow.compute as pc
from lakemark import Records, VectorMerge, VectorMerger, choose_rows

class Adding(VectorMerger):
    """The newer row with the total of both."""

    merging_strategy = "c3b0bb58-0d5a-4ee2-9a4f-2f6b3a1c9f11"

    class Nested(VectorMerger):
        merging_strategy = "c3b0bb58-0d5a-4ee2-9a4f-2f6b3a1c9f11"

        def merge(self, older, newer):
            return VectorMerge(newer.rows, ~newer.is_delete)

    def merge(self, older: Records, newer: Records) -> VectorMerge:
        position = newer.rows.column_names.index("total")
        field = newer.rows.schema.field(position)
        total = pc.add(older["total"], newer["total"])
        return VectorMerge(newer.rows.set_column(position, field, total), ~newer.is_delete)

nested = Adding.Nested()
'''


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A merger's file that has the name of a module which every process needs."""
    path = tmp_path / "json.py"
    path.write_text(ADDING)
    return path


def create(path: Path, merger: str) -> lakemark.Table:
    return lakemark.create(
        path, schema=SCHEMA, record_key=["id"], ordering=["ts"], merger=merger, merge_mode="CUSTOM"
    )


def rows(ts: int, total: int) -> pa.Table:
    return pa.table({"id": ["a"], "ts": [ts], "total": [total]}, schema=SCHEMA)


def in_worker(program: str, folder: Path) -> str:
    """Run a program in another process and working directory, and return its output."""
    ended = subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": ROOT},
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.strip()


@pytest.mark.parametrize("name", ["json.py", "transforms.py", "lakemark.py"])
def test_merger_of_a_file_merges_and_hides_no_module(name: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.write_text(ADDING)
    table = create(tmp_path / "t", f"{file}:Adding")
    for ts, total in enumerate((1, 10, 100)):
        table.upsert(rows(ts, total))
    table.compact()
    table.upsert(rows(3, 1000))
    merger = load_merger(f"{file}:Adding")
    found = lakemark.open(tmp_path / "t", mergers=[merger]).snapshot(["total"]).read_all()
    assert found["total"].to_pylist() == [1111]
    assert merger.name == f"{file}:Adding"
    assert str(tmp_path) not in sys.path
    imported = sys.modules.get(file.stem)
    assert imported is None or getattr(imported, "__file__", None) != str(file)


def test_command_line_takes_a_file_in_the_working_directory(file: Path, tmp_path: Path) -> None:
    table = create(tmp_path / "t", f"{file}:Adding")
    table.upsert(rows(1, 1))
    table.upsert(rows(2, 10))
    program = str(Path(ROOT, "lakemark", "__main__.py"))
    command = [sys.executable, "-P", program, "query", "t"]
    ended = subprocess.run(
        [*command, "--merger", f"{file.name}:Adding", "--columns", "total", "--json"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": ROOT},
        capture_output=True,
        text=True,
    )
    assert (ended.stdout, ended.stderr) == ('{"total": 11}\n', "")


@pytest.mark.parametrize("name", ["Adding", "nested"])
def test_pickled_merger_brings_its_file(file: Path, name: str, tmp_path: Path) -> None:
    sent = pickle.dumps(load_merger(f"{file}:{name}"))
    file.unlink()
    program = f"import pickle; print(pickle.loads({sent!r}).name)"
    expected = {"Adding": "Adding", "nested": "Adding.Nested"}[name]
    assert in_worker(program, tmp_path) == f"{file}:{expected}"


def test_worker_that_writes_needs_no_file(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker gets the merger with the write context, even if the path is relative."""
    monkeypatch.chdir(tmp_path)
    create(tmp_path / "t", f"{file.name}:Adding")
    table = open_table(StorageLocation(str(tmp_path / "t")))
    text, merger = avro_schema_text(table, SCHEMA), f"{file.name}:Adding"
    sent = pickle.dumps(write_context(table, "1", SCHEMA, text, merger_class=merger))
    file.unlink()
    (tmp_path / "elsewhere").mkdir()
    program = (
        "import pickle\n"
        f"context = pickle.loads(pickle.dumps(pickle.loads({sent!r})))\n"
        "print(context.merger.merger.name)"
    )
    assert in_worker(program, tmp_path / "elsewhere") == f"{file}:Adding"


def test_changed_file_is_loaded_again(tmp_path: Path) -> None:
    file = tmp_path / "merger.py"
    file.write_text(ADDING)
    first = load_merger(f"{file}:Adding")
    assert type(load_merger(f"{file}:Adding")) is type(first)
    file.write_text(ADDING.replace("Adding", "Changed"))
    assert type(load_merger(f"{file}:Changed")).__name__ == "Changed"


def test_threads_wait_for_a_file_that_is_being_loaded(tmp_path: Path) -> None:
    file = tmp_path / "slow.py"
    file.write_text(f"import time; time.sleep(0.3)\n{ADDING}")
    with ThreadPoolExecutor(4) as threads:
        loaded = list(threads.map(load_merger, [f"{file}:Adding"] * 4))
    assert len({type(one) for one in loaded}) == 1


def test_error_in_a_file_of_a_worker_shows_its_line(tmp_path: Path) -> None:
    file = tmp_path / "failing.py"
    failing = "        raise ArithmeticError('shown')\n"
    file.write_text(ADDING.replace("        position = ", f"{failing}        position = "))
    sent = pickle.dumps(load_merger(f"{file}:Adding"))
    file.unlink()
    program = (
        "import pickle, traceback\n"
        f"try: pickle.loads({sent!r}).merge(None, None)\n"
        "except ArithmeticError: print(traceback.format_exc())"
    )
    shown = in_worker(program, tmp_path)
    assert f'File "{file}", line' in shown
    assert "raise ArithmeticError('shown')" in shown


@pytest.mark.parametrize(
    ("content", "name", "fault"),
    [
        (None, "Adding", r"merger\.py cannot be read: No such file.*; pass the path of a local"),
        ("import helper_beside_it", "Adding", r"No module named 'helper_beside_it'.*package"),
        ("def", "Adding", r"merger\.py cannot be imported here \(SyntaxError"),
        ("", "Adding", r"merger\.py\) has no Adding"),
        ("Adding = 1", "Adding", "an object of int; inherit from"),
    ],
)
def test_file_without_a_merger_is_refused_with_remedy(
    content: str | None, name: str, fault: str, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / "merger.py").write_text(content)
        (tmp_path / "helper_beside_it.py").write_text("")
    with pytest.raises(InvalidConfig, match=fault):
        load_merger(f"{tmp_path}/merger.py:{name}")


def test_url_of_a_file_is_refused() -> None:
    with pytest.raises(InvalidConfig, match=r"s3://code/merger\.py is a URL"):
        load_merger("s3://code/merger.py:Adding")
