"""How much of a metadata table stays: what follows from the policies of its data table."""

from __future__ import annotations

import pytest

from table.services.archival_plan import ArchivalPolicy
from table.services.cleaning_plan import CleaningPolicy, Retention
from table.services.metadata_upkeep import MetadataPolicies


@pytest.mark.parametrize(
    ("of_data", "own"),
    [
        (CleaningPolicy(), CleaningPolicy(commits=20, hours=29, file_versions=4)),
        (CleaningPolicy(commits=30), CleaningPolicy(commits=36, hours=29, file_versions=4)),
        (
            CleaningPolicy(Retention.FILE_VERSIONS, file_versions=5),
            CleaningPolicy(Retention.FILE_VERSIONS, commits=20, hours=29, file_versions=6),
        ),
    ],
)
def test_a_fifth_more_stays_than_of_the_data_table(
    of_data: CleaningPolicy, own: CleaningPolicy
) -> None:
    assert MetadataPolicies.beside(of_data).cleaning == own


def test_one_instant_more_stays_active_than_of_the_data_table_and_what_cleans_look_at() -> None:
    assert MetadataPolicies.beside().archival == ArchivalPolicy(21, 31, 10)
    assert MetadataPolicies.beside(None, ArchivalPolicy(40, 45)).archival == ArchivalPolicy(
        41, 46, 10
    )
    assert MetadataPolicies.beside(None, ArchivalPolicy(4, 5)).archival == ArchivalPolicy(
        21, 22, 10
    )
    by_versions = CleaningPolicy(Retention.FILE_VERSIONS)
    assert MetadataPolicies.beside(by_versions, ArchivalPolicy(4, 5)).archival == ArchivalPolicy(
        5, 6, 10
    )
