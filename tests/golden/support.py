"""``python -m tests.golden.support``: write docs/support.md from the tests."""

from __future__ import annotations

import ast
import json
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.golden.make.recipes import RECIPES
from tests.golden.test_answers import COMES_BACK, FROM_PATH, REFUSED

_TESTS = Path(__file__).parents[1]
_DOCUMENT = _TESTS.parent / "docs" / "support.md"

_HEAD = """# Tables that lakemark reads

`python -m tests.golden.support` generates this page from the tests. Apache Hudi 1.2.0 (Spark 3.5)
wrote each table below (Hudi 0.9, 0.10, 0.11 and 0.13 those of versions 2 to 5) and ran the queries.
The tests run the same queries with lakemark, and compare every row and every column of the results,
including meta columns.

| Table | What it shows | Queries with the same result as in Apache Hudi |
|---|---|---|
"""

_NOTES = """
¹ One partition column is not compared. On Spark, Apache Hudi derives this column from the path, so
its spelling or type differs from the written value; lakemark returns the written value.

² Two incremental queries differ: Apache Hudi returns a late row although a compacted base file
contains a newer row of the same key. lakemark does not return the late row.

## Tables that lakemark refuses

lakemark refuses a table or a file with one of the features below, so no query returns wrong rows.
The error names the reason. [foreign_tables.md](foreign_tables.md) lists the effect of each table
property on reading and writing.

"""


def support() -> str:
    """Render the whole document."""
    rows = (f"| `{name}` | {RECIPES[name].shows} | {_answered(name)} |" for name in sorted(RECIPES))
    refused = (f"- {what}" for what in sorted(_refused()))
    return _HEAD + "\n".join(rows) + "\n" + _NOTES + "\n".join(refused) + "\n"


def _answered(name: str) -> str:
    if name in REFUSED:
        return f"none: {REFUSED[name]}"
    note = "¹" if name in FROM_PATH else ""
    note += "²" if any(table == name for table, _ in COMES_BACK) else ""
    return ", ".join(dict.fromkeys(_kind(query) for query in _queries(name))) + note


def _kind(query: str) -> str:
    head, _, tail = query.rpartition("_")
    return head if tail.isdecimal() else query


def _queries(name: str) -> Mapping[str, object]:
    with tarfile.open(Path(__file__).parent / f"{name}.tar.gz") as archive:
        file = archive.extractfile(f"{name}/meta.json")
        assert file is not None
        queries: Mapping[str, object] = json.load(file)["queries"]
        return queries


def _refused() -> Iterator[str]:
    """List the texts of tests that are marked ``refuses``."""
    for path in sorted(_TESTS.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            is_mark = isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.refuses"
            if is_mark and isinstance(node, ast.Call):
                yield ast.literal_eval(node.args[0])


if __name__ == "__main__":
    _DOCUMENT.write_text(support(), encoding="utf-8")
