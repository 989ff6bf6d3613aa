"""The supported versions of the format; other versions are refused with a remedy."""

from __future__ import annotations

import pytest

from lakemark.errors import Unsupported
from lakemark.model.format_version import FormatVersion


def test_what_differs_between_the_versions() -> None:
    versions = [FormatVersion.of(number, "t") for number in (2, 5, 6, 8, 9)]
    assert [version.timeline_layout for version in versions] == [1, 1, 1, 2, 2]
    assert [version.logs_name_their_slice for version in versions] == [True] * 3 + [False] * 2
    assert [version.is_written for version in versions] == [False] * 2 + [True] * 3


@pytest.mark.refuses("Tables of versions other than 2 to 6, 8 and 9")
@pytest.mark.parametrize("number", [0, 1, 7, 10])
def test_other_versions_are_refused(number: int) -> None:
    with pytest.raises(
        Unsupported, match=f"lake/t has version {number}, but only versions 2, 3, 4, 5, 6, 8, 9"
    ):
        FormatVersion.of(number, "lake/t")
