"""Property files are read as HoodieStreamer reads them."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakemark.errors import InvalidConfig
from streamer.migration.properties import parse_property, read_properties


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("a=b", ("a", "b")),
        (" a  =  b   c ", ("a", "b c")),
        ("a b", ("a", "b")),
        ("a=b=c", ("a", "b=c")),
        ("a=", ("a", "")),
        ("a:b", None),
        ("# a=b", None),
        ("", None),
        (r"path=C:\new", ("path", r"C:\new")),
    ],
)
def test_line_is_split_as_in_apache_hudi(line: str, found: tuple[str, str] | None) -> None:
    assert parse_property(line) == found


def test_included_files_are_read_in_their_place(tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "job.properties").write_text("a=1\nb=1\ninclude=more/base.properties\nc=1\n")
    (tmp_path / "more/base.properties").write_text("b=2\nc=2\ninclude = last.properties\n")
    (tmp_path / "more/last.properties").write_text("d=3\n")
    found = read_properties(str(tmp_path / "job.properties"))
    assert dict(found) == {"a": "1", "b": "2", "c": "1", "d": "3"}


def test_file_that_includes_itself_is_refused(tmp_path: Path) -> None:
    for name, other in (("a", "b"), ("b", "a")):
        (tmp_path / f"{name}.properties").write_text(f"include={other}.properties\n")
    with pytest.raises(InvalidConfig, match=r"a\.properties includes itself"):
        read_properties(str(tmp_path / "a.properties"))


def test_missing_included_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.properties").write_text("include=none.properties\n")
    with pytest.raises(InvalidConfig, match=r"cannot read .*none\.properties"):
        read_properties(str(tmp_path / "a.properties"))
