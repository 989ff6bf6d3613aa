"""Asks hudi-rs (the package ``hudi``): a third opinion on what a table holds.

Its limits, which a test must stay inside: it ignores merge modes (a table without an ordering
field is right only after compaction), refuses several ordering fields, reads only file groups that
have a base file, and knows no CDC and no data rows flagged as deleted.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from hudi import HudiTableBuilder


def read_snapshot(path: Path | str) -> pa.Table:
    """All columns of the newest snapshot, meta columns included, in any order of rows."""
    table = HudiTableBuilder.from_base_uri(str(path)).build()
    batches = [pa.record_batch(batch) for batch in table.read()]
    return pa.Table.from_batches(batches).replace_schema_metadata(None)
