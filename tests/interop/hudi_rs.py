"""Reads tables with hudi-rs (the package ``hudi``), as a third opinion.

A test must respect its limits. It ignores merge modes, so that a table without an ordering field is
right only after compaction. It refuses several ordering fields, and reads only file groups that
have a base file. It supports neither CDC nor data rows flagged as deleted.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from hudi import HudiTableBuilder


def read_snapshot(path: Path | str) -> pa.Table:
    """Read all columns of the newest snapshot, meta columns included, in any order of rows."""
    table = HudiTableBuilder.from_base_uri(str(path)).build()
    batches = [pa.record_batch(batch) for batch in table.read()]
    return pa.Table.from_batches(batches).replace_schema_metadata(None)
