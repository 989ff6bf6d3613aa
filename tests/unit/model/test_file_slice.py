"""File groups are printed as people write them."""

from __future__ import annotations

from lakemark.model.file_slice import FileGroupId


def test_file_group_in_a_message_is_a_path() -> None:
    assert f"{FileGroupId('north', '00000001-a')}" == "north/00000001-a"
    assert f"{FileGroupId('', '00000001-a')}" == "00000001-a"
