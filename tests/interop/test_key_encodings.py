"""lakemark and Apache Hudi write in turn to tables of both encodings of a single COMPLEX key."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakemark.errors import Refused
from lakemark.model.format_version import FormatVersion
from lakemark.model.meta_columns import RECORD_KEY
from lakemark.operations.change_version import plan_version_change
from lakemark.operations.open_table import open_table
from lakemark.storage import StorageLocation
from tests.interop import lakemark
from tests.interop.lakemark import LakemarkWriter
from tests.interop.oracle import ApacheTable, Oracle
from tests.interop.same_rows import assert_same_rows
from tests.interop.test_conversation import KEYS, SCHEMA, Stream

pytestmark = pytest.mark.oracle


@pytest.mark.parametrize(("version", "is_bare"), [(6, True), (8, True), (8, False)])
def test_updates_of_both_writers_match_the_stored_keys(
    oracle: Oracle, tmp_path: Path, version: int, is_bare: bool
) -> None:
    path, stream = tmp_path / "t", Stream(seed=version)
    complex_keys = {
        "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.ComplexKeyGenerator",
        "hoodie.write.complex.keygen.new.encoding": str(is_bare).lower(),
        "hoodie.write.complex.keygen.validation.enable": "false",
    }
    twin = ApacheTable("t", ["id"], ["region"], ["ts"], version=version, extra=complex_keys)
    oracle.write(path, stream.rows(KEYS), twin)
    LakemarkWriter.open(path, twin, SCHEMA).upsert(stream.rows())
    for _ in range(2):
        ours = lakemark.read_snapshot(path)
        assert_same_rows(ours, oracle.read(path))
        assert ours.num_rows == KEYS, "an update became a second row"
        prefix = "" if is_bare else "id:"
        expected = [prefix + key for key in ours["id"].to_pylist()]
        assert ours[RECORD_KEY].to_pylist() == expected
        oracle.write(path, stream.rows(), twin)
    table = open_table(StorageLocation(str(path)))
    if is_bare:
        with pytest.raises(Refused, match="its record keys are values alone"):
            plan_version_change(table, FormatVersion.V9)
    else:
        plan_version_change(table, FormatVersion.V9)
